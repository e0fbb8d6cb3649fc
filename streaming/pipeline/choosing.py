"""Which view manager a view gets: the user's mode, the scenario of its sources, and the fence (DESIGN 5).

A view file says a mode by its family's name. Which member of the family runs follows from what the
sources are (strobe-family, figure 9.3): Strobe where each update is a transaction, T-Strobe where sources
have transactions, G-Strobe where they tag global ones. The integrator numbers global transactions as a
whole, and G-Strobe without parts is T-Strobe by number (`g_strobe`).

What cannot be is refused here, before anything starts: a level the mode does not give in the scenario, a
view that the mode cannot maintain, a source that cannot be asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from streaming.algebra.numbered import NumberedBags
from streaming.algebra.psj import source_of
from streaming.algebra.tree import Relation
from streaming.captured.captured_schema import GLOBAL_TABLE
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.merge.algorithms import Manager, Sends
from streaming.pipeline.catalog import ViewSpec
from streaming.pipeline.session_plan import refuse_uncaptured, session_sources
from streaming.viewmanagers.base import ManagedView as Maintained
from streaming.viewmanagers.levels import Level, level_of
from streaming.viewmanagers.modes import (
    MODES,
    SCENE_TEXTS,
    ModeInfo,
    Options,
    Scene,
    member,
    refuse_level,
)
from streaming.viewmanagers.over_views.over_view_modes import (
    Given,
    check_over_views,
    inherited,
    refuse_inherited,
)


@dataclass(frozen=True)
class Choice:
    """A view's manager.

    Attributes:
        mode: its name in `modes.MODES`.
        level: what was asked for.
        scene: the scenario of the view's sources.
        sources: those it asks, sorted; () where it asks none.
        bases: the base relations it uses, by way of other views too.
        parents: the views it scans, and what they give.
        below: what the weakest of the parents' managers sends.
    """

    mode: str
    level: Level
    scene: Scene
    options: Options = field(default_factory=Options)
    sources: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    parents: Mapping[str, Given] = field(default_factory=dict)
    below: Sends = "complete"

    @property
    def info(self) -> ModeInfo:
        return MODES[self.mode]

    @property
    def asks(self) -> bool:
        return self.info.asks

    @property
    def manager(self) -> Manager:
        """What the merge is told that it sends (MVC 6.3).

        A manager that asks is told of as strong even where its level is complete: after a truncate that
        an answer has seen too early it sends one list for several numbers, and whether a source may
        truncate is not known before it does. PA takes its complete lists number by number all the same.
        A view over such a view covers the same numbers as one.
        """
        own = "strong" if self.asks and self.info.sends != "convergent" else self.info.sends
        if "convergent" in (own, self.below):
            return Manager("convergent")
        if self.below == "complete":
            return Manager(own, None if self.asks else self.info.period(self.options.settings))
        return Manager("strong")

    @property
    def scenario(self) -> str:
        """In words."""
        return SCENE_TEXTS[self.scene]

    @property
    def gives(self) -> Level:
        """The fence's cell, and no more than the parents give."""
        return min(self.info.levels.get(self.scene, Level.NONE), inherited(self.parents))

    @property
    def given(self) -> Given:
        """What it gives to the views over it."""
        period = self.info.period(self.options.settings)
        return Given(self.mode, self.gives, period if self.gives == Level.COMPLETE_N else None)


def choose(
    config: Config,
    view: ViewSpec,
    relations: Mapping[str, Relation],
    chosen: Mapping[str, Choice] | None = None,
) -> Choice:
    """The manager of a view, of which everything is checked that can be known before it runs.

    Args:
        relations: the captured ones.
        chosen: the managers of the views before it, its parents among them.

    Raises:
        FrescoError: VIEW_REFRESH, VIEW_ANOMALIES, MODE_LEVEL, MODE_SCENARIO, MODE_OVER_VIEWS,
            VIEW_PARENT, VIEW_PARENT_LEVEL, VIEW_SOURCE_UNASKABLE, VIEW_SOURCE_UNCAPTURED, or what the
            manager says of the view (VIEW_NOT_PSJ, ...).
    """
    over = {name: one for name, one in (chosen or {}).items() if name in view.relations}
    bases = _bases(view, over)
    scene = scene_of(config, bases, relations)
    level = _level(view)
    parents = {name: one.given for name, one in over.items()}
    try:
        mode = member(view.mode, scene, view.every)
        check_over_views(mode, view.name, parents)
        refuse_uncaptured(config, mode, bases, [n for n, one in over.items() if one.info.sessions])
        if config.globals == "apart" and not MODES[mode].parts:
            raise FrescoError(
                "MODE_GLOBALS_APART",
                f"{mode} would show a part of a global transaction without the others: they are"
                " numbered apart",
                where=SCENE_TEXTS[scene],
                todo="use USING strobe for a view over several tagged sources, or globals: joined",
            )
        if MODES[mode].anomalous:
            _allow_anomalies(config, mode)
        else:
            refuse_level(mode, scene, level)
            refuse_inherited(level, view.every, parents)
        below = _weakest([one.manager.sends for one in over.values()])
        if not MODES[mode].asks:
            options = Options(settings=_settings(view))
            return Choice(mode, level, scene, options, (), bases, parents, below)
        if MODES[mode].sessions:
            sources = session_sources(config, view, relations)
            options = Options(settings=_settings(view))
            return Choice(mode, level, scene, options, sources, bases, parents, below)
        sources = _askable(config, view, relations)
        keys = {name: relations[name].key for name in view.relations}
        options = Options(keys, _settings(view))
        # The manager itself knows what it cannot maintain; over plain bags it costs nothing to make.
        MODES[mode].make(Maintained(view.name, "", view.tree), NumberedBags(), options)
    except FrescoError as error:
        place = f"view {view.name}" + (f", {error.where}" if error.where else "")
        raise FrescoError(error.code, error.what, where=place, todo=error.todo) from error
    return Choice(mode, level, scene, options, sources, bases, parents, below)


