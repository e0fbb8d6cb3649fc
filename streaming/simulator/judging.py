"""From a case and a seed to a verdict, and the search for the smallest seed of a bad one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streaming.errors import FrescoError
from streaming.simulator.auditor import Auditor
from streaming.simulator.case import Case, HistoryOutcome
from streaming.simulator.lattice import Shown
from streaming.simulator.notation import Historian, witness_text
from streaming.simulator.small_views import over_relations
from streaming.simulator.world import HistoryRun, SimulatedPipeline, simulate
from streaming.viewmanagers.levels import Level


def auditor(case: Case, run: HistoryRun, view: str | None) -> Auditor:
    """The auditor of one view, or (None) of all together."""
    views = over_relations(run.world.catalog)
    trees = [tree for name, tree in views.items() if view in (None, name)]
    return Auditor(run.world, case.scenario, trees, run.order, case.option("every", 1))


def states_of(case: Case, run: HistoryRun) -> dict[str, Sequence[Shown]]:
    """What was visible of each view: when its lists are applied alone, or where views join and leave."""
    if not case.view_changes:
        return dict(run.by_view)
    names = [view.name for view in run.world.catalog.views]
    return {name: [(state[x],) for state in run.group] for x, name in enumerate(names)}


def verdicts(
    case: Case, run: HistoryRun
) -> Iterator[tuple[tuple[str, ...], Auditor, Sequence[Shown]]]:
    """(views judged together, their auditor, their states): each view alone, or the whole group."""
    names = tuple(view.name for view in run.world.catalog.views)
    if case.merge != "none":
        yield names, auditor(case, run, None), run.group
        return
    for name in names:
        yield (name,), auditor(case, run, name), run.by_view[name]


def holds(case: Case, run: HistoryRun, level: Level) -> bool:
    """Whether a history ended and has the level, each view alone or the group where there is a merge."""
    return run.stuck is None and all(
        judge.holds(states, level) for _, judge, states in verdicts(case, run)
    )


def run(case: Case, seed: int, table: bool = False) -> HistoryOutcome:
    """One history, written down and judged in full.

    Args:
        table: with the merge's VUT after each of its steps.

    Raises:
        FrescoError: a machine refused its view or a message; the history so far is its `history`.
    """
    historian = Historian(table)
    pipeline = SimulatedPipeline(case, seed, historian.watch)
    historian.pipeline = pipeline
    try:
        found = pipeline.run()
    except FrescoError as error:
        error.history = tuple(historian.lines)  # type: ignore[attr-defined]
        raise
    levels = {
        name: auditor(case, found, name).level(states)
        for name, states in states_of(case, found).items()
    }
    group, witness = Level.COMPLETE, None
    for names, judge, states in verdicts(case, found):
        level = judge.level(states)
        group = min(group, level)
        if level < Level.COMPLETE and witness is None:
            better = judge.witness(states, Level(level + 1))
            witness = witness_text(names, level, better) if better is not None else None
    if found.stuck is not None:
        group, witness = Level.NONE, found.stuck
    lines = (*historian.lines, *([witness] if witness else []))
    return HistoryOutcome(case, seed, levels, group, witness, lines, found.counters)


def counter_example(case: Case, level: Level, seeds: range) -> int | None:
    """The first seed whose history has not the level, None when all have it."""
    for seed in seeds:
        if not holds(case, simulate(case, seed), level):
            return seed
    return None
