"""One mediator and short names for its messages, for its unit tests."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.algebra.numbered import NumberedBags
from streaming.durable import as_json
from streaming.errors import ProtocolError
from streaming.messages import ActionList, RelRun, Suspend, Updates
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.over_views.mediator import Mediator
from tests.askedsources import tables, view

RELATIONS = tables(x__r="a b", p="a b", q="b c")
SQL = "SELECT r.a, q.c FROM x.r r JOIN p ON r.a = p.a JOIN q ON p.b = q.b"
SPEC = ManagedView("v", "g", view(SQL, RELATIONS))
GROUPS = {"p": "g", "q": "g", "v": "g"}
Rows = dict[int, Any]
"""Number -> a row that comes under it."""


class World:
    """A mediator of v over x.r and the views p and q, past its initial state."""

    def __init__(self, spec: ManagedView = SPEC, groups: Any = None, asks: bool = False) -> None:
        self.operators = NumberedBags()
        self.how = (spec, groups or GROUPS, self.operators, asks)
        self.mediator = Mediator(*self.how)

    def begun(self) -> World:
        """Number 0 has been handed on."""
        self.handle(self.updates(0, 0, (0, 0, "pqv")))
        self.handle(self.al("p", 0, 0))
        assert [m.last for m in self.handle(self.al("q", 0, 0))] == [0]
        self.passed(0, 0)
        return self

    def handle(self, message: Any) -> list[Any]:
        """One step; a mediator restored from a snapshot of the state before takes it alike, and stays."""
        again = Mediator(*self.how)
        again.restore(as_json(self.mediator.snapshot()))
        out = [self.opened(one) for one in self.mediator.handle(message)]
        assert [self.opened(one) for one in again.handle(message)] == out
        self.mediator = again
        return out

    def opened(self, message: Any) -> Any:
        """The message with its rows in the place of references."""
        if not isinstance(message, Updates):
            return message
        rows = {name: self.operators.open(found) for name, found in message.relations.items()}
        return message.model_copy(update={"relations": rows})

    def rows(self, rows: Rows) -> Any:
        return self.operators.pack({(n, row): 1 for n, row in rows.items()}) if rows else None

    def updates(
        self, first: int, last: int, *runs: Any, r: Rows | None = None, **more: Any
    ) -> Updates:
        """Runs are (first, last, views, idle); views are one letter each."""
        made = tuple(
            RelRun(first=a, last=b, views=tuple(views), idle=tuple("".join(idle)))
            for a, b, views, *idle in runs
        )
        relations = {} if r is None else {"x.r": self.rows(r)}
        return Updates(
            **{
                "group": "g",
                "first": first,
                "last": last,
                "runs": made,
                "relations": relations,
                **more,
            }
        )

    def al(
        self, name: str, first: int, last: int, rows: Rows | None = None, **more: Any
    ) -> ActionList:
        delta = self.rows(rows or {})
        return ActionList(
            **{"group": "g", "view": name, "first": first, "last": last, "delta": delta, **more}
        )

    def passed(self, first: int, last: int, **more: Any) -> list[tuple[int, int, bool]]:
        """What becomes of the manager's list of [first..last]."""
        sent = self.mediator.passed_on(self.al("v", first, last, **more))
        return [(m.first, m.last, m.complete) for m in sent if isinstance(m, ActionList)]

    def refused(self, message: Any, rule: str) -> None:
        """It breaks the protocol and changes nothing."""
        before = self.mediator.snapshot()
        with pytest.raises(ProtocolError, match=rule) as error:
            self.mediator.handle(message)
        assert error.value.code in ("PROTOCOL_MEDIATOR", "PROTOCOL_VIEW_MANAGER")
        assert self.mediator.snapshot() == before


def spans(messages: list[Any]) -> list[tuple[int, int]]:
    return [(one.first, one.last) for one in messages]


def parent_stops(after: int, view: str = "p") -> Suspend:
    return Suspend(
        group="g", view=view, after=after, error={"code": "SOURCE_DECODE", "what": "bad"}
    )
