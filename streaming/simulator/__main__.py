"""Replays a simulated history, or searches for one: `python -m streaming.simulator --help`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from streaming.errors import FrescoError
from streaming.simulator.case import Case, Faults
from streaming.simulator.judging import counter_example, run
from streaming.viewmanagers.levels import level_of

console = Console(highlight=False, soft_wrap=True)


def main(
    seed: Annotated[int, typer.Option(help="The history's seed; where a search begins.")] = 0,
    mode: Annotated[
        str, typer.Option(help="A mode, or one for each view: eca,replica.")
    ] = "replica",
    scenario: Annotated[str, typer.Option(help="single, local or global.")] = "single",
    views: Annotated[str, typer.Option(help="The view set (simulator/views.py).")] = "chain",
    relations: Annotated[str, typer.Option(help="Keys: first, fanout, bag or any.")] = "any",
    sources: Annotated[int, typer.Option(help="1 to 3.")] = 3,
    transactions: Annotated[int, typer.Option(help="In all sources together.")] = 6,
    domain: Annotated[int, typer.Option(help="Values per column: fewer, more contention.")] = 2,
    numbering: Annotated[str | None, typer.Option(help="event, local, joined or apart.")] = None,
    merge: Annotated[str, typer.Option(help="none, spa, pa or auto.")] = "none",
    greedy: Annotated[
        bool, typer.Option(help="All ready rows in one warehouse transaction.")
    ] = False,
    order: Annotated[str, typer.Option(help="overtake or prefix.")] = "overtake",
    batch: Annotated[int, typer.Option(help="Transactions in one message.")] = 1,
    vary: Annotated[bool, typer.Option(help="Messages of 1 to `batch` transactions.")] = False,
    visibility: Annotated[str, typer.Option(help="prefix or set.")] = "prefix",
    truncates: Annotated[float, typer.Option(help="Their share of the row changes.")] = 0.0,
    crash: Annotated[float, typer.Option(help="Probability at each message.")] = 0.0,
    option: Annotated[list[str] | None, typer.Option(help="Of the managers: period=2.")] = None,
    search: Annotated[
        str | None, typer.Option(help="A level to find a counter-example to.")
    ] = None,
    histories: Annotated[int, typer.Option(help="How many to search.")] = 1000,
) -> None:
    """One history, its VUT painted step by step, its levels and a witness."""
    pairs = [text.split("=", 1) for text in option or []]
    case = Case(
        modes=tuple(mode.split(",")),
        scenario=scenario,  # type: ignore[arg-type]
        views=views,
        relations=relations,
        sources=sources,
        transactions=transactions,
        domain=domain,
        numbering=numbering,  # type: ignore[arg-type]
        merge=merge,  # type: ignore[arg-type]
        greedy=greedy,
        order=order,  # type: ignore[arg-type]
        batch=batch,
        vary=vary,
        visibility=visibility,  # type: ignore[arg-type]
        truncates=truncates,
        faults=Faults(crash=crash),
        options=tuple((name, int(value)) for name, value in pairs),
    )
    try:
        if search is not None:
            found = counter_example(case, level_of(search), range(seed, seed + histories))
            if found is None:
                console.print(f"none of {histories} histories is below {search}")
                return
            console.print(f"[bold]seed {found}[/bold] is below {search}")
            seed = found
        show(case, seed)
    except FrescoError as error:
        for line in getattr(error, "history", ()):
            console.print(line, markup=False)
        console.print(str(error), markup=False, style="red")
        raise typer.Exit(1) from None


def show(case: Case, seed: int) -> None:
    """Print the history, the levels and the counters."""
    outcome = run(case, seed, table=case.merge != "none")
    for line in outcome.history:
        console.print(line, markup=False)
    levels = ", ".join(f"{view} {level.text}" for view, level in outcome.levels.items())
    console.print(f"[bold]{levels}; together {outcome.group.text}[/bold]")
    if outcome.counters:
        console.print(", ".join(f"{name} {n}" for name, n in sorted(outcome.counters.items())))


if __name__ == "__main__":
    typer.run(main)
