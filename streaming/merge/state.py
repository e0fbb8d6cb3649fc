"""The merge machine's state as a value: rows, ready rows, lists by reference, what batches said.

Everything goes by the views' names and not by columns, so that a state can be changed into one with
other columns (`changes`), and a machine made with the views it began with or those it has now can take
it over. `to_json` and `from_json` are its form in a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from streaming.merge.batching import SubmissionState
from streaming.merge.covered import OpenRel
from streaming.merge.disciplines import CommitsState, Discipline, Ranges, Submitted
from streaming.merge.vut_rows import UNPAINTED, HeldList, Kind
from streaming.messages import ActionList, Rows, Suspend, ViewChange, decode, encode

FORMAT = 2
Algorithm = Literal["spa", "pa"]


class Founded(NamedTuple):
    """What a machine was made with."""

    group: str
    views: tuple[str, ...]
    algorithm: Algorithm
    through: tuple[str, ...]
    order: Literal["overtake", "prefix"]
    discipline: Discipline


class Ahead(NamedTuple):
    """An addition whose cut has not been seen, and what the view's manager has sent since."""

    change: ViewChange
    held: tuple[ActionList | Suspend, ...] = ()

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


class NamedShape(NamedTuple):
    """A REL set by names (`rows.Shape` by columns)."""

    kind: Kind
    views: tuple[str, ...]
    idle: tuple[str, ...]

    def without(self, view: str) -> NamedShape:
        """The same without a view."""
        views, idle = (
            tuple(name for name in names if name != view) for names in (self.views, self.idle)
        )
        return NamedShape(self.kind, views, idle)


class NamedSpan(NamedTuple):
    """The rows [first..last] of one REL set."""

    first: int
    last: int
    shape: NamedShape


class Ready(NamedTuple):
    """A warehouse transaction that waits for a batch."""

    together: bool
    spans: tuple[NamedSpan, ...]


@dataclass(frozen=True)
class ColumnState:
    """A view's column.

    Attributes:
        painted: the number down to which it is red.
        passed: the last number at which the view was idle in a REL.
        lists: those that are kept.
        taken: the last number that has been in a batch.
        latest: the sequence of the last batch that touched it.
    """

    painted: int = UNPAINTED
    passed: int = UNPAINTED
    lists: tuple[HeldList, ...] = ()
    taken: int = UNPAINTED
    latest: int = 0


@dataclass(frozen=True)
class MergeState:
    """A machine between two messages; the attributes are those of `machine.MergeMachine`."""

    founded: Founded
    views: tuple[str, ...]
    through: frozenset[str]
    algorithm: Algorithm
    seen: int
    suspended: Mapping[str, int]
    refused: frozenset[str]
    joining: Mapping[str, Joining]
    opened: Mapping[str, tuple[int, ...]]
    dropped: Mapping[str, int]
    ahead: tuple[Ahead, ...]
    crossing: Mapping[str, tuple[ActionList | Suspend, ...]]
    columns: Mapping[str, ColumnState]
    rows: tuple[NamedSpan, ...]
    ready: tuple[Ready, ...]
    submission: SubmissionState

    def follows(self, founded: Founded) -> bool:
        """Whether a machine made so can take it over: with the views it began with, or has now."""
        views, through = self.views, tuple(sorted(self.through))
        now = self.founded._replace(views=views, algorithm=self.algorithm, through=through)
        return founded in (self.founded, now)


# In snapshots --------------------------------------------------------------------------------------


def to_json(state: MergeState) -> dict[str, Any]:
    """The state as JSON values."""
    shapes: dict[NamedShape, int] = {}

    def dump_spans(spans: Iterable[NamedSpan]) -> list[list[int]]:
        return [[f, last, shapes.setdefault(shape, len(shapes))] for f, last, shape in spans]

    rows = dump_spans(state.rows)
    ready = [[int(together), dump_spans(spans)] for together, spans in state.ready]
    submission = state.submission
    return {
        "format": FORMAT,
        "config": [list(v) if isinstance(v, tuple) else v for v in state.founded],
        "views": list(state.views),
        "through": sorted(state.through),
        "algorithm": state.algorithm,
        "seen": state.seen,
        "suspended": dict(state.suspended),
        "refused": sorted(state.refused),
        "joining": {view: list(joining) for view, joining in state.joining.items()},
        "opened": {view: list(numbers) for view, numbers in state.opened.items()},
        "dropped": dict(state.dropped),
        "ahead": [_texts((ahead.change, *ahead.held)) for ahead in state.ahead],
        "crossing": {view: _texts(held) for view, held in state.crossing.items()},
        "painted": {view: column.painted for view, column in state.columns.items()},
        "passed": {view: column.passed for view, column in state.columns.items()},
        "lists": {
            view: [_dump_list(held) for held in column.lists]
            for view, column in state.columns.items()
        },
        "rows": rows,
        "ready": ready,
        "shapes": [[kind, list(views), list(idle)] for kind, views, idle in shapes],
        "covered": [submission.frontier, _lists(submission.ahead)],
        "rels": [[rel.last, dict(rel.positions), rel.committed_ms] for rel in submission.rels],
        "closed": [submission.closed, dict(submission.positions)],
        "released": [[first, list(names)] for first, names in submission.released],
        "sequence": submission.sequence,
        "since_ms": submission.since_ms,
        "closing": {view: list(at) for view, at in submission.closing.items()},
        "commits": _dump_commits(submission.commits),
        "guard": list(submission.guard),
        "initial": submission.initial,
        "taken": {view: column.taken for view, column in state.columns.items()},
        "latest": {view: column.latest for view, column in state.columns.items()},
    }


