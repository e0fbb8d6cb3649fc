"""What waits in a mediator, made small enough to be written with every manifest.

A parent that is slow, because its source is, leaves its children's UMQ and RMQ to grow, and a mediator's
whole state goes into each manifest. So rows that travelled inside their messages are put aside into files
once they have become many; the messages that wait name the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streaming.messages import ActionList, Rows
from streaming.viewmanagers.mediator import Mediator
from streaming.viewmanagers.ordered import Ordered

Keep = Callable[[Rows], Rows]
"""The same rows by a reference to a file."""


def put_aside(mediator: Mediator[Any], limit: int, keep: Keep) -> None:
    """Where more than `limit` characters of rows wait inside messages, refer to files instead."""
    entries = [rows for entry in mediator.umq for rows in entry.updates.relations.values()]
    lists = [one.delta for found in mediator.rmq.values() for one in found if one.delta is not None]
    if sum(len(rows.ipc or "") for rows in (*entries, *lists)) <= limit:
        return
    mediator.umq = tuple(_entry(entry, keep) for entry in mediator.umq)
    mediator.rmq = {
        parent: tuple(_list(one, keep) for one in found) for parent, found in mediator.rmq.items()
    }


def _entry(entry: Ordered, keep: Keep) -> Ordered:
    found = {
        name: keep(rows) if rows.ipc is not None else rows
        for name, rows in entry.updates.relations.items()
    }
    return replace(entry, updates=entry.updates.model_copy(update={"relations": found}))


def _list(one: ActionList, keep: Keep) -> ActionList:
    if one.delta is None or one.delta.ipc is None:
        return one
    return one.model_copy(update={"delta": keep(one.delta)})
