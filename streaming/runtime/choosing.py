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
from streaming.catalog import ViewSpec
from streaming.config import Config
from streaming.errors import FrescoError
from streaming.merge.algorithms import Manager
from streaming.sources.schema import GLOBAL_TABLE
from streaming.viewmanagers.base import ViewSpec as Maintained
from streaming.viewmanagers.levels import Level, level_of
from streaming.viewmanagers.modes import MODES, SCENE_TEXTS, ModeInfo, Options, Scene, refuse_level

UNBUILT = ("isolated",)
"""Modes that the machines have and the service has not."""


@dataclass(frozen=True)
class Choice:
    """A view's manager.

    Attributes:
        mode: its name in `modes.MODES`.
        level: what was asked for.
        scene: the scenario of the view's sources.
        sources: those it asks, sorted; () where it asks none.
    """

    mode: str
    level: Level
    scene: Scene
    options: Options = field(default_factory=Options)
    sources: tuple[str, ...] = ()

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
        """
        if not self.asks:
            return Manager(self.info.sends, self.info.period(self.options.settings))
        return Manager("convergent" if self.info.sends == "convergent" else "strong")

    @property
    def scenario(self) -> str:
        """In words."""
        return SCENE_TEXTS[self.scene]

    @property
    def gives(self) -> Level:
        """The fence's cell."""
        return self.info.levels.get(self.scene, Level.NONE)


def choose(config: Config, view: ViewSpec, relations: Mapping[str, Relation]) -> Choice:
    """The manager of a view, of which everything is checked that can be known before it runs.

    Raises:
        FrescoError: VIEW_MODE_UNSUPPORTED, VIEW_REFRESH, VIEW_ANOMALIES, MODE_LEVEL, MODE_SCENARIO,
            VIEW_PARENT, VIEW_SOURCE_UNASKABLE, or what the manager says of the view (VIEW_NOT_PSJ, ...).
    """
    scene = scene_of(config, view, relations)
    level = _level(view)
    try:
        if view.mode in UNBUILT:
            raise FrescoError(
                "VIEW_MODE_UNSUPPORTED",
                f"mode '{view.mode}' is not built yet",
                todo="use USING replica or USING compensating, which give COMPLETE consistency",
            )
        mode = registered(view.mode, scene, view.every)
        if mode == "naive":
            _allow_naive(config)
        else:
            refuse_level(mode, scene, level)
        if not MODES[mode].asks:
            return Choice(mode, level, scene, Options(settings=_settings(view)))
        sources = _askable(config, view, relations)
        keys = {name: relations[name].key for name in view.relations}
        options = Options(keys, _settings(view))
        # The manager itself knows what it cannot maintain; over plain bags it costs nothing to make.
        MODES[mode].make(Maintained(view.name, "", view.tree), NumberedBags(), options)
    except FrescoError as error:
        place = f"view {view.name}" + (f", {error.where}" if error.where else "")
        raise FrescoError(error.code, error.what, where=place, todo=error.todo) from error
    return Choice(mode, level, scene, options, sources)


def registered(name: str, scene: Scene, every: int | None) -> str:
    """The member of the family that a view file names."""
    single = scene in ("single", "one-single")
    match name:
        case "strobe" if not single:
            return "g_strobe" if scene == "global" else "t_strobe"
        case "c_strobe":
            return ("c_strobe" if single else "c_tstrobe") + ("_k" if every and every > 1 else "")
        case _:
            return name


def scene_of(config: Config, view: ViewSpec, relations: Mapping[str, Relation]) -> Scene:
    """The column of figure 9.3 that a view's sources stand in."""
    names = _sources(view.relations, relations)
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
        if view.mode != "recompute" or not unit.startswith("transaction"):
            raise FrescoError(
                "VIEW_REFRESH",
                f"mode {view.mode} has no refresh every {view.refresh}",
                todo="write USING recompute EVERY '100 transactions'",
            )
        settings["every"] = int(count)
    return settings


def _allow_naive(config: Config) -> None:
    if not config.allow_anomalies:
        raise FrescoError(
            "VIEW_ANOMALIES",
            "mode naive shows states that no source ever had, and is kept to show this",
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