def _bases(view: ViewSpec, parents: Mapping[str, Choice]) -> tuple[str, ...]:
    """The base relations of a view, those of its parents among them, in order of first use."""
    found = [parents[n].bases if n in parents else (n,) for n in view.relations]
    return tuple(dict.fromkeys(name for names in found for name in names))


def _weakest(sends: Sequence[Sends]) -> Sends:
    """What the parents' lists are at least: "complete", "convergent" or else "strong"."""
    if "convergent" in sends:
        return "convergent"
    return "complete" if all(one == "complete" for one in sends) else "strong"


def scene_of(config: Config, bases: Sequence[str], relations: Mapping[str, Relation]) -> Scene:
    """The column of figure 9.3 that a view's sources stand in, by its base relations."""
    names = _sources(bases, relations)
    known = [config.sources[name] for name in names]
    single = bool(known) and all(one.transactions == "per-event" for one in known)
    if len(names) <= 1:
        return "one-single" if single else "one-local"
    if single:
        return "single"
    tagged = sum(GLOBAL_TABLE in one.tables for one in known)
    return "global" if tagged > 1 else "local"


def _sources(names: Sequence[str], relations: Mapping[str, Relation]) -> list[str]:
    return sorted({source_of(name) for name in names if name in relations})


def _level(view: ViewSpec) -> Level:
    return Level.COMPLETE_N if view.every is not None else level_of(view.level)


def _settings(view: ViewSpec) -> dict[str, int]:
    """What EVERY says, for the modes that know it.

    Raises:
        FrescoError: VIEW_REFRESH, a period of time.
    """
    settings = {} if view.every is None else {"period": view.every}
    if view.refresh is not None:
        count, unit = view.refresh.split()
        if "every" not in MODES[view.mode].settings or not unit.startswith("transaction"):
            raise FrescoError(
                "VIEW_REFRESH",
                f"mode {view.mode} has no refresh every {view.refresh}",
                todo="write USING recompute EVERY '100 transactions'",
            )
        settings["every"] = int(count)
    return settings


def _allow_anomalies(config: Config, mode: str) -> None:
    if not config.allow_anomalies:
        raise FrescoError(
            "VIEW_ANOMALIES",
            f"mode {mode} shows states that no source ever had, and is kept to show this",
            todo="use USING compensating, or set allow_anomalies: true in the configuration",
        )


def _askable(config: Config, view: ViewSpec, relations: Mapping[str, Relation]) -> tuple[str, ...]:
    """The view's sources, all of which can be asked.

    Raises:
        FrescoError: VIEW_PARENT, VIEW_SOURCE_UNASKABLE.
    """
    parents = [name for name in view.relations if name not in relations]
    if parents:
        raise FrescoError(
            "VIEW_PARENT",
            f"mode {view.mode} asks the sources, and {', '.join(parents)} is a view",
            todo="use USING replica for a view over views",
        )
    names = _sources(view.relations, relations)
    for name in names:
        source = config.sources[name]
        if source.secret() is None:
            raise FrescoError(
                "VIEW_SOURCE_UNASKABLE",
                f"mode {view.mode} asks source {name}, which has no connection",
                todo=f"give sources.{name} a connection, or use USING replica",
            )
        if source.snapshots is not None:
            raise FrescoError(
                "VIEW_SOURCE_UNASKABLE",
                f"mode {view.mode} asks source {name}, whose snapshots its tables have left behind",
                todo="use USING replica",
            )
        if source.transactions == "per-event":
            raise FrescoError(
                "VIEW_SOURCE_UNASKABLE",
                f"mode {view.mode} asks source {name}, whose events do not say up to which position"
                " they are complete",
                where=SCENE_TEXTS["one-single"],
                todo=f"set provide.transaction.metadata=true at its connector and transactions:"
                f" metadata for sources.{name}, or use USING replica",
            )
    return tuple(names)
