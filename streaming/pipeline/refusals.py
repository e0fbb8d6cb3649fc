"""Everything that is refused of a pipeline's views, with the modes that can (strobe-family, figure 9.3).

A view file asks for a level, and mostly for a mode. Whether the mode gives the level follows from the
fence, from what the view is and from what its sources can do; so which other modes would do is found by
choosing them in its place. All views are looked at before anything is said: who writes twenty view files
reads all refusals at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from streaming.algebra.tree import Relation
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.choosing import Choice, choose
from streaming.pipeline.view_specs import ViewSpec
from streaming.viewmanagers.modes import MODES, families


@dataclass(frozen=True)
class Refusal:
    """A view that cannot be maintained as its file asks.

    Attributes:
        able: the modes that give the view the level asked for, as view files name them.
    """

    view: str
    mode: str
    level: str
    error: FrescoError
    able: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        asked = {"view": self.view, "mode": self.mode, "level": self.level}
        return {**asked, **self.error.as_dict(), "able": list(self.able)}


class Refused(FrescoError):
    """Views are refused; a single one's error is the error."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        self.refusals = tuple(refusals)
        first = self.refusals[0].error
        if len(self.refusals) == 1:
            super().__init__(first.code, first.what, where=first.where, todo=first.todo)
            return
        what = "; ".join(f"{one.error.code}: {one.error.what}" for one in self.refusals)
        names = ", ".join(one.view for one in self.refusals)
        super().__init__(
            "PLAN_REFUSED",
            f"{len(self.refusals)} views cannot be maintained as their files ask: {what}",
            where=f"views {names}",
            todo="`fresco plan` lists each with the modes that can",
        )


def choose_all(
    config: Config, views: Sequence[ViewSpec], relations: Mapping[str, Relation]
) -> dict[str, Choice]:
    """The manager of each view; a view stands after those that it scans.

    Raises:
        Refused: what `choose` says, of every view; a view over a refused one is not judged.
    """
    choices: dict[str, Choice] = {}
    refusals: list[Refusal] = []
    refused = set[str]()
    for view in views:
        if refused & set(view.relations):
            refused.add(view.name)
            continue
        try:
            choices[view.name] = choose(config, view, relations, choices)
        except FrescoError as error:
            refused.add(view.name)
            able = _able(config, view, relations, choices)
            refusals.append(Refusal(view.name, view.mode, _asked(view), error, able))
    if refusals:
        raise Refused(refusals)
    return choices


def _asked(view: ViewSpec) -> str:
    return f"{view.level} every {view.every}" if view.every else str(view.level)


def _able(
    config: Config,
    view: ViewSpec,
    relations: Mapping[str, Relation],
    choices: Mapping[str, Choice],
) -> tuple[str, ...]:
    """The modes that would not be refused in place of the view's own."""
    found = []
    for mode in families():
        if mode == view.mode or MODES[mode].anomalous:
            continue
        refresh = view.refresh if "every" in MODES[mode].settings else None
        try:
            choose(config, replace(view, mode=mode, refresh=refresh), relations, choices)
        except FrescoError:
            continue
        found.append(mode)
    return tuple(found)