def from_json(saved: Mapping[str, Any]) -> MergeState:
    """Back from `to_json`."""
    shapes = [NamedShape(kind, tuple(views), tuple(idle)) for kind, views, idle in saved["shapes"]]

    def load_spans(spans: Sequence[Sequence[int]]) -> tuple[NamedSpan, ...]:
        return tuple(NamedSpan(first, last, shapes[at]) for first, last, at in spans)

    return MergeState(
        founded=founded_in(saved),
        views=tuple(saved["views"]),
        through=frozenset(saved["through"]),
        algorithm=saved["algorithm"],
        seen=saved["seen"],
        suspended=dict(saved["suspended"]),
        refused=frozenset(saved.get("refused", ())),
        joining={view: Joining(*joining) for view, joining in saved["joining"].items()},
        opened={view: tuple(numbers) for view, numbers in saved["opened"].items()},
        dropped=dict(saved["dropped"]),
        ahead=tuple(_load_ahead(texts) for texts in saved["ahead"]),
        crossing={view: _messages(texts) for view, texts in saved["crossing"].items()},
        columns={view: _load_column(saved, view) for view in saved["views"]},
        rows=load_spans(saved["rows"]),
        ready=tuple(Ready(bool(together), load_spans(spans)) for together, spans in saved["ready"]),
        submission=_load_submission(saved),
    )


def founded_in(saved: Mapping[str, Any]) -> Founded:
    """What the machine that saved a state was made with."""
    group, views, algorithm, through, order, discipline = saved["config"]
    return Founded(group, tuple(views), algorithm, tuple(through), order, discipline)


def _load_column(saved: Mapping[str, Any], view: str) -> ColumnState:
    return ColumnState(
        saved["painted"].get(view, UNPAINTED),
        saved["passed"].get(view, UNPAINTED),
        tuple(_load_list(held) for held in saved["lists"].get(view, ())),
        saved["taken"].get(view, UNPAINTED),
        saved["latest"].get(view, 0),
    )


def _load_submission(saved: Mapping[str, Any]) -> SubmissionState:
    frontier, ahead = saved["covered"]
    closed, positions = saved["closed"]
    # A state may say neither: what comes next then depends on the last batches of all columns.
    latest = sorted({*saved["latest"].values()} - {0})
    return SubmissionState(
        frontier=frontier,
        ahead=_ranges(ahead),
        rels=tuple(OpenRel(*rel) for rel in saved["rels"]),
        closed=closed,
        positions=positions,
        released=tuple((first, tuple(names)) for first, names in saved["released"]),
        sequence=saved["sequence"],
        since_ms=saved["since_ms"],
        closing={view: (number, last) for view, (number, last) in saved["closing"].items()},
        commits=_load_commits(saved["commits"]),
        guard=tuple(saved.get("guard", latest)),
        initial=saved.get("initial", min(latest, default=0)),
    )


def _dump_commits(commits: CommitsState) -> dict[str, Any]:
    return {
        "submitted": [
            [sequence, sorted(one.views), _lists(one.ranges)]
            for sequence, one in commits.submitted.items()
        ],
        "covered": [commits.frontier, _lists(commits.ahead)],
    }


def _load_commits(saved: Mapping[str, Any]) -> CommitsState:
    submitted = {
        sequence: Submitted(frozenset(views), _ranges(ranges))
        for sequence, views, ranges in saved["submitted"]
    }
    frontier, ahead = saved["covered"]
    return CommitsState(submitted, frontier, _ranges(ahead))


def _lists(ranges: Iterable[tuple[int, int]]) -> list[list[int]]:
    return [list(each) for each in ranges]


def _ranges(lists: Iterable[Sequence[int]]) -> Ranges:
    return tuple((first, last) for first, last in lists)


def _texts(messages: Iterable[ViewChange | ActionList | Suspend]) -> list[str]:
    return [encode(message).decode() for message in messages]


def _messages(texts: Iterable[str]) -> tuple[ActionList | Suspend, ...]:
    messages = (decode(text.encode()) for text in texts)
    return tuple(one for one in messages if isinstance(one, ActionList | Suspend))


def _load_ahead(texts: Sequence[str]) -> Ahead:
    change = decode(texts[0].encode())
    assert isinstance(change, ViewChange)
    return Ahead(change, _messages(texts[1:]))


def _dump_list(held: HeldList) -> dict[str, Any]:
    return {
        "id": held.id,
        "first": held.first,
        "last": held.last,
        "complete": held.complete,
        "delta": held.delta.model_dump(exclude_none=True) if held.delta is not None else None,
        "state": held.state,
    }


def _load_list(saved: Mapping[str, Any]) -> HeldList:
    delta = Rows(**saved["delta"]) if saved["delta"] is not None else None
    return HeldList(**{**saved, "delta": delta})
