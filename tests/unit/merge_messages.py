"""Messages to a merge in short form, and the check that a refused one changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.errors import ProtocolError
from streaming.messages import ActionList, Rel, RelRun, Rows, Suspend, ViewChange

Run = tuple[int, int, str] | tuple[int, int, str, str]


def rel(first: int, last: int, *runs: Run, group: str = "g", **facts: object) -> Rel:
    """REL with runs (first, last, views, idle); views are one letter each."""
    made = tuple(
        RelRun(first=run[0], last=run[1], views=tuple(run[2]), idle=tuple("".join(run[3:])))
        for run in runs
    )
    return Rel(group=group, first=first, last=last, runs=made, **facts)  # type: ignore[arg-type]


def al(view: str, first: int, last: int, rows: int = 1, complete: bool = True) -> ActionList:
    delta = Rows(rows=rows, path=f"{view}{last}") if rows else None
    return ActionList(group="g", view=view, first=first, last=last, delta=delta, complete=complete)


def suspend(view: str, after: int) -> Suspend:
    return Suspend(group="g", view=view, after=after, error={"code": "SOURCE_DECODE"})


def add(view: str, number: int, manager: str = "complete", every: int | None = None) -> ViewChange:
    return ViewChange(
        group="g",
        view=view,
        change="add",
        number=number,
        manager=manager,  # type: ignore[arg-type]
        every=every,
    )


def drop(view: str, number: int) -> ViewChange:
    return ViewChange(group="g", view=view, change="drop", number=number)


def told(merge: Any, *messages: object) -> Any:
    """The merge after these messages."""
    for message in messages:
        merge.handle(message)
    return merge


def refused(merge: Any, message: object, rule: str, names: str = "") -> None:
    """The message breaks the protocol: the error says who, what and why, and nothing has changed."""
    before = merge.snapshot()
    with pytest.raises(ProtocolError, match=rule) as error:
        merge.handle(message)
    assert error.value.code == "PROTOCOL_MERGE"
    assert error.value.where == "merge"
    assert f"message: {names or type(message).__name__}(" in error.value.what
    assert merge.snapshot() == before


def taken(merge: Any) -> list[str]:
    """All batches that are due, each as its parts: "a1-3 b3" are rows 1 to 3 of a and 3 of b."""
    batches = []
    while (batch := merge.take_batch()) is not None:
        parts = [
            f"{p.view}{p.first}" + (f"-{p.last}" if p.last > p.first else "") for p in batch.parts
        ]
        batches.append(" ".join(parts))
    return batches
