"""Compensating an answer for held updates: lines 8 to 16 of C-Strobe (strobe-family 7).

Let b be the last number that is processed, and let Q_{i,-} ask for V<I>[ss_b], I inserted rows. Its
answers are computed later, so they may reflect held updates, all of which have been received by then
(FIFO). Look at a row t of V<I>[ss_b], made of one row of each leaf:

* t is in Delta before line 16. If an answer lacks t, rows of t had been deleted. Take the first of
  these deletions, U_p: it is held, so Q<U_p> has been sent, and knows one row of t more. Q<...> with all
  rows known is joined here.
* Line 16 leaves t in Delta, and nothing that is not in V<I>[ss_b]. A row u of a leaf stood in ss_b iff
  its first held update is a deletion, or it has none and was seen. So what must go are the rows made
  with a u whose first held update is an insertion, and `key_delete*` finds exactly these.

For several numbers i at a time nothing changes either: the rows of V<I> are each under their number, the
updates after i are those of the greater numbers that are worked on with it and the held ones, and one
query asks for all (`later`). Of the former it may ask for deletions that are not a row's first too: what
they bring in wrongly is made with a row whose first update is an insertion, so line 16 takes it away.

For transactions nothing changes: V<I> is one term for each place with insertions, and the order
"received later" of line 12 is that of (number, place), so that of two deletions in one transaction one
is later than the other and their combination is asked for once.

Two mistakes in the paper:

* **Line 16 as printed is wrong** where the view does not show every attribute it joins or selects on.
  It compares the projected attributes of U_j and U_k, and `key_delete*` matches on them; the proof's
  step II(b)B.ii takes the deleted tuple to join like the inserted one, which they need not do.
  Smallest history: V = pi_{A,C}(r(A,B) join s(B,C)), keys A and C, r = {[1,1]}, s = {}; U_1 = insert(s,
  [2,5]); before Q_1 is answered r's row is changed: U_2 = delete(r, [1,1]), U_3 = insert(r, [1,2]). A_1 =
  [1,5]; line 16 skips U_3, because pi_A of U_2 and U_3 are equal, and MV = {[1,5]}, while V[ss_1] is
  empty. Comparing all attributes in the condition alone does not mend it: with the roles of 1 and 2
  in U_1 exchanged, `key_delete*` by A then takes away a row that belongs. So Delta keeps the rows
  unprojected here, and both compare the leaf's whole row. On views that show everything the two agree.
* **The bound (n-1)! of grouping** counts the longest chains only. There are n-1 groups after the first
  answer, n-2 after each of theirs, and so on, down to those with one relation to ask:
  (n-1) + (n-1)(n-2) + ... + (n-1)!, nine and not six for n = 4. For n = 3 it is 2 = (n-1)!.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, RIGHT, Places, joined
from streaming.algebra.source_queries import Answer, Known, Query, Term
from streaming.algebra.tree import Tree
from streaming.algebra.view_keys import Keys, all_columns
from streaming.messages import ActionList, Rows, Updates
from streaming.viewmanagers.asking.holding_queue import HeldMessage, HoldingQueue, numbers_in
from streaming.viewmanagers.asking.keyed import Keyed
from streaming.viewmanagers.asking.numbered_effects import Within, not_yet, with_later
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.mirror import Mirror

V = TypeVar("V")


class QueryName(NamedTuple):
    """Q_{i,j,k}: sent while number i is worked on, because of an update of number j.

    `place` is the updated relation's; -1 in Q_{i,i,0}.
    """

    i: int
    j: int
    k: int
    place: int = -1


@dataclass
class Family(Generic[V]):
    """Q_{i,-}: Delta, unprojected and without duplicates, and by j the last k given.

    Attributes:
        first: the first of the numbers that are worked on together, i being the last.
        together: place -> their changes; nothing where it is one number, whose rows need none.
    """

    delta: V
    first: int
    together: Mapping[int, V] = field(default_factory=dict)
    last_k: dict[int, int] = field(default_factory=dict)


class Compensated(Keyed[V], Generic[V]):
    """Base of the managers that hold updates while they wait for answers.

    Args:
        grouped: one compensating query for all deletions of one relation (7, last but two paragraphs),
            else one for each number.
    """

    def __init__(
        self,
        spec: ManagedView,
        operators: Operators[V],
        keys: Keys,
        mirror: Mirror[V] | None = None,
        from_view: bool = False,
        grouped: bool = True,
    ) -> None:
        super().__init__(spec, operators, keys, mirror, from_view)
        self.grouped = grouped
        self.queue: HoldingQueue[V] = HoldingQueue(self.psj, operators)
        self.names: dict[int, QueryName] = {}
        """The names of the queries in UQS that are waited for, by query id."""
        self.families: dict[int, Family[V]] = {}
        self.void: set[int] = set()
        """Queries in UQS whose answers no longer matter: a truncate has emptied the view since."""

    def hold(self, updates: Updates) -> None:
        """Line 3: as updates arrive, they are placed in the holding queue."""
        change = self.change(updates, updates.first, updates.last)
        self.queue.put(
            HeldMessage(tuple(self.relevant(updates)), change, updates.parts, updates.cut)
        )

    # Q_{i,j,k} ------------------------------------------------------------------------------------

    def begin(
        self, i: int, terms: list[Term[V]], first: int = -1, together: Mapping[int, V] | None = None
    ) -> list[Query[V]]:
        """Line 8: Q_{i,i,0}, for the numbers [first..i] when they are several."""
        self.families[i] = Family(self.operators.empty(self.wide), first, together or {})
        return self._send(QueryName(i, i, 0), terms)

    def compensate(self, answer: Answer[V]) -> list[Query[V]]:
        """Lines 11 to 14 for A_{i,j,k}."""
        name, query = self.names.pop(answer.id), self.uqs.pop(answer.id)
        family = self.families[name.i]
        family.delta = self.both(family.delta, answer.rows)
        out: list[Query[V]] = []
        for j, place, terms in self._compensating(name, query):
            self.compensations += 1
            family.last_k[j] = family.last_k.get(j, 0) + 1
            out += self._send(QueryName(name.i, j, family.last_k[j], place), terms)
        return out

    def _compensating(
        self, name: QueryName, query: Query[V]
    ) -> Iterator[tuple[int, int, list[Term[V]]]]:
        """Line 13: the terms of each compensating query, with its j and its place."""
        yield from self._among_together(name, query)
        for j, place, rows in self._later_deletions(name, query):
            terms = [
                Term(1, (*t.known, Known((place,), rows)), tuple(p for p in t.asked if p != place))
                for t in query.terms
                if place in t.asked
            ]
            yield j, place, terms

    def answered_all(self, i: int) -> bool:
        """Whether no query of Q_{i,-} is open."""
        return i not in [name.i for name in self.names.values()]

    def settled(self, i: int) -> V:
        """Line 16: Delta without what later insertions brought in; Q_{i,-} is done."""
        family = self.families.pop(i)
        ops, delta = self.operators, family.delta
        for place in self.psj.places if ops.size(delta) else ():
            if place in family.together:
                changes, after = family.together[place], self.queue.firsts(place)
                within = Within(
                    self.wide,
                    self.psj.leaves[place].schema,
                    all_columns(self.psj, place)[1],
                    self.keys.places[place].leaf,
                )
                early = not_yet(ops, delta, within, changes, family.first, i, after)
                delta = ops.minus(delta, ops.plus(ops.empty(self.wide), *early))
                continue
            if not self.queue.touches(place):
                continue
            inserted = self.queue.inserted(place)
            if ops.size(inserted):
                delta = self.key_delete_star(delta, place, inserted)
        return delta

    def _send(self, name: QueryName, terms: list[Term[V]]) -> list[Query[V]]:
        """Terms that know everything are joined here, the others are one query."""
        family = self.families[name.i]
        for term in terms:
            if not term.asked:
                family.delta = self.both(family.delta, self.local(term))
        asking = tuple(term for term in terms if term.asked)
        if not asking:
            return []
        query = self.ask(asking, finish=False)
        self.names[query.id] = name
        return [query]

    def _among_together(
        self, name: QueryName, query: Query[V]
    ) -> Iterator[tuple[int, int, list[Term[V]]]]:
        """For the deletions among the numbers worked on together, each after the rows it meets.

        All of them have been received before Q_{i,i,0} is answered, so in the order of places each
        combination is asked for once. What a term knows is one piece, and stays one.
        """
        ops, family = self.operators, self.families[name.i]
        if name.j != name.i:
            return
        for place, changes in sorted(family.together.items()):
            gone = ops.deleted(changes)
            if place <= name.place or not ops.size(gone):
                continue
            gone = ops.minus(ops.minus(gone, gone), gone)
            terms = []
            for term in query.terms:
                if place not in term.asked:
                    continue
                (known,) = term.known
                tree = joined(self.psj, known.places, (place,), base=False)

                def join(rows: V, deleted: V, tree: Tree = tree) -> V:
                    return ops.evaluate(tree, {LEFT: rows, RIGHT: deleted})

                met = list(with_later(ops, known.rows, gone, family.first, name.i, join))
                if met:
                    more = Known(tuple(sorted((*known.places, place))), self.as_set(ops.plus(*met)))
                    asked = tuple(p for p in term.asked if p != place)
                    terms.append(Term(1, (more,), asked))
            if terms:
                yield name.i, place, terms

    def _later_deletions(self, name: QueryName, query: Query[V]) -> Iterator[tuple[int, int, V]]:
        """(number, place, rows) of the deletions held, received between U_j and the answer."""
        ops, last = self.operators, self.queue.last
        found: list[tuple[int, int, V]] = []
        for place in sorted({place for term in query.terms for place in term.asked}):
            if not self.queue.touches(place):
                continue
            first = name.j if place > name.place >= 0 else name.j + 1
            rows = ops.between(self.queue.deleted(place), first, last)
            for number in numbers_in(ops, rows, first, last):
                part = rows if self.grouped else ops.between(rows, number, number)
                found.append((number, place, self.as_set(ops.renumbered(part, 0))))
                if self.grouped:
                    break
        yield from sorted(found, key=lambda one: one[:2])

    # Truncates ------------------------------------------------------------------------------------

    def asked_places(self) -> Places:
        """The places that open queries ask for."""
        terms = [term for id_ in self.names for term in self.uqs[id_].terms]
        return tuple(sorted({place for term in terms for place in term.asked}))

    def drop(self, i: int) -> None:
        """Q_{i,-} no longer matters."""
        self.families.pop(i, None)
        for id_ in [id_ for id_, name in self.names.items() if name.i == i]:
            del self.names[id_]
            self.void.add(id_)

    def ignored(self, answer: Answer[V]) -> bool:
        """Whether the answer's query is void; then it is done with."""
        if answer.id not in self.void:
            return False
        self.void.remove(answer.id)
        del self.uqs[answer.id]
        return True

    def unless_void(self, out: list[Query[V] | ActionList]) -> list[Query[V] | ActionList]:
        """Messages about to be sent, without queries that were dropped in the same step."""
        sent: list[Query[V] | ActionList] = []
        for message in out:
            if isinstance(message, Query) and message.id in self.void:
                self.void.remove(message.id)
                del self.uqs[message.id]
            else:
                sent.append(message)
        return sent

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        pack = self.operators.pack
        return {
            **super().snapshot(),
            "queue": self.queue.snapshot(),
            "names": [[id_, list(name)] for id_, name in self.names.items()],
            "families": [
                {
                    "i": i,
                    "delta": pack(f.delta),
                    "first": f.first,
                    "together": [[p, pack(v)] for p, v in f.together.items()],
                    "last_k": [list(each) for each in f.last_k.items()],
                }
                for i, f in self.families.items()
            ],
            "void": sorted(self.void),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        self.queue.restore(saved["queue"])
        self.names = {id_: QueryName(*name) for id_, name in saved["names"]}
        self.families = {
            note["i"]: Family(
                self._opened(note["delta"]),
                note["first"],
                {place: self._opened(rows) for place, rows in note["together"]},
                dict(note["last_k"]),
            )
            for note in saved["families"]
        }
        self.void = set(saved["void"])

    def _opened(self, reference: Any) -> V:
        return self.operators.open(Rows.model_validate(reference))
