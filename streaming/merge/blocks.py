"""Numbers by blocks of N: block 0 is number 0, block k is (k - 1) N + 1 to k N (MVC 6.3, `by_blocks`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streaming.merge.batching import BatchedTransaction, ListPart
from streaming.messages import Rel, RelRun

Cover = tuple[int, int]
"""First and last number."""


@dataclass(frozen=True)
class Facts:
    """What the REL messages that end inside the open block have said."""

    runs: tuple[RelRun, ...] = ()
    positions: dict[str, str] = field(default_factory=dict)
    committed_ms: int | None = None
    released: tuple[str, ...] = ()

    def and_of(self, rel: Rel) -> Facts:
        """The facts of these messages and one more."""
        times = [ms for ms in (self.committed_ms, rel.committed_ms) if ms is not None]
        return Facts(
            (*self.runs, *rel.runs),
            self.positions | rel.positions,
            max(times, default=None),
            self.released + rel.released,
        )

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        runs = [run.model_dump(mode="json") for run in self.runs]
        return {
            "runs": runs,
            "positions": dict(self.positions),
            "committed_ms": self.committed_ms,
            "released": list(self.released),
        }

    @staticmethod
    def from_json(saved: Mapping[str, Any]) -> Facts:
        """Back from `as_json`."""
        runs = tuple(RelRun.model_validate(run) for run in saved["runs"])
        released = tuple(saved["released"])
        return Facts(runs, dict(saved["positions"]), saved["committed_ms"], released)


@dataclass(frozen=True)
class Blocks:
    """Blocks of `every` numbers; -1, before number 0, stays -1."""

    every: int

    def block_of(self, number: int) -> int:
        """The block that holds a number."""
        return -(-number // self.every) if number > 0 else number

    def first_of(self, block: int) -> int:
        """Its first number."""
        return (block - 1) * self.every + 1 if block > 0 else block

    def last_of(self, block: int) -> int:
        """Its last number."""
        return block * self.every if block > 0 else block

    def cut(self, runs: Iterable[RelRun]) -> tuple[dict[int, list[RelRun]], list[RelRun]]:
        """The runs of each block that is whole, and those of the last one if it is not."""
        blocks: dict[int, list[RelRun]] = {}
        number = -1
        for run in runs:
            number = run.last
            for k in range(self.block_of(run.first), self.block_of(run.last) + 1):
                first, last = max(run.first, self.first_of(k)), min(run.last, self.last_of(k))
                piece = run.model_copy(update={"first": first, "last": last})
                blocks.setdefault(k, []).append(piece)
        ends = number == self.last_of(self.block_of(number))
        rest = [] if ends else blocks.pop(self.block_of(number))
        return blocks, rest

    def by_number(self, batch: BatchedTransaction) -> BatchedTransaction:
        """A batch of blocks as one of numbers."""
        names, parts = {}, []
        for part in batch.parts:
            first, last = self.first_of(part.first), self.last_of(part.last)
            names[part.list_id] = f"{part.view}[{first}..{last}]"
            parts.append(ListPart(part.view, names[part.list_id], first, last))
        return replace(
            batch,
            ranges=self._ranges(batch.ranges),
            parts=tuple(parts),
            deltas=tuple((names[list_id], rows) for list_id, rows in batch.deltas),
            frontier=self.last_of(batch.frontier),
            ahead=self._ranges(batch.ahead),
            suspended=self._at_ends(batch.suspended),
            added=self._at_ends(batch.added),
            dropped=self._at_ends(batch.dropped),
        )

    def _ranges(self, ranges: Sequence[Cover]) -> tuple[Cover, ...]:
        return tuple((self.first_of(first), self.last_of(last)) for first, last in ranges)

    def _at_ends(self, views: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        return tuple((view, self.last_of(block)) for view, block in views)


def work_of(runs: Iterable[RelRun]) -> dict[str, Cover]:
    """Per view the first and the last number at which the runs ask it for work."""
    work: dict[str, Cover] = {}
    for run in runs:
        for view in set(run.views).difference(run.idle):
            work[view] = (work.get(view, (run.first, 0))[0], run.last)
    return work


def rel_of(
    group: str,
    blocks: Mapping[int, Sequence[RelRun]],
    work: Mapping[int, Mapping[str, Cover]],
    said: Facts,
) -> Rel:
    """REL of whole blocks, as their numbers have it together."""
    runs = []
    for k, inside in blocks.items():
        views = sorted({view for run in inside for view in run.views})
        idle = [view for view in views if view not in work[k]]
        guarded = any(run.guarded for run in inside)
        run = RelRun(first=k, last=k, views=tuple(views), idle=tuple(idle), guarded=guarded)
        runs.append(run)
    return Rel(
        group=group,
        first=min(blocks),
        last=max(blocks),
        runs=tuple(runs),
        positions=said.positions,
        committed_ms=said.committed_ms,
        released=said.released,
    )


def within(inner: Cover, outer: Cover) -> bool:
    """Whether the first range lies in the second."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def lacks(view: str, cover: Cover, wanted: Cover) -> str:
    """The rule that a list breaks which does not cover its block's work."""
    return f"{view}[{cover[0]}..{cover[1]}] lacks numbers of its block: {wanted[0]}..{wanted[1]}"
