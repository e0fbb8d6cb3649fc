"""The merge machine's state as JSON: rows, ready rows, lists by reference, what batches said."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from streaming.errors import FrescoError
from streaming.merge.covered import Covered, OpenRel
from streaming.merge.vut import HeldList, Shape, Span, WarehouseTransaction
from streaming.messages import Rows

if TYPE_CHECKING:
    from streaming.merge.machine import MergeMachine

FORMAT = 1


def snapshot(machine: MergeMachine) -> dict[str, Any]:
    """The state as JSON values; `restore` reads it."""
    submission, vut = machine.submission, machine.vut
    shapes: dict[Shape, int] = {}

    def shape_at(shape: Shape) -> int:
        return shapes.setdefault(shape, len(shapes))

    rows = [[row.first, row.last, shape_at(row.shape)] for row in vut.rows()]
    ready = [
        [int(together), [[first, last, shape_at(shape)] for first, last, shape in spans]]
        for spans, together in submission.ready
    ]
    return {
        "format": FORMAT,
        "config": _config(machine),
        "seen": machine.seen,
        "suspended": dict(machine.suspended),
        "painted": list(vut.painted),
        "passed": list(machine.passed),
        "lists": [[_dump(held) for held in column] for column in vut.lists],
        "rows": rows,
        "ready": ready,
        "shapes": [[list(shape.views), list(shape.busy)] for shape in shapes],
        "covered": [submission.covered.frontier, [list(r) for r in submission.covered.ahead]],
        "rels": [[rel.last, dict(rel.positions), rel.committed_ms] for rel in submission.rels.open],
        "closed": [submission.rels.closed, dict(submission.rels.positions)],
        "released": [[first, list(names)] for first, names in submission.rels.released],
        "sequence": submission.sequence,
        "since_ms": submission.since_ms,
        "taken": list(submission.taken),
        "latest": list(submission.latest),
    }


def restore(machine: MergeMachine, saved: dict[str, Any]) -> None:
    """Replaces the machine's state.

    Raises:
        FrescoError: MERGE_SNAPSHOT when the snapshot is not of such a machine.
    """
    if saved.get("format") != FORMAT or saved.get("config") != _config(machine):
        raise FrescoError(
            "MERGE_SNAPSHOT",
            f"the saved state is of {saved.get('config')!r}, this merge is {_config(machine)!r}",
            where=f"merge {machine.group}",
            todo="start with the view files of the saved state; `fresco view add` changes a group",
        )
    submission, vut = machine.submission, machine.vut
    machine.seen = saved["seen"]
    machine.suspended = dict(saved["suspended"])
    machine.passed[:] = saved["passed"]
    vut.painted[:] = saved["painted"]
    vut.lists = [deque(_load(held) for held in column) for column in saved["lists"]]
    shapes = [_shape(machine, views, busy) for views, busy in saved["shapes"]]
    vut.clear_rows()
    submission.ready.clear()
    submission.waiting = 0
    submission.put(
        [
            WarehouseTransaction(
                tuple(Span(first, last, shapes[shape]) for first, last, shape in spans),
                bool(together),
            )
            for together, spans in saved["ready"]
        ]
    )
    frontier, ahead = saved["covered"]
    submission.covered = Covered(frontier, [(first, last) for first, last in ahead])
    submission.rels.open = deque(OpenRel(*rel) for rel in saved["rels"])
    submission.rels.cuts = deque(rel.last for rel in submission.rels.open)
    submission.rels.closed, submission.rels.positions = saved["closed"]
    submission.rels.released = deque((first, tuple(names)) for first, names in saved["released"])
    machine.place([(first, last, shapes[shape]) for first, last, shape in saved["rows"]])
    submission.sequence = saved["sequence"]
    submission.since_ms = saved["since_ms"]
    submission.taken[:] = saved["taken"]
    submission.latest[:] = saved["latest"]


def _config(machine: MergeMachine) -> list[Any]:
    return [machine.group, list(machine.views), machine.algorithm, machine.order]


def _shape(machine: MergeMachine, views: list[int], busy: list[int]) -> Shape:
    """The machine's own object for the set, so that later rows share it."""
    names = tuple(machine.views[x] for x in views if x < len(machine.views))
    idle = tuple(machine.views[x] for x in views if x < len(machine.views) and x not in busy)
    return machine.shape(names, idle)


def _dump(held: HeldList) -> dict[str, Any]:
    return {
        "id": held.id,
        "first": held.first,
        "last": held.last,
        "complete": held.complete,
        "delta": held.delta.model_dump(exclude_none=True) if held.delta is not None else None,
        "state": held.state,
    }


def _load(saved: dict[str, Any]) -> HeldList:
    delta = Rows(**saved["delta"]) if saved["delta"] is not None else None
    return HeldList(**{**saved, "delta": delta})
