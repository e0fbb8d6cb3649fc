"""The merge machine's state as JSON: rows, ready rows, lists by reference, what batches said.

Columns go by their views' names, so that a state can be put into a table with other columns
(`changes`), and a machine made with the views it began with or those it has now can take it over.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from streaming.errors import FrescoError
from streaming.merge.covered import Covered, OpenRel
from streaming.merge.rows import UNPAINTED, HeldList, Kind, Row, Shape, Span, WarehouseTransaction
from streaming.messages import ActionList, Rows, Suspend, ViewChange, decode, encode

if TYPE_CHECKING:
    from streaming.merge.machine import MergeMachine

FORMAT = 2


class Ahead(NamedTuple):
    """An addition whose cut has not been seen, and what the view's manager has sent since."""

    change: ViewChange
    held: list[ActionList | Suspend]

    @property
    def number(self) -> int:
        """The cut."""
        return self.change.number


class Joining(NamedTuple):
    """A view that no batch has shown yet.

    Attributes:
        number: the cut at which it joins.
        shown: the last good number of the suspended view that comes back; None for a new one.
    """

    number: int
    shown: int | None


def snapshot(machine: MergeMachine) -> dict[str, Any]:
    """The state as JSON values; `restore` reads it."""
    submission, vut, views = machine.submission, machine.vut, machine.views
    shapes: dict[tuple[Any, ...], int] = {}

    def shape_at(shape: Shape) -> int:
        return shapes.setdefault(_names(machine, shape), len(shapes))

    rows = [[row.first, row.last, shape_at(row.shape)] for row in vut.rows()]
    ready = [
        [int(together), [[first, last, shape_at(shape)] for first, last, shape in spans]]
        for spans, together in submission.queued
    ]
    return {
        "format": FORMAT,
        "config": _config(machine),
        "views": list(views),
        "through": sorted(machine.through),
        "algorithm": machine.algorithm,
        "seen": machine.seen,
        "suspended": dict(machine.suspended),
        "refused": sorted(machine.refused),
        "joining": {view: list(joining) for view, joining in machine.joining.items()},
        "opened": {view: list(numbers) for view, numbers in machine.opened.items()},
        "dropped": dict(machine.dropped),
        "ahead": [
            [encode(message).decode() for message in (ahead.change, *ahead.held)]
            for ahead in machine.ahead
        ],
        "crossing": {
            view: [encode(message).decode() for message in held]
            for view, held in machine.crossing.items()
        },
        "painted": dict(zip(views, vut.painted, strict=False)),
        "passed": dict(zip(views, machine.passed, strict=True)),
        "lists": {v: [_dump(held) for held in vut.lists[x]] for x, v in enumerate(views)},
        "rows": rows,
        "ready": ready,
        "shapes": [[kind, list(names), list(idle)] for kind, names, idle in shapes],
        "covered": [submission.covered.frontier, [list(r) for r in submission.covered.ahead]],
        "rels": [[rel.last, dict(rel.positions), rel.committed_ms] for rel in submission.rels.open],
        "closed": [submission.rels.closed, dict(submission.rels.positions)],
        "released": [[first, list(names)] for first, names in submission.rels.released],
        "sequence": submission.sequence,
        "since_ms": submission.since_ms,
        "closing": {view: list(at) for view, at in submission.dropped.items()},
        "commits": submission.commits.snapshot(),
        "guard": list(submission.guard),
        "initial": submission.initial,
        "taken": dict(zip(views, submission.taken, strict=True)),
        "latest": dict(zip(views, submission.latest, strict=True)),
    }


def restore(machine: MergeMachine, saved: dict[str, Any]) -> None:
    """Replaces the machine's state.

    Raises:
        FrescoError: MERGE_SNAPSHOT when the snapshot is not of such a machine.
    """
    if saved.get("format") != FORMAT or not _fits(machine, saved):
        raise FrescoError(
            "MERGE_SNAPSHOT",
            f"the saved state is of {saved.get('config')!r}, this merge is {_config(machine)!r}",
            where=f"merge {machine.group}",
            todo="start with the view files of the saved state; `fresco view add FILE` changes a group",
        )
    _, views, algorithm, through, *_ = saved["config"]
    machine.founded = tuple(views), algorithm, tuple(through)
    load(machine, saved)


