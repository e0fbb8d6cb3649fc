"""The cells of the fence as cases, and many histories of a case on all cores.

Set FRESCO_HISTORIES for more histories per cell than a test run has time for (`make simulate`).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace

from streaming.simulator import isolated_histories
from streaming.simulator.case import Case, Faults, Load, Scenario
from streaming.simulator.judging import holds
from streaming.simulator.small_views import RelationSet, ViewSet
from streaming.simulator.world import simulate
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.modes import MODES, SCENES, Scene

USUAL = 500
HISTORIES = int(os.environ.get("FRESCO_HISTORIES", USUAL))
THOUSANDS = max(HISTORIES, 3000)
"""Of a test that is marked deep."""
CHUNK = 250
PROCESSES = 2
TELL_SECONDS = 20


def case_of(mode: str, scene: Scene) -> Case:
    """A cell's case: several transactions in a message, so that a strong manager takes them as one.

    Complete-N is asked of messages that end with a block. Where each row change is numbered by itself,
    transactions are smaller, so that histories are as long as the others. A mode with sessions has
    histories of its own, with every fault (`simulator.isolated_histories`).
    """
    scenario: Scenario = scene.removeprefix("one-")  # type: ignore[assignment]
    sources = 1 if scene.startswith("one-") else 3
    if MODES[mode].sessions:
        return replace(
            isolated_histories.CASE,
            modes=(mode,),
            scenario=scenario,
            sources=sources,
            transactions=5,
        )
    case = Case((mode,), scenario, sources=sources, transactions=5, batch=4, vary=True)
    if MODES[mode].numbering == "event" and scenario != "single":
        case = replace(case, changes=2)
    period = MODES[mode].settings.get("period")
    if period is None:
        return case
    return replace(
        case, batch=period, vary=False, no_ops=0.0, options=(("every", period), ("period", period))
    )


@dataclass(frozen=True)
class Cell:
    """A mode in a scenario, and the level that the fence states."""

    mode: str
    scene: Scene
    level: Level

    @property
    def case(self) -> Case:
        return case_of(self.mode, self.scene)

    @property
    def name(self) -> str:
        return f"{self.mode}-{self.scene}-{self.level.text}"


CELLS = [
    Cell(mode, scene, info.levels[scene])
    for mode, info in MODES.items()
    for scene in SCENES
    if scene in info.levels
]

SESSION_VIEWS: tuple[ViewSet, ...] = ("chain", "pair", "self", "mixed", "narrow")
SESSION_RELATIONS: tuple[RelationSet, ...] = ("bag", "fanout", "first")


def drawn(case: Case, seed: int) -> Case:
    """The case of one seed: with sessions, views, relations and two or three sources by turns."""
    if not MODES[case.modes[0]].sessions:
        return case
    sources = case.sources if case.sources == 1 or seed // len(SESSION_VIEWS) % 2 else 2
    views, relations = SESSION_VIEWS[seed % 5], SESSION_RELATIONS[seed % 7 % 3]
    return replace(case, views=views, relations=relations, sources=sources)


def has(case: Case, seed: int, level: Level) -> bool:
    """Whether the history of a seed has the level."""
    if MODES[case.modes[0]].sessions:
        return isolated_histories.holds(drawn(case, seed), seed, level)
    return holds(case, simulate(case, seed), level)


@dataclass(frozen=True)
class Found:
    """What a stretch of seeds came to.

    Attributes:
        below: (seed, what) of histories that have not the level, or that a machine refused.
    """

    below: tuple[tuple[int, str], ...] = ()


def judged(case: Case, level: Level, seeds: range) -> Found:
    """All histories of the seeds."""
    below = []
    for seed in seeds:
        try:
            if not has(case, seed, level):
                below.append((seed, f"below {level.text}"))
        except Exception as error:
            below.append((seed, f"{type(error).__name__}: {error}"[:300]))
    return Found(tuple(below))


def some(usual: int) -> int:
    """So many histories in a usual run; where more are asked for each cell, more in proportion."""
    return max(usual, usual * HISTORIES // USUAL)


def collect_rarely() -> None:
    """A history leaves little garbage in cycles; looking for it took a fifth of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


