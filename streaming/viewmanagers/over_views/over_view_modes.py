"""Which modes can maintain views over views, and why the others cannot (DESIGN 5; ryco-pyco 3.3).

A mediator hands a manager its parents' deltas under numbers, any rows under any of them, and where the
manager asks, answers for the parents itself. `replica` keeps what it needs of a parent as it does of a
relation. `sweep`, `compensating` and `recompute` ask one state of every place and take a number's rows
together, so a parent may stand at a place. The other modes rest on something that a parent has not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streaming.errors import FrescoError
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.modes import MODES


@dataclass(frozen=True)
class Given:
    """What a parent gives to the views over it.

    Attributes:
        mode: its own, for the reason.
        level: none of them gives more: a child is a function of its parents' states.
        every: N, where the level is complete-N.
    """

    mode: str
    level: Level
    every: int | None = None


def inherited(parents: Mapping[str, Given]) -> Level:
    """The best level of a view over these parents; complete where there are none."""
    return min([Level.COMPLETE, *(one.level for one in parents.values())])


def refuse_inherited(asked: Level, every: int | None, parents: Mapping[str, Given]) -> None:
    """Raise where a view asks for a level that one of its parents does not give.

    Args:
        every: the N that the view asks for; its parents' must divide it, or it is at none of their
            states when it should be.

    Raises:
        FrescoError: VIEW_PARENT_LEVEL, with the parent and what to do.
    """
    for name, one in parents.items():
        meets = every is None or one.every is None or every % one.every == 0
        if asked <= one.level and meets:
            continue
        of = f" every {one.every}" if one.every is not None else ""
        best = one.level if meets else Level.STRONG
        raise FrescoError(
            "VIEW_PARENT_LEVEL",
            f"it asks for {asked.text} consistency, and its parent {name} ({one.mode}) gives"
            f" {one.level.text}{of}",
            todo=f"ask for {best.text.upper()} CONSISTENCY, or give {name} another mode,"
            " as USING replica",
        )


def check_over_views(mode: str, view: str, parents: Collection[str]) -> None:
    """Raise where a mode cannot maintain a view that scans other views.

    Raises:
        FrescoError: MODE_OVER_VIEWS, with the reason and the modes that can.
    """
    reason = MODES[mode].over_views
    if not parents or not reason:
        return
    able = dict.fromkeys(info.family or name for name, info in MODES.items() if not info.over_views)
    raise FrescoError(
        "MODE_OVER_VIEWS",
        f"{mode} cannot maintain a view over views ({', '.join(parents)}): {reason}",
        where=view,
        todo=f"use {' or '.join(able)}",
    )
