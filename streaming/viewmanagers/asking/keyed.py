"""What the Strobe family has in common: keys, MV, and the rows that the view itself knows.

The algorithms of strobe-family 5 to 7 need the key of every relation in the view's outputs
(`algebra.view_keys`); a relation is then a set of rows, and a view row has one derivation.

Queries are asked *unprojected*: an answer has all columns of all leaves, and `finish` makes view rows of
it at the end. Line 16 of C-Strobe needs this (see `compensated`), and `key_delete(A, U)` needs no more
than the leaf's key then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from streaming.algebra.compensate import known_rows
from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, RIGHT, finished, joined, partial_schema, positions
from streaming.algebra.source_queries import Known, Term
from streaming.algebra.tree import Project, Scan
from streaming.algebra.view_keys import Keys, all_columns, key_chain, keys_of, refuse_self_join
from streaming.scalars.expression import Col
from streaming.viewmanagers.asking.asking_manager import Asking, PlaceChange
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.mirror import HeldMirror, Mirror

V = TypeVar("V")


class Keyed(Asking[V], Generic[V]):
    """Base of the Strobe family.

    Args:
        keys: the primary keys of the view's relations.
        mirror: MV; held here when none is given.
        from_view: answer insertions from MV where its keys show that the rows are known
            (strobe-family 9, third improvement).

    Raises:
        FrescoError: VIEW_NOT_PSJ, VIEW_SELF_JOIN, VIEW_KEY_MISSING.
    """

    def __init__(
        self,
        spec: ManagedView,
        operators: Operators[V],
        keys: Keys,
        mirror: Mirror[V] | None = None,
        from_view: bool = False,
    ) -> None:
        super().__init__(spec, operators)
        refuse_self_join(self.psj, "the Strobe family")
        self.keys = keys_of(self.psj, keys)
        self.mirror: Mirror[V] = mirror or HeldMirror(operators, self.psj.schema)
        places = self.psj.places if from_view else ()
        self._chains = {p: key_chain(self.psj, self.keys, p) for p in places}
        self.wide = partial_schema(self.psj, self.psj.places)
        """The columns of an answer."""

    def started(self, rows: V) -> None:
        self.mirror.add(rows)
        self._index()

    def _index(self) -> None:
        self.mirror.index(*(key.outputs for key in self.keys.places))

    # Sets of rows ---------------------------------------------------------------------------------

    def as_set(self, rows: V) -> V:
        """One copy of each row under each number."""
        return self.operators.distinct(rows)

    def both(self, one: V, other: V) -> V:
        """The union without duplicates."""
        return self.as_set(self.operators.plus(one, other))

    def finish(self, rows: V) -> V:
        """The view rows of an answer."""
        return self.as_set(self.operators.evaluate(finished(self.psj), {LEFT: rows}))

    # key_delete -----------------------------------------------------------------------------------

    def key_delete(self, rows: V, place: int, deleted: V) -> V:
        """key_delete(R, U) for view rows: without those that have the key of a row of `deleted`."""
        key = self.keys.places[place]
        hit = self.operators.matching(rows, key.outputs, deleted, key.leaf)
        return self.operators.minus(rows, hit)

    def key_delete_answer(self, answer: V, place: int, deleted: V) -> V:
        """key_delete(A, U) for rows of an answer."""
        leaf = self.keys.places[place].leaf
        at = tuple(self.psj.starts[place] + column for column in leaf)
        return self.operators.minus(answer, self.operators.matching(answer, at, deleted, leaf))

    def key_delete_star(self, answer: V, place: int, inserted: V) -> V:
        """key_delete*(Delta, U): by the key and every other attribute of the leaf."""
        leaf, at = all_columns(self.psj, place)
        return self.operators.minus(answer, self.operators.matching(answer, at, inserted, leaf))

    def in_view(self, place: int, deleted: V) -> V:
        """The rows of MV that key_delete(MV, U) deletes."""
        key = self.keys.places[place]
        return self.mirror.matching(key.outputs, deleted, key.leaf)

    # Insertions -----------------------------------------------------------------------------------

    def net(self, change: PlaceChange[V], sign: int) -> dict[int, V]:
        """The rows that a change inserts (`sign` 1) or deletes (-1), by place; all under 0.

        Numbers are added up first, so insert-then-delete of a row inside them cancels (T-Strobe, line
        4), and so does delete-then-insert of the very same row; of another row with that key it does
        not. Rows of a truncated relation count from the truncate on.
        """
        ops, found = self.operators, {}
        since = {relation: number for number, relation in change.truncated}
        for place, rows in change.deltas.items():
            first = since.get(self.psj.relations[place], change.first)
            total = ops.renumbered(ops.between(rows, first, change.last), 0)
            part = ops.inserted(total) if sign > 0 else ops.deleted(total)
            if ops.size(part):
                found[place] = part
        return found

    def insertions(self, change: PlaceChange[V]) -> list[Term[V]]:
        """V<U> for all insertions of a change: one term for each place.

        After a truncate of R the view has rows of R's new rows only, so their term is enough.
        """
        inserted = self.net(change, 1)
        if change.truncated:
            place = self.psj.places_of(change.truncated[-1][1])[0]
            inserted = {p: rows for p, rows in inserted.items() if p == place}
        return self.terms_of(inserted)

    def terms_of(self, inserted: Mapping[int, V]) -> list[Term[V]]:
        """V<U> for the rows inserted at each place."""
        return [
            Term(1, (Known((p,), rows),), tuple(q for q in self.psj.places if q != p))
            for p, rows in inserted.items()
        ]

    def local(self, term: Term[V]) -> V:
        """The rows of a term that asks for nothing."""
        return self.as_set(known_rows(self.operators, self.psj, term, finish=False))

    def known_in_view(self, term: Term[V], gone: Mapping[int, list[V]]) -> tuple[V, V]:
        """What MV tells of V<U>: its rows for some of the tuples, and the tuples it says nothing of.

        Where the keys of all other places follow from a tuple one after the other, it joins with at
        most one row of each; and a row of MV with that key has the row (strobe-family 9). The columns
        of MV that are needed are there: `key_chain` sees to it.

        Args:
            gone: by place, deletions since the state of MV.
        """
        ops, (known,) = self.operators, term.known
        (start,) = known.places
        chain = self._chains.get(start)
        ask = ops.empty(self.psj.leaves[start].schema)
        if chain is None:
            return ops.empty(self.wide), known.rows
        partial, have = known.rows, known.places
        leaf_start, _ = all_columns(self.psj, start)
        for step in chain:
            where = positions(self.psj, have)
            at, key = tuple(where[p] for p in step.known), self.keys.places[step.place]
            seen = self._leaf_rows(step.place, self.mirror.matching(key.outputs, partial, at))
            for rows in gone.get(step.place, ()):
                seen = ops.minus(seen, ops.matching(seen, key.leaf, rows, key.leaf))
            found = ops.matching(partial, at, seen, key.leaf)
            unknown = ops.minus(partial, found)
            own = tuple(where[self.psj.starts[start] + column] for column in leaf_start)
            ask = self.both(ask, ops.matching(known.rows, leaf_start, unknown, own))
            tree = joined(self.psj, have, (step.place,), base=False)
            partial = ops.evaluate(tree, {LEFT: found, RIGHT: seen})
            have = tuple(sorted((*have, step.place)))
        return self.as_set(partial), ask

    def _leaf_rows(self, place: int, rows: V) -> V:
        """The leaf's rows in rows of MV that show it whole."""
        schema = self.psj.leaves[place].schema
        outputs = tuple(output for _, output in self.keys.places[place].shown)
        columns = tuple(Col(o, c.type) for o, c in zip(outputs, schema, strict=True))
        tree = Project(Scan(LEFT, self.psj.schema), columns, schema)
        return self.as_set(self.operators.evaluate(tree, {LEFT: rows}))

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {**super().snapshot(), "mirror": self.mirror.snapshot()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        self.mirror.restore(saved["mirror"])
        self._index()
