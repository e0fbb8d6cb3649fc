"""The groups that `plan` accepts, as cases: each pair of managers over each kind of sources.

A pair is two views over sources that a configuration describes. What each view's manager is, and whether
it may be, is asked of the product (`pipeline.choosing`); what the group promises follows from what its
managers send (`merge.algorithms`). Nothing is listed here that `plan` refuses, and whatever it comes to
accept is here by itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, get_args

from streaming.algebra.tree import Relation
from streaming.configuration.pipeline_config import Config, parse_config
from streaming.errors import FrescoError
from streaming.merge.algorithms import Algorithm, Manager, algorithm_for
from streaming.pipeline.catalog import parse_view
from streaming.pipeline.choosing import Choice, choose
from streaming.pipeline.configured_groups import block_size
from streaming.pipeline.view_specs import ViewSpec
from streaming.simulator.case import (
    Case,
    Faults,
    Order,
    Routing,
    Scenario,
    Submission,
    Visibility,
)
from streaming.simulator.judging import auditor
from streaming.simulator.small_views import catalog
from streaming.simulator.world import simulate
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.modes import MODES, Numbering, families

EVERY = 2
LEVELS = (
    "WITH COMPLETE CONSISTENCY",
    f"WITH COMPLETE EVERY {EVERY}",
    "WITH STRONG CONSISTENCY",
    "WITH CONVERGENT CONSISTENCY",
)
PERIODS = {"recompute": ("", f" EVERY '{EVERY} transactions'")}
"""What may follow USING of a mode."""
QUERIES = (
    "SELECT r1.A, r1.B, r2.C FROM {0} r1 JOIN {1} r2 ON r1.B = r2.B",
    "SELECT r2.B, r2.C, r3.D FROM {1} r2 JOIN {2} r3 ON r2.C = r3.C",
)
"""The simulator's view set "pair"."""


@dataclass(frozen=True)
class World:
    """The sources of a configuration.

    Attributes:
        transactions: as the configuration says it.
        tagged: sources tag the parts of global transactions.
        globals: how these are numbered.
    """

    sources: int
    transactions: str
    tagged: bool
    globals: str

    @property
    def config(self) -> Config:
        sources: dict[str, Any] = {}
        for name in self.relations:
            source, table = name.split(".")
            entry = sources.setdefault(
                source,
                {
                    "tables": {"fresco_global": "public.fresco_global"} if self.tagged else {},
                    "transactions": self.transactions,
                    "connection": "postgresql://reader@localhost/bank",
                },
            )
            entry["tables"][table] = f"public.{table}"
        raw = {"pipeline": "p", "warehouse": "w", "views": "v", "globals": self.globals}
        return parse_config({**raw, "allow_anomalies": True, "sources": sources}, folder=Path("/"))

    @property
    def relations(self) -> dict[str, Relation]:
        return dict(catalog("pair", "first", self.sources).relations)

    @property
    def scenario(self) -> Scenario:
        if self.transactions == "per-event":
            return "single"
        return "global" if self.tagged and self.sources > 1 else "local"

    @property
    def numbering(self) -> Numbering:
        return "apart" if self.globals == "apart" else "joined"

    @property
    def name(self) -> str:
        apart = "-apart" if self.globals == "apart" else ""
        return f"{self.sources}-{self.scenario}{apart}"


WORLDS = [
    World(sources, transactions, tagged, globals_)
    for sources, (transactions, tagged), globals_ in product(
        (1, 2, 3),
        (("per-event", False), ("metadata", False), ("metadata", True)),
        ("joined", "apart"),
    )
    if (tagged or globals_ == "joined") and (sources > 1 or not tagged)
]


@cache
def parsed(sources: int, place: int, clauses: str) -> ViewSpec:
    """A view of the pair.

    Raises:
        FrescoError: it cannot be asked for in this way.
    """
    relations = catalog("pair", "first", sources).relations
    query = QUERIES[place].format(*relations)
    return parse_view(
        f"CREATE MATERIALIZED VIEW v{place + 1} {clauses} AS {query}", dict(relations)
    )


def accepted(world: World, place: int) -> Iterator[tuple[ViewSpec, Choice]]:
    """The managers that a view of the pair may have, each at the best level that it is accepted at."""
    config, relations = world.config, world.relations
    for family in families():
        found: set[tuple[str, object]] = set()
        for period, level in product(PERIODS.get(family, ("",)), LEVELS):
            try:
                view = parsed(world.sources, place, f"{level} USING {family}{period}")
                choice = choose(config, view, relations)
            except FrescoError:
                continue
            one = (choice.mode, (view.every, *choice.options.settings.items()))
            if one not in found:
                found.add(one)
                yield view, choice


