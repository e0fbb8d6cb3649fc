"""A view manager of the Strobe family with its query processor, fed by hand.

`Played` hands the manager one message at a time and keeps what comes out: statements to the sources,
which a test has evaluated when it wants to and delivered when it wants to, and action lists. With
`restarts` the manager is made anew from its snapshot, as JSON, after every message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streaming.algebra.bag import Bag, Numbered, flat
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.source_queries import Answer, Query, SourceAnswer, SourceQuery
from streaming.algebra.tree import Relation, Tree
from streaming.ask.processor import QueryProcessor
from streaming.durable import as_json
from streaming.messages import ActionList, GlobalPart, Updates
from streaming.viewmanagers.base import ManagedView
from tests.askedsources import Sources

Make = Callable[[ManagedView, NumberedBags, Mapping[str, tuple[int, ...]]], Any]


class Played:
    """One manager.

    Args:
        make: the manager from its spec, operators and keys.
        tree: the view.
        relations: with their primary keys.
        initial: rows of the relations at number 0, which is delivered here.
    """

    def __init__(
        self,
        make: Make,
        tree: Tree,
        relations: Mapping[str, Relation],
        initial: Mapping[str, Iterable[tuple[Any, ...]]],
        restarts: bool = False,
    ) -> None:
        self._make, self._keys = make, {name: r.key for name, r in relations.items()}
        self._restarts = restarts
        self.sources = Sources(ManagedView("v", "g", tree), initial)
        self.operators = self.sources.operators
        self.manager = self._new()
        self.processor: QueryProcessor[Numbered] = QueryProcessor(self.manager.psj, self.operators)
        self.statements: list[SourceQuery[Numbered]] = []
        self.queries: list[Query[Numbered]] = []
        self.lists: list[ActionList] = []
        self.deliver(self.sources.published[0])
        self.lists.clear()

    def _new(self) -> Any:
        return self._make(self.sources.spec, self.operators, self._keys)

    def deliver(self, message: Updates | SourceAnswer[Numbered]) -> None:
        """One message reaches the warehouse."""
        queue: list[Any] = [message]
        while queue:
            each = queue.pop(0)
            match each:
                case ActionList():
                    self.lists.append(each)
                case SourceQuery():
                    self.statements.append(each)
                case Updates() | Answer():
                    queue += self.manager.handle(each)
                    self.restart()
                case Query() | SourceAnswer():
                    if isinstance(each, Query):
                        self.queries.append(each)
                    queue += self.processor.handle(each)

    def restart(self) -> None:
        if self._restarts:
            saved = as_json(self.manager.snapshot())
            self.manager = self._new()
            self.manager.restore(saved)
            assert as_json(self.manager.snapshot()).keys() == saved.keys()

    def evaluate(self, at: str) -> SourceAnswer[Numbered]:
        """A source evaluates its oldest statement now."""
        found = next(one for one in self.statements if one.source == at)
        self.statements.remove(found)
        return self.sources.answer(found)

    def settle(self) -> None:
        """All statements are evaluated and delivered, those that follow too."""
        while self.statements:
            self.deliver(self.evaluate(self.statements[0].source))

    # What a test looks at -------------------------------------------------------------------------

    @property
    def mv(self) -> Bag:
        return flat(self.manager.mirror.rows())

    @property
    def al(self) -> list[tuple[str, int, Bag]]:
        return [(a.kind, a.place, flat(a.rows or {})) for a in self.manager.al]

    @property
    def pending(self) -> dict[int, list[tuple[int, Bag]]]:
        """pending(Q_i) by i: (place, deleted rows)."""
        return {
            i: [(a.place, flat(a.rows)) for a in actions]
            for i, actions in self.manager.pending.items()
        }

    @property
    def uqs(self) -> list[tuple[int, int, int]]:
        """The names Q_{i,j,k} of the queries in UQS."""
        return sorted(tuple(name[:3]) for name in self.manager.names.values())

    def delta(self, i: int) -> Bag:
        """Delta, as view rows."""
        return flat(self.manager.finish(self.manager.families[i].delta))

    @property
    def sent(self) -> list[tuple[int, int, bool, Bag]]:
        """The action lists: first, last, complete, rows."""
        return [
            (
                each.first,
                each.last,
                each.complete,
                {} if each.delta is None else flat(self.operators.open(each.delta)),
            )
            for each in self.lists
        ]

    def known(self, query: int = -1) -> list[tuple[dict[int, Bag], tuple[int, ...]]]:
        """A query's terms: rows by known place, and the places asked."""
        return [
            ({k.places[0]: flat(k.rows) for k in term.known}, term.asked)
            for term in self.queries[query].terms
        ]


def one_message(operators: NumberedBags, *messages: Updates) -> Updates:
    """Following messages as one, with one cut."""
    rows: dict[str, Numbered] = {}
    for message in messages:
        for name, part in message.relations.items():
            rows[name] = operators.plus(rows.get(name, {}), operators.open(part))
    return messages[-1].model_copy(
        update={
            "first": messages[0].first,
            "runs": tuple(run for message in messages for run in message.runs),
            "relations": {name: operators.pack(each) for name, each in rows.items()},
            "controls": tuple(control for message in messages for control in message.controls),
            "parts": tuple(part for message in messages for part in message.parts),
        }
    )


def part_of(message: Updates, id_: str, parts: int) -> Updates:
    """The message's one number as a part of a global transaction."""
    part = GlobalPart(number=message.first, id=id_, parts=parts)
    return message.model_copy(update={"parts": (part,)})
