"""All view manager modes, and the fence: which level each gives in which scenario.

The fence is strobe-family's figure 9.3, as data, with the modes of the other papers added. It says what
is true and tight: the simulator finds no history below the level stated, and one below the next.
"single", "local" and "global" are the figure's scenarios over several sources, "one-single" and
"one-local" the same over one source, its single source column. A level in the figure holds for less
demanding scenarios too.

Where sources truncate relations, modes that ask give strong at best: an answer that has seen a truncate
too early leaves no rows to compensate with, so one list brings the view to the truncate.

What a mode is given differs: the published algorithms are told what their papers say they are told.
Strobe and C-Strobe get each update by itself, T-Strobe and C-TStrobe each source's transactions, G-Strobe
and the modes made here global transactions too. This is `numbering`, how the integrator numbers for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from streaming.algebra.operators import Operators, Positions
from streaming.errors import FrescoError
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.mirror import Mirror

Scene = Literal["one-single", "one-local", "single", "local", "global"]
"""A column of the fence."""
SCENES: tuple[Scene, ...] = ("one-single", "one-local", "single", "local", "global")
SINGLE: tuple[Scene, ...] = ("one-single", "single")
"""Each update is a transaction of its own."""
SEVERAL: tuple[Scene, ...] = ("one-local", "local", "global")
"""A transaction may have several updates."""
Numbering = Literal["event", "local", "joined", "apart"]
"""What gets a number: each row change (`transactions: per-event`); each local transaction, parts of
global ones unknown; a global transaction as a whole; its parts, each tagged with it."""


@dataclass(frozen=True)
class Options:
    """What managers may be given beside their view.

    Attributes:
        keys: the primary key's positions in each relation, () where there is none.
        settings: numbers by name, of those that the mode's `settings` list.
    """

    keys: Mapping[str, Positions] = field(default_factory=dict)
    settings: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ModeInfo:
    """A mode.

    Attributes:
        manager: module and class, the module in this package or named whole; it is imported when first
            needed.
        asks: it asks the sources.
        exact: it compensates for any source state, so its answers need not be in order (DESIGN 7).
        sessions: it reads delta tables in sessions and numbers these itself; its group has no integrator.
        keyed: the view must have keys of all its relations, each row one derivation.
        numbering: see above.
        sends: the level of its lists, for the choice of the merge; what promises nothing of a number
            sends convergent ones.
        levels: the fence's row; a scene that lacks is refused when the view is made.
        reason: why it gives no more, where it gives less than complete.
        settings: what `Options.settings` may set, with its value where it does not: `period` is N of
            COMPLETE EVERY N, `every` the refresh of USING ... EVERY.
        family: its name in view files, where that is not its own.
        scenes: those in which it stands for its family.
        over_views: why it cannot maintain views over views; "" where it can (`over_views`).
        paced: its answers should be of the state that its lists have reached.
        by_blocks: it sends a list for each block of N numbers where all of its group do.
        parts: it takes parts of global transactions that are numbered apart.
        anomalous: it shows states that no source had, and is refused unless anomalies are allowed.
    """

    manager: str
    asks: bool
    numbering: Numbering
    sends: Literal["complete", "complete-N", "strong", "convergent"]
    levels: Mapping[Scene, Level]
    reason: str = ""
    exact: bool = False
    keyed: bool = False
    sessions: bool = False
    settings: Mapping[str, int] = field(default_factory=dict)
    family: str = ""
    scenes: tuple[Scene, ...] = SCENES
    over_views: str = ""
    paced: bool = True
    by_blocks: bool = False
    parts: bool = False
    anomalous: bool = False

    def period(self, settings: Mapping[str, int]) -> int | None:
        """N of a complete-N mode."""
        usual = self.settings.get("period")
        return usual and settings.get("period", usual)

    def make(
        self,
        spec: ManagedView,
        operators: Operators[Any],
        options: Options,
        mirror: Mirror[Any] | None = None,
    ) -> Any:
        """The manager of a view.

        Args:
            mirror: where it keeps the view's rows; None lets it choose.

        Raises:
            FrescoError: the mode cannot maintain such a view.
        """
        module, _, name = self.manager.partition(":")
        made = getattr(import_module(module), name)
        arguments: dict[str, Any] = {**self.settings}
        arguments |= {k: v for k, v in options.settings.items() if k in self.settings}
        if self.keyed:
            arguments["keys"] = options.keys
        if mirror is not None:
            arguments["mirror"] = mirror
        return made(spec, operators, **arguments)


def _row(*levels: Level | None) -> dict[Scene, Level]:
    """A row of the fence, its cells in the order of `SCENES`."""
    return {s: level for s, level in zip(SCENES, levels, strict=True) if level is not None}


_BY_KEYS = (
    "its queries go by keys and single updates of base relations, which a parent's list has not"
)
ASKING = "streaming.viewmanagers.asking"
"""Where the managers are that ask sources."""
WINDOW = 1000
"""Numbers that are asked about together; 1 makes the algorithms ask one after the other, as published."""
_NONE, _CONVERGENT, _WEAK = Level.NONE, Level.CONVERGENT, Level.WEAK
_STRONG, _COMPLETE_N, _COMPLETE = Level.STRONG, Level.COMPLETE_N, Level.COMPLETE


MODES: dict[str, ModeInfo] = {
    "replica": ModeInfo(
        manager="streaming.viewmanagers.replica:ReplicaManager",
        asks=False,
        by_blocks=True,
        numbering="joined",
        sends="complete",
        levels=_row(_COMPLETE, _COMPLETE, _COMPLETE, _COMPLETE, _COMPLETE),
    ),
    "compensating": ModeInfo(
        manager=f"{ASKING}.compensating:CompensatingManager",
        asks=True,
        exact=True,
        numbering="joined",
        sends="complete",
        levels=_row(_COMPLETE, _COMPLETE, _COMPLETE, _COMPLETE, _COMPLETE),
    ),
    "sweep": ModeInfo(
        manager=f"{ASKING}.sweep:SweepManager",
        asks=True,
        numbering="joined",
        sends="complete",
        levels=_row(_COMPLETE, _COMPLETE, _COMPLETE, _COMPLETE, _COMPLETE),
        settings={"window": WINDOW},
    ),
    "recompute": ModeInfo(
        manager=f"{ASKING}.recompute:RecomputeManager",
        asks=True,
        paced=False,
        exact=True,
        numbering="joined",
        sends="strong",
        levels=_row(_STRONG, _STRONG, _STRONG, _STRONG, _STRONG),
        reason="it looks at the sources at its refresh points only",
        settings={"every": 1},
    ),
    "eca": ModeInfo(
        manager=f"{ASKING}.eca:EcaManager",
        asks=True,
        over_views="all it reads must come from one source",
        numbering="joined",
        sends="strong",
        levels=_row(_STRONG, _STRONG, None, None, None),
        reason="COLLECT is applied when UQS is empty, for all updates since; it compensates for one"
        " source's order only",
        settings={"gate": 1},
    ),
    "strobe": ModeInfo(
        manager=f"{ASKING}.strobe:Strobe",
        scenes=SINGLE,
        asks=True,
        keyed=True,
        over_views=_BY_KEYS,
        numbering="event",
        sends="strong",
        levels=_row(_STRONG, _CONVERGENT, _STRONG, _CONVERGENT, _CONVERGENT),
        reason="it takes each update by itself and applies AL when UQS is empty",
        settings={"gate": 1, "grouped": 1, "from_view": 0, "window": WINDOW},
    ),
    "t_strobe": ModeInfo(
        manager=f"{ASKING}.strobe:Strobe",
        family="strobe",
        scenes=("one-local", "local"),
        asks=True,
        keyed=True,
        over_views=_BY_KEYS,
        numbering="local",
        sends="strong",
        levels=_row(_STRONG, _STRONG, _STRONG, _STRONG, _WEAK),
        reason="it knows the transactions of each source by itself and applies AL when UQS is empty",
        settings={"gate": 1, "grouped": 1, "from_view": 0, "window": WINDOW},
    ),
    "g_strobe": ModeInfo(
        manager=f"{ASKING}.g_strobe:GStrobe",
        family="strobe",
        scenes=("global",),
        parts=True,
        asks=True,
        keyed=True,
        over_views=_BY_KEYS,
        numbering="apart",
        sends="strong",
        levels=_row(_STRONG, _STRONG, _STRONG, _STRONG, _STRONG),
        reason="it applies AL when UQS is empty, for all transactions since",
        settings={"gate": 1, "grouped": 1, "from_view": 0, "window": WINDOW},
    ),
    "c_strobe": ModeInfo(
        manager=f"{ASKING}.c_strobe:CStrobe",
        scenes=SINGLE,
        asks=True,
        keyed=True,
        over_views=_BY_KEYS,
        numbering="event",
        sends="complete",
        levels=_row(_COMPLETE, _CONVERGENT, _COMPLETE, _CONVERGENT, _CONVERGENT),
        reason="it takes each update by itself",
        settings={"grouped": 1, "from_view": 0, "window": WINDOW},
    ),
    "c_tstrobe": ModeInfo(
        manager=f"{ASKING}.c_strobe:CStrobe",
        family="c_strobe",
        scenes=SEVERAL,
        asks=True,
        keyed=True,
        over_views=_BY_KEYS,
        numbering="local",
        sends="complete",
        levels=_row(_COMPLETE, _COMPLETE, _COMPLETE, _COMPLETE, _WEAK),
        reason="it knows the transactions of each source by itself",
        settings={"grouped": 1, "from_view": 0, "window": WINDOW},
    ),
    "c_strobe_k": ModeInfo(
        manager=f"{ASKING}.c_strobe:CStrobe",
        family="c_strobe",
        scenes=SINGLE,
        asks=True,
        keyed=True,
        over_views=_BY_KEYS,
        numbering="event",
        sends="complete-N",
        levels=_row(_COMPLETE_N, _CONVERGENT, _COMPLETE_N, _CONVERGENT, _CONVERGENT),
        reason="it brings the view forward by `period` updates at a time",
        settings={"period": 2, "grouped": 1, "from_view": 0, "window": WINDOW},
    ),
    "c_tstrobe_k": ModeInfo(
        manager=f"{ASKING}.c_strobe:CStrobe",
        family="c_strobe",
        scenes=SEVERAL,
        asks=True,
        keyed=True,
        over_views=_BY_KEYS,
        numbering="local",
        sends="complete-N",
        levels=_row(_COMPLETE_N, _COMPLETE_N, _COMPLETE_N, _COMPLETE_N, _WEAK),
        reason="it brings the view forward by `period` transactions of single sources at a time",
        settings={"period": 2, "grouped": 1, "from_view": 0, "window": WINDOW},
    ),
    "isolated": ModeInfo(
        manager="streaming.isolated.isolated_manager:Isolated",
        asks=True,
        over_views="it reads delta tables at the sources, and a view has none",
        sessions=True,
        numbering="local",
        sends="strong",
        levels=_row(_STRONG, _STRONG, _STRONG, _STRONG, _WEAK),
        reason="a session takes all that each source has committed since the last one, and no source"
        " knows of parts at others",
    ),
    "naive": ModeInfo(
        manager=f"{ASKING}.naive:NaiveManager",
        asks=True,
        over_views="it is kept to show its anomaly over base relations only",
        paced=False,
        parts=True,
        anomalous=True,
        numbering="joined",
        sends="convergent",
        levels=_row(_NONE, _NONE, _NONE, _NONE, _NONE),
        reason="an answer that has seen later updates is taken as it is",
    ),
}


DEFAULT = "replica"
"""The mode of a view file that says none."""


def families() -> dict[str, Level]:
    """Each name that a view file may say, and the highest level it can be asked for."""
    best: dict[str, Level] = {}
    for name, info in MODES.items():
        family = info.family or name
        best[family] = max([best.get(family, Level.CONVERGENT), *info.levels.values()])
    return best


def member(family: str, scene: Scene, every: int | None) -> str:
    """The mode that stands for a family in a scene, and where a level of every N is asked for."""
    found = {
        name: "period" in info.settings
        for name, info in MODES.items()
        if (info.family or name) == family and scene in info.scenes
    }
    periodic = every is not None and every > 1 and True in found.values()
    return next(name for name, is_periodic in found.items() if is_periodic == periodic)


def refuse_level(mode: str, scene: Scene, asked: Level) -> None:
    """Raise where a mode cannot give a level in a scenario (strobe-family, figure 9.3).

    Raises:
        FrescoError: MODE_SCENARIO or MODE_LEVEL, with the reason and the modes that can.
    """
    info = MODES[mode]
    best = info.levels.get(scene)
    if best is not None and asked <= best:
        return
    able = [name for name, one in MODES.items() if one.levels.get(scene, Level.NONE) >= asked]
    where = f"mode {mode}, {SCENE_TEXTS[scene]}"
    todo = f"use {' or '.join(able)}" if able else "ask for a lower level"
    if best is None:
        raise FrescoError(
            "MODE_SCENARIO", f"{mode} is not for this: {info.reason}", where=where, todo=todo
        )
    raise FrescoError(
        "MODE_LEVEL",
        f"{mode} gives {best.text} consistency here, not {asked.text}: {info.reason}",
        where=where,
        todo=todo,
    )


SCENE_TEXTS: dict[Scene, str] = {
    "one-single": "one source, each update a transaction",
    "one-local": "one source with transactions",
    "single": "several sources, each update a transaction",
    "local": "several sources with transactions of their own",
    "global": "transactions over several sources",
}