def load(machine: MergeMachine, saved: dict[str, Any]) -> list[WarehouseTransaction]:
    """Makes the table with the saved columns and fills it.

    Returns:
        what is ready and was not when the state was saved: nothing, unless columns were changed.
    """
    machine.lay_out(tuple(saved["views"]), saved["algorithm"], frozenset(saved["through"]))
    submission, vut = machine.submission, machine.vut
    machine.seen = saved["seen"]
    machine.suspended = dict(saved["suspended"])
    machine.refused = frozenset(saved.get("refused", ()))
    machine.joining = {view: Joining(*joining) for view, joining in saved["joining"].items()}
    machine.opened = {view: list(numbers) for view, numbers in saved["opened"].items()}
    machine.dropped = dict(saved["dropped"])
    machine.ahead = [_load_ahead(texts) for texts in saved["ahead"]]
    machine.crossing = {view: _messages(texts) for view, texts in saved["crossing"].items()}
    for x, view in enumerate(machine.views):
        machine.passed[x] = saved["passed"].get(view, UNPAINTED)
        vut.painted[x] = saved["painted"].get(view, UNPAINTED)
        vut.lists[x] = deque(_load(held) for held in saved["lists"].get(view, ()))
        submission.taken[x] = saved["taken"].get(view, UNPAINTED)
        submission.latest[x] = saved["latest"].get(view, 0)
    shapes = [machine.shape(tuple(v), tuple(idle), kind) for kind, v, idle in saved["shapes"]]
    submission.ready.clear()
    submission.waiting = 0
    submission.begun, submission.early = saved["covered"][0] >= 0, []
    submission.put(
        [
            WarehouseTransaction(
                tuple(Span(first, last, shapes[shape]) for first, last, shape in spans),
                bool(together),
            )
            for together, spans in saved["ready"]
        ]
    )
    _load_submission(machine, saved)
    return machine.place([Row(first, last, shapes[shape]) for first, last, shape in saved["rows"]])


def _load_submission(machine: MergeMachine, saved: dict[str, Any]) -> None:
    submission = machine.submission
    frontier, ahead = saved["covered"]
    submission.covered = Covered(frontier, [(first, last) for first, last in ahead])
    submission.rels.open = deque(OpenRel(*rel) for rel in saved["rels"])
    submission.rels.cuts = deque(rel.last for rel in submission.rels.open)
    submission.rels.closed, submission.rels.positions = saved["closed"]
    submission.rels.released = deque((first, tuple(names)) for first, names in saved["released"])
    submission.sequence = saved["sequence"]
    submission.since_ms = saved["since_ms"]
    # A state may say neither: what comes next then depends on the last batches of all columns.
    latest = sorted({*saved["latest"].values()} - {0})
    submission.guard = tuple(saved.get("guard", latest))
    submission.initial = saved.get("initial", min(latest, default=0))
    submission.dropped = {view: (number, last) for view, (number, last) in saved["closing"].items()}
    submission.commits.restore(saved["commits"])


def _config(machine: MergeMachine) -> list[Any]:
    views, algorithm, through = machine.founded
    discipline = machine.submission.commits.discipline
    return [machine.group, list(views), algorithm, list(through), machine.order, discipline]


def _fits(machine: MergeMachine, saved: dict[str, Any]) -> bool:
    """Whether the machine was made with the views that the saved one began with, or has now."""
    mine, began = _config(machine), saved["config"]
    now = [began[0], saved["views"], saved["algorithm"], saved["through"], *began[4:]]
    return mine in (began, now)


def _names(machine: MergeMachine, shape: Shape) -> tuple[Kind, tuple[str, ...], tuple[str, ...]]:
    """(kind, views, idle views) of a row."""
    idle = tuple(view for view in shape.names if machine.column[view] not in shape.busy)
    return shape.kind, shape.names, idle


def _load_ahead(texts: list[str]) -> Ahead:
    change = decode(texts[0].encode())
    assert isinstance(change, ViewChange)
    return Ahead(change, _messages(texts[1:]))


def _messages(texts: list[str]) -> list[ActionList | Suspend]:
    messages = (decode(text.encode()) for text in texts)
    return [one for one in messages if isinstance(one, ActionList | Suspend)]


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
