"""Submitting warehouse transactions in batches (MVC 4.3): ready rows become one BWT.

A BWT names, for each list it applies from, the numbers to apply: rows of one column leave the table
in order, so what a batch takes of a view is one interval of numbers, however many rows it covers.
Two BWTs depend on each other when they share a view or guarded rows; `disciplines` says who keeps to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streaming.errors import FrescoError
from streaming.merge.covered import Covered, OpenRel, RelLog, merged
from streaming.merge.disciplines import (
    Commits,
    CommitsState,
    Discipline,
    Ranges,
    is_initial,
    parted,
)
from streaming.merge.vut import VUT
from streaming.merge.vut_rows import (
    GUARD,
    UNPAINTED,
    HeldList,
    RelShape,
    Span,
    WarehouseTransaction,
    touched_columns,
)
from streaming.messages import Rows


@dataclass(frozen=True)
class Batching:
    """When a batch is due and how much goes into it.

    Attributes:
        rows: at most so many transactions in a batch (rows that go together are never split); None
            for all that are ready.
        age_ms: a smaller batch waits so long for more.
    """

    rows: int | None = None
    age_ms: int = 0


GREEDY = Batching()
"""All ready rows in one BWT."""
NONE = Batching(rows=1)
"""Each warehouse transaction by itself."""


def bound(rows: int, age_ms: int) -> Batching:
    """Batches of `rows` transactions, smaller ones only after `age_ms`.

    Raises:
        FrescoError: MERGE_BATCHING when a bound is not positive.
    """
    if rows < 1 or age_ms < 0:
        raise FrescoError(
            "MERGE_BATCHING",
            f"a batch of at most {rows} rows and {age_ms} ms can never be made",
            where="batching",
            todo="give rows of 1 or more and an age of 0 or more",
        )
    return Batching(rows, age_ms)


@dataclass(frozen=True)
class ListPart:
    """Apply to `view` the rows of list `list_id` whose number lies in [first..last]."""

    view: str
    list_id: str
    first: int
    last: int


@dataclass(frozen=True)
class BatchedTransaction:
    """BWT: what one warehouse commit applies.

    Attributes:
        sequence: from 1, without gaps, per group.
        ranges: the numbers that become visible with this commit; disjoint, ascending.
        parts: ordered by number, then view; empty when only the frontier moves.
        deltas: the rows of each list that `parts` names, by list id.
        frontier: every number up to it is reflected after this commit and those before it; -1
            before number 0 is. Views that are passed through go by their parts alone.
        ahead: ranges above the frontier that are reflected too (rows that overtook).
        depends_on: sequences of the latest earlier BWTs with which it shares a view, or guarded rows.
        suspended: (view, its last good number) for views that have left the group.
        positions: source positions after the last REL message at or below the frontier.
        committed_ms: newest source commit among the REL messages this commit completes; None
            when it completes none.
        released: global transactions released as local whose level shows from here on.
        added: (view, number) for views that join: their column opens with this commit, and the
            view's list of that number is its whole content.
        dropped: (view, number) for views whose column closes with this commit.
    """

    sequence: int
    ranges: tuple[tuple[int, int], ...]
    parts: tuple[ListPart, ...]
    deltas: tuple[tuple[str, Rows], ...]
    frontier: int
    ahead: tuple[tuple[int, int], ...]
    depends_on: tuple[int, ...]
    suspended: tuple[tuple[str, int], ...]
    positions: dict[str, str]
    committed_ms: int | None
    released: tuple[str, ...]
    added: tuple[tuple[str, int], ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()

    def delta(self, list_id: str) -> Rows:
        """The rows of a list that a part names."""
        return dict(self.deltas)[list_id]


@dataclass(frozen=True)
class SubmissionState:
    """`Submission` as a value, its columns and what is ready aside.

    Attributes:
        frontier, ahead: the numbers that are in a batch (`covered.Covered`).
        rels: REL messages that are not wholly below the frontier.
        closed: the cut of the last one below it.
        positions: the sources' after that one.
        closing: view whose column closes with the next batch -> (number, its last batch).
    """

    frontier: int
    ahead: Ranges
    rels: tuple[OpenRel, ...]
    closed: int
    positions: Mapping[str, str]
    released: tuple[tuple[int, tuple[str, ...]], ...]
    sequence: int
    since_ms: int | None
    closing: Mapping[str, tuple[int, int]]
    commits: CommitsState
    guard: tuple[int, ...]
    initial: int


class Submission:
    """The queue of ready warehouse transactions and what has been taken from it."""

    def __init__(
        self,
        group: str,
        views: tuple[str, ...],
        batching: Batching,
        discipline: Discipline = "declared",
    ) -> None:
        self.batching = batching
        self.ready: deque[WarehouseTransaction] = deque()
        self.waiting = 0
        """Rows in `ready`, counted by transaction."""
        self.begun = False
        """Number 0 is ready or in a batch."""
        self.early: list[WarehouseTransaction] = []
        """Rows that show nothing, before that: a state without the initial one is none."""
        self.since_ms: int | None = None
        self.covered = Covered()
        self.rels = RelLog()
        self.sequence = 0
        self.commits = Commits(group, discipline)
        self.dropped: dict[str, tuple[int, int]] = {}
        """Views whose column closes with the next batch: at which number, their last batch."""
        self.initial = 0
        """The sequence of the batch with number 0; everything later depends on it."""
        self.guard: tuple[int, ...] = ()
        """The sequences of the last batches that guarded rows come after."""
        self.columns(views)

    def columns(self, views: tuple[str, ...]) -> None:
        """Starts with these columns, of which nothing has been in a batch."""
        self.views = views
        self.taken = [UNPAINTED] * len(views)
        """Per column the last number that has been in a batch."""
        self.latest = [0] * len(views)
        """Per column the sequence of the last batch that touched it."""

    def put(self, ready: Sequence[WarehouseTransaction]) -> None:
        """Queues them in the order given, cut where batches may begin."""
        whole = self.batching.rows is None and self.commits.discipline != "dependent"
        for transaction in ready:
            pieces = [transaction]
            if not (transaction.together or whole):
                pieces = [WarehouseTransaction((span,), False) for span in transaction.spans]
            for piece in pieces:
                if not self.begun and is_initial(piece):
                    self.begun = True
                    self.ready.extend(_with_early(piece, self.early))
                    self.early = []
                elif self.begun or not piece.spans[0].shape.counts:
                    self.ready.append(piece)
                else:
                    self.early.append(piece)
            self.waiting += _size(transaction.spans)

    def state(self) -> SubmissionState:
        """What must be remembered beside `taken`, `latest` and `queued`."""
        rels = self.rels
        return SubmissionState(
            frontier=self.covered.frontier,
            ahead=tuple(self.covered.ahead),
            rels=tuple(rels.open),
            closed=rels.closed,
            positions=dict(rels.positions),
            released=tuple(rels.released),
            sequence=self.sequence,
            since_ms=self.since_ms,
            closing=dict(self.dropped),
            commits=self.commits.state(),
            guard=self.guard,
            initial=self.initial,
        )

    def load(
        self,
        state: SubmissionState,
        taken: Iterable[int],
        latest: Iterable[int],
        queued: Sequence[WarehouseTransaction],
    ) -> None:
        """Takes over what was remembered; the columns are those of `columns`."""
        self.taken, self.latest = list(taken), list(latest)
        self.covered = Covered(state.frontier, state.ahead)
        self.rels = RelLog(state.rels, state.closed, state.positions, state.released)
        self.sequence, self.since_ms = state.sequence, state.since_ms
        self.guard, self.initial = state.guard, state.initial
        self.dropped = dict(state.closing)
        self.commits.load(state.commits)
        self.ready.clear()
        self.waiting = 0
        self.begun, self.early = state.frontier >= 0, []
        self.put(queued)

    @property
    def queued(self) -> list[WarehouseTransaction]:
        """What waits for a batch, in order."""
        return [*self.ready, *self.early]

    def due(self, now_ms: int) -> bool:
        """Whether a batch should be taken; remembers since when something waits."""
        if self.commits.holds_all or not (self.ready or self.dropped):
            return False
        rows, age_ms = self.batching.rows, self.batching.age_ms
        if not age_ms or self.dropped or (rows is not None and self.waiting >= rows):
            return True
        if self.since_ms is None:
            self.since_ms = now_ms
        return now_ms - self.since_ms >= age_ms

    def take(self, vut: VUT, suspended: tuple[tuple[str, int], ...]) -> BatchedTransaction | None:
        """The next batch, None when what is ready depends on what has not committed.

        The lists of which nothing is left are dropped.
        """
        busy = self.commits.busy if self.dropped else frozenset()
        dropped = {view: at for view, at in sorted(self.dropped.items()) if view not in busy}
        spans: list[Span] = []
        if len(dropped) == len(self.dropped):  # nothing goes ahead of a column that is to close
            spans = self._take_free() if self.commits.submitted else self._take_spans()
        if not spans and not dropped:
            return None
        reached = {shape: last for _, last, shape in spans}  # rows of one shape leave in order
        ranges = tuple(merged([(first, last) for first, last, shape in spans if shape.counts]))
        joined = [span for span in spans if span.shape.joins]
        added = tuple(sorted((self.views[shape.views[0]], n) for n, _, shape in joined))
        parts, deltas = self._parts(vut, reached)
        self.sequence += 1
        self.since_ms = None
        depends_on = self._depend(self._touched(reached, dropped), dropped, joins=bool(added))
        if ranges and ranges[0][0] == 0:
            self.initial = self.sequence
        self.commits.submit(self.sequence, self._touched(reached, dropped), ranges)
        for first, last in ranges:
            self.covered.add(first, last)
        released = self.rels.take_released(ranges[-1][1]) if ranges else ()
        committed_ms = self.rels.close(self.covered.frontier)
        return BatchedTransaction(
            sequence=self.sequence,
            ranges=ranges,
            parts=parts,
            deltas=deltas,
            frontier=self.covered.frontier,
            ahead=tuple(self.covered.ahead),
            depends_on=depends_on,
            suspended=suspended,
            positions=self.rels.positions,
            committed_ms=committed_ms,
            released=released,
            added=added,
            dropped=tuple((view, number) for view, (number, _) in dropped.items()),
        )

    def _touched(self, reached: Iterable[RelShape], dropped: Iterable[str]) -> set[str]:
        """The columns that a batch touches, by names.

        One in which a view leaves touches all: what comes later may be in order with rows that only that
        view would have shown, and REL need not say so any more.
        """
        names = (*self.views, GUARD)
        if dropped:
            return {*names, *dropped}
        return {names[x] for x in touched_columns(reached)}

    def _depend(
        self, touched: set[str], dropped: dict[str, tuple[int, int]], joins: bool
    ) -> tuple[int, ...]:
        """The latest earlier batches that this one depends on; it is the latest now."""
        depends_on = {last for _, last in dropped.values()}
        for x, view in enumerate(self.views):
            if joins or view in touched:
                depends_on.add(self.latest[x])
            if view in touched:
                self.latest[x] = self.sequence
        if joins or GUARD in touched:
            depends_on.update(self.guard)
        if GUARD in touched:
            self.guard = (self.sequence,)
        for view in dropped:
            del self.dropped[view]
        if max(depends_on, default=0) < self.initial:
            depends_on.add(self.initial)
        return tuple(sorted(depends_on - {0}))

    def _take_free(self) -> list[Span]:
        free, kept = parted(self.ready, self.views, self.commits)
        self.ready = free
        spans = self._take_spans()
        self.ready.extend(kept)
        self.waiting = sum(_size(transaction.spans) for transaction in self.ready)
        return spans

    def _take_spans(self) -> list[Span]:
        if self.batching.rows is None:
            spans = [span for transaction in self.ready for span in transaction.spans]
            self.ready.clear()
            self.waiting = 0
            return spans
        left, spans = self.batching.rows, []
        while self.ready and left > 0:
            transaction = self.ready.popleft()
            taken = transaction.spans
            size = _size(taken)
            if size > left and not transaction.together:
                ((first, last, shape),) = taken
                rest = WarehouseTransaction((Span(first + left, last, shape),), False)
                self.ready.appendleft(rest)
                taken, size = (Span(first, first + left - 1, shape),), left
            elif size > left and spans:
                self.ready.appendleft(transaction)
                break
            spans.extend(taken)
            self.waiting -= size
            left -= size
        return spans

    def _parts(
        self, vut: VUT, reached: dict[RelShape, int]
    ) -> tuple[tuple[ListPart, ...], tuple[tuple[str, Rows], ...]]:
        """Per column one interval of numbers, cut where its lists end."""
        limits: dict[int, int] = {}
        for shape, last in reached.items():
            for x in shape.busy:
                if limits.get(x, UNPAINTED) < last:
                    limits[x] = last
        parts: list[ListPart] = []
        deltas: dict[str, Rows] = {}
        for x, limit in limits.items():
            lists = vut.lists[x]
            for held in lists:
                if held.first > limit:
                    break
                if held.delta is not None and held.delta.rows:
                    parts.append(self._part(x, held, limit))
                    deltas[held.id] = held.delta
            self.taken[x] = limit
            vut.forget_lists(x, limit)
        parts.sort(key=lambda part: (part.last, part.view))
        return tuple(parts), tuple(sorted(deltas.items()))

    def _part(self, x: int, held: HeldList, limit: int) -> ListPart:
        if not held.complete or held.state is None:
            return ListPart(self.views[x], held.id, held.first, held.last)
        first = max(held.first, self.taken[x] + 1)
        last = held.last if held.state <= limit else limit
        return ListPart(self.views[x], held.id, first, last)


def _size(spans: Sequence[Span]) -> int:
    return sum([last - first + 1 for first, last, _ in spans])


def _with_early(
    initial: WarehouseTransaction, early: list[WarehouseTransaction]
) -> list[WarehouseTransaction]:
    """Number 0 and the rows that waited for it, in the order in which they may be submitted.

    Where number 0 goes together with later ones, rows between them may come before those: they go along.
    """
    last = initial.spans[-1].last
    along = [one for one in early if one.spans[0].first < last]
    if along:
        spans = sorted((s for one in (initial, *along) for s in one.spans), key=lambda s: s.first)
        initial = WarehouseTransaction(tuple(spans), True)
    return [initial, *(one for one in early if one not in along)]
