"""Which merge a group's view managers need (MVC 6.3; DESIGN 5, Merge): that of the weakest of them.

    all complete                        SPA                 every transaction is a state
    all complete-N with one N           SPA over blocks     every Nth is
    any strong, weak or periodic one,   PA                  states are consistent and in order
    or different N's, or a mixture
    a convergent one beside others      PA, it passed       the others as above; it is right in the end
                                        through

PA takes a complete manager's list [a..b] as one list per number, a complete-N manager's as one for its
block. A convergent view by itself needs nothing passed: the only column of its row waits for nothing.
It gets such a group unless told otherwise (`pipeline.merge_groups.groups_apart`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from streaming.errors import FrescoError
from streaming.merge.batching import GREEDY, Batching
from streaming.merge.by_blocks import BlockMerge
from streaming.merge.disciplines import Discipline
from streaming.merge.machine import MergeMachine
from streaming.merge.state import founded_in

Sends = Literal["complete", "complete-N", "strong", "convergent"]


@dataclass(frozen=True)
class Manager:
    """What a view manager sends.

    Attributes:
        sends: the level of its lists; a weak or a periodic one counts as strong, one that promises
            nothing as convergent.
        every: N of a complete-N manager.
    """

    sends: Sends = "complete"
    every: int | None = None


@dataclass(frozen=True)
class Algorithm:
    """A group's merge.

    Attributes:
        name: "spa" or "pa".
        every: SPA over blocks of so many numbers; None when a row is one number.
        through: the views that are passed through, sorted.
    """

    name: Literal["spa", "pa"]
    every: int | None = None
    through: tuple[str, ...] = ()


def algorithm_for(managers: Mapping[str, Manager]) -> Algorithm:
    """The merge for the view managers of a group, by view.

    Raises:
        FrescoError: MERGE_ALGORITHM, a complete-N manager without N.
    """
    for view, manager in managers.items():
        if manager.sends == "complete-N" and (manager.every is None or manager.every < 1):
            raise FrescoError(
                "MERGE_ALGORITHM",
                f"a complete-N manager needs N of 1 or more, not {manager.every}",
                where=view,
                todo="write COMPLETE EVERY 100",
            )
    kinds = {manager.sends for manager in managers.values()}
    if kinds <= {"complete"}:
        return Algorithm("spa")
    blocks = {manager.every for manager in managers.values()}
    if kinds == {"complete-N"} and len(blocks) == 1:
        return Algorithm("spa", every=blocks.pop())
    convergent = {view for view, manager in managers.items() if manager.sends == "convergent"}
    return Algorithm("pa", through=tuple(sorted(convergent)) if len(managers) > 1 else ())


def merge_of(
    group: str,
    managers: Mapping[str, Manager],
    batching: Batching = GREEDY,
    order: Literal["overtake", "prefix"] = "overtake",
    discipline: Discipline = "declared",
) -> MergeMachine | BlockMerge:
    """The merge machine of a group.

    Raises:
        FrescoError: MERGE_ALGORITHM.
    """
    found, views = algorithm_for(managers), tuple(managers)
    if found.every is not None:
        return BlockMerge(group, views, found.every, batching, order, discipline)
    return MergeMachine(group, views, found.name, batching, order, found.through, discipline)


def founded_like(
    machine: MergeMachine | BlockMerge, saved: Mapping[str, Any]
) -> MergeMachine | BlockMerge:
    """An empty machine that was made as the one that saved a state was, batching as `machine` does.

    Which views a group has now is in the state; a machine that is made for them would not know that it
    began with others.
    """
    if isinstance(machine, BlockMerge):
        group, views, _, _, order, discipline = founded_in(saved["inner"])
        batching = machine.inner.submission.batching
        return BlockMerge(group, views, saved["every"], batching, order, discipline)
    group, views, algorithm, through, order, discipline = founded_in(saved)
    batching = machine.submission.batching
    return MergeMachine(group, views, algorithm, batching, order, through, discipline)