class Runner:
    """Runs histories on all cores; what is equal is run once.

    Args:
        tell: how far it is, while somebody waits.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        context = multiprocessing.get_context("fork")
        self.pool = ProcessPoolExecutor(PROCESSES, context, collect_rarely)
        self._asked: dict[object, list[Future[Found]]] = {}

    def ask(self, cases: Iterable[tuple[Case, Level]], histories: int) -> None:
        """Begin to run the cases' histories; those of one load and the same seeds follow each other.

        So their worlds are still remembered (`workload.drawn`, `lattice.lattice_of`).
        """
        asked = {effect(case, level, histories): (case, level) for case, level in cases}
        new = {key: each for key, each in asked.items() if key not in self._asked}
        self._asked |= {key: [] for key in new}
        of_load: dict[Load, list[tuple[object, Case, Level]]] = {}
        for key, (case, level) in new.items():
            of_load.setdefault(case.load, []).append((key, case, level))
        for n in range(0, histories, CHUNK):
            seeds = range(n, min(n + CHUNK, histories))
            for key, case, level in (each for alike in of_load.values() for each in alike):
                self._asked[key].append(self.pool.submit(judged, case, level, seeds))

    def below(self, case: Case, level: Level, histories: int) -> list[tuple[int, str]]:
        """The seeds, ascending, whose histories have not the level."""
        self.ask([(case, level)], histories)
        found = self._asked[effect(case, level, histories)]
        while wait(found, TELL_SECONDS).not_done:
            begun = [future for futures in self._asked.values() for future in futures]
            done = sum(future.done() for future in begun)
            self._tell(f"{done * CHUNK:,} of {len(begun) * CHUNK:,} histories")
        return [each for future in found for each in future.result().below]

    def close(self) -> None:
        self.pool.shutdown(cancel_futures=True)


def effect(case: Case, level: Level, histories: int) -> object:
    """What makes two cases different: where every update is a transaction, every numbering is one."""
    info = [MODES[mode] for mode in case.modes]
    numbering = None if case.scenario == "single" else [one.numbering for one in info]
    made = [(one.manager, tuple(one.settings.items())) for one in info]
    return repr((replace(case, modes=()), made, numbering, level, histories))


def report(case: Case, below: list[tuple[int, str]], histories: int) -> str:
    """What a failing test says: how many, and how to replay the first."""
    if not below:
        return ""
    seed, what = below[0]
    return f"{len(below)} of {histories} histories; seed {seed}: {what}; case {drawn(case, seed)}"


def assert_level(
    runner: Runner, cases: Mapping[str, tuple[Case, Level]], name: str, histories: int
) -> None:
    """The histories of the case called `name` have its level; those of all cases are begun at once."""
    runner.ask(cases.values(), histories)
    case, level = cases[name]
    below = runner.below(case, level, histories)
    assert not below, report(case, below, histories)


def assert_crashes_change_nothing(case: Case, seeds: range, least: int) -> None:
    """Each machine made anew from its snapshot at each message, before or after its step."""
    for seed in seeds:
        calm = simulate(case, seed)
        crashed = simulate(replace(case, faults=Faults(crash=1.0)), seed)
        assert crashed.counters["crashes"] > least
        assert crashed.group == calm.group, f"seed {seed}, {case}"
        assert crashed.by_view == calm.by_view, f"seed {seed}, {case}"
        assert crashed.stuck is None


def increasing(most: int) -> Iterator[range]:
    """Stretches of seeds for a search, longer and longer."""
    first, length = 0, 20
    while first < most:
        yield range(first, min(first + length, most))
        first, length = first + length, length * 2


def forget() -> None:
    """Empty every cache of the project's functions."""
    for name, module in list(sys.modules.items()):
        if name.startswith("streaming."):
            for one in list(vars(module).values()):
                if callable(clear := getattr(one, "cache_clear", None)):
                    clear()
