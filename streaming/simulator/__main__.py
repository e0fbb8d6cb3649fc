"""Replays a simulated history, or searches for one: `python -m streaming.simulator --help`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console

from streaming.errors import FrescoError
from streaming.simulator.case import (
    Case,
    Faults,
    Merge,
    Order,
    Routing,
    Scenario,
    Submission,
    Visibility,
)
from streaming.simulator.judging import counter_example, run
from streaming.simulator.small_views import RelationSet, ViewSet
from streaming.viewmanagers.levels import level_of
from streaming.viewmanagers.modes import MODES, Numbering

LevelName = Literal["convergent", "weak", "strong", "complete-N", "complete"]

app = typer.Typer(add_completion=False)
console = Console(highlight=False, soft_wrap=True)


def modes(text: str) -> tuple[str, ...]:
    """Modes with commas between them."""
    found = tuple(text.split(","))
    for name in found:
        if name not in MODES:
            raise typer.BadParameter(f"no mode {name}; there are {', '.join(MODES)}")
        if MODES[name].sessions:
            raise typer.BadParameter(
                f"{name} has histories of its own: {__package__}.{name}_histories"
            )
    return found


def settings(texts: list[str] | None) -> tuple[tuple[str, int], ...]:
    """Managers' options, name=number each."""
    pairs = []
    for text in texts or []:
        name, _, value = text.partition("=")
        if not value.isdigit():
            raise typer.BadParameter(f"{text} is not of the form period=2")
        pairs.append((name, int(value)))
    return tuple(pairs)


@app.command()
def main(
    seed: Annotated[int, typer.Option(help="The history's; where a search begins.")] = 0,
    mode: Annotated[
        str, typer.Option(help="One mode, or one for each view: eca,replica")
    ] = "replica",
    scenario: Annotated[Scenario, typer.Option(help="What a transaction is.")] = "single",
    views: Annotated[ViewSet, typer.Option(help="The view set.")] = "chain",
    relations: Annotated[RelationSet, typer.Option(help="The relations' keys.")] = "any",
    sources: Annotated[int, typer.Option(min=1, max=3)] = 3,
    transactions: Annotated[int, typer.Option(min=1, help="In all sources together.")] = 6,
    domain: Annotated[int, typer.Option(min=1, help="Values per column: fewer meet more.")] = 2,
    numbering: Annotated[Numbering | None, typer.Option(help="Else as modes ask.")] = None,
    merge: Annotated[Merge, typer.Option(help="The group's.")] = "none",
    greedy: Annotated[bool, typer.Option(help="All ready rows in one transaction.")] = False,
    submission: Annotated[Submission, typer.Option(help="When they commit.")] = "at-once",
    order: Annotated[Order, typer.Option(help="Of rows.")] = "overtake",
    rel: Annotated[Routing, typer.Option(help="Who tells the merge of REL.")] = "direct",
    view_changes: Annotated[
        float, typer.Option(help="Probability that a view joins or leaves, at each cut.")
    ] = 0.0,
    copy: Annotated[list[str] | None, typer.Option(help="Keep a copy of it: y.r2")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Transactions in one message.")] = 1,
    vary: Annotated[bool, typer.Option(help="Messages of 1 to `batch` transactions.")] = False,
    visibility: Annotated[Visibility, typer.Option(help="What answers see.")] = "prefix",
    truncates: Annotated[float, typer.Option(help="Their share of the row changes.")] = 0.0,
    crash: Annotated[float, typer.Option(help="Its probability at each message.")] = 0.0,
    option: Annotated[list[str] | None, typer.Option(help="Of the managers: period=2")] = None,
    search: Annotated[
        LevelName | None, typer.Option(help="Find a history below this level.")
    ] = None,
    histories: Annotated[int, typer.Option(help="How many to search.")] = 1000,
) -> None:
    """One history, its VUT painted step by step, its levels and a witness."""
    case = Case(
        modes=modes(mode),
        scenario=scenario,
        views=views,
        relations=relations,
        sources=sources,
        transactions=transactions,
        domain=domain,
        numbering=numbering,
        merge=merge,
        greedy=greedy,
        submission=submission,
        order=order,
        rel=rel,
        view_changes=view_changes,
        copied=tuple(copy or ()),
        batch=batch,
        vary=vary,
        visibility=visibility,
        truncates=truncates,
        faults=Faults(crash=crash),
        options=settings(option),
    )
    try:
        if search is not None:
            found = counter_example(case, level_of(search), range(seed, seed + histories))
            if found is None:
                console.print(f"none of {histories} histories is below {search}")
                return
            console.print(f"seed {found} is below {search}")
            seed = found
        show(case, seed)
    except FrescoError as error:
        for line in getattr(error, "history", ()):
            console.print(line, markup=False)
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None


def show(case: Case, seed: int) -> None:
    """Print the history, the levels and the counters."""
    outcome = run(case, seed, table=case.merge != "none")
    for line in outcome.history:
        console.print(line, markup=False)
    levels = ", ".join(f"{view} {level.text}" for view, level in outcome.levels.items())
    console.print(f"[bold]{levels}; together {outcome.group.text}[/bold]")
    counted = [f"{name} {n}" for name, n in sorted(outcome.counters.items()) if n]
    if counted:
        console.print(", ".join(counted))


if __name__ == "__main__":
    app()