@dataclass(frozen=True)
class Pair:
    """A group of two views that `plan` accepts."""

    world: World
    views: tuple[ViewSpec, ViewSpec]
    choices: tuple[Choice, Choice]

    @property
    def block(self) -> int | None:
        return block_size(self.views, lambda view: ())

    @property
    def algorithm(self) -> Algorithm:
        names = [view.name for view in self.views]
        managers = [c.manager for c in self.choices]
        if self.block:
            managers = [Manager("complete-N", self.block)] * 2
        return algorithm_for(dict(zip(names, managers, strict=True)))

    @property
    def case(self) -> Case:
        """Its histories; the rest of the configuration is drawn with each (`configured`)."""
        modes = tuple(choice.mode for choice in self.choices)
        settings = dict(pair for c in self.choices for pair in c.options.settings.items())
        case = Case(
            modes,
            self.world.scenario,
            "pair",
            relations="first",
            sources=self.world.sources,
            transactions=6,
            batch=4,
            vary=True,
            numbering=self.world.numbering,
            merge="auto" if self.algorithm.through else self.algorithm.name,
            options=tuple(sorted(settings.items())),
        )
        if self.block:
            options = {**settings, "every": self.block}
            case = replace(case, merge="blocks", options=tuple(sorted(options.items())))
        if self.block or any(MODES[mode].period(settings) for mode in modes):
            case = replace(case, batch=EVERY, vary=False, no_ops=0.0)
        return case

    @property
    def level(self) -> Level:
        """What its group promises, each ready row being published by itself."""
        if self.algorithm.every is not None:
            return Level.COMPLETE_N
        return Level.COMPLETE if self.algorithm.name == "spa" else Level.STRONG

    @property
    def passed(self) -> tuple[int, ...]:
        """The places of the views that promise nothing, so that they are passed through."""
        return tuple(x for x, choice in enumerate(self.choices) if choice.mode == "naive")

    @property
    def alone(self) -> tuple[Level, ...]:
        """What each view's lists give by themselves; complete-N is judged of the group."""
        found = [choice.gives for choice in self.choices]
        return tuple(
            min(each, Level.STRONG) if each == Level.COMPLETE_N else each for each in found
        )

    @property
    def name(self) -> str:
        managers = []
        for choice in self.choices:
            settings = choice.options.settings if choice.info.asks or self.block else {}
            known = [
                f"-{n}" for key, n in settings.items() if self.block or key in choice.info.settings
            ]
            managers.append(choice.mode + "".join(known))
        return f"{self.world.name}-{'-'.join(managers)}"


@cache
def pairs() -> dict[str, Pair]:
    """All of them that promise something, by name. A mode with sessions has groups of its own.

    Two managers of one mode get the same settings in a simulated group.
    """
    found: dict[str, Pair] = {}
    for world in WORLDS:
        for (one, first), (other, second) in product(accepted(world, 0), accepted(world, 1)):
            pair = Pair(world, (one, other), (first, second))
            alike = first.mode != second.mode or first.options.settings == second.options.settings
            apart = first.info.sessions or second.info.sessions or len(pair.passed) == 2
            if alike and not apart:
                found.setdefault(pair.name, pair)
    return found


def configured(case: Case, level: Level, seed: int) -> tuple[Case, Level]:
    """A history's case with the rest of the configuration drawn, and what is promised then."""
    rng = random.Random(f"{seed} configuration")
    greedy = rng.random() < 0.3
    case = replace(
        case,
        greedy=greedy,
        order=rng.choice(get_args(Order)),
        submission=rng.choice(get_args(Submission)),
        rel=rng.choice(get_args(Routing)),
        visibility=rng.choice(get_args(Visibility)),
        faults=Faults(crash=rng.choice((0.0, 0.0, 0.2))),
    )
    return case, min(level, Level.STRONG) if greedy else level


def below(
    usual: Case, promised: Level, passed: tuple[int, ...], alone: tuple[Level, ...], seeds: range
) -> list[tuple[int, str]]:
    """(seed, what) of the histories of a pair that are below what is promised.

    Where a manager works by periods, those that end inside one wait for the rest of it, as they should;
    they are left out, about a half of those with global transactions.

    Args:
        usual, promised, passed, alone: the pair's `case`, `level`, `passed` and `alone`.
    """
    found = []
    for seed in seeds:
        case, level = configured(usual, promised, seed)
        try:
            run = simulate(case, seed)
        except Exception as error:
            found.append((seed, f"{type(error).__name__}: {error}; {case}"))
            continue
        if run.last % case.option("every", 1):
            continue
        what = run.stuck
        states = [
            tuple(None if x in passed else bag for x, bag in enumerate(state))
            for state in run.group
        ]
        if what is None and not auditor(case, run, None).holds(states, level):
            what = f"together below {level.text}"
        for x, (name, shown) in enumerate(run.by_view.items()):
            if what is None and not auditor(case, run, name).holds(shown, alone[x]):
                what = f"{name} below {alone[x].text}"
        if what is not None:
            found.append((seed, f"{what}; {case}"))
    return found
