"""Every anomaly of the papers, live: one PostgreSQL server, the scenarios one after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from streaming.demo.anomalies import (
    lock_order,
    one_view,
    several_views,
    view_over_views,
)
from streaming.demo.anomalies.shown import AnomalyShown, shown_text
from streaming.demo.embedded.ports import choose_ports
from streaming.demo.embedded.postgres_server import Postgres

SCENARIOS = {
    **one_view.SCENARIOS,
    **several_views.SCENARIOS,
    **view_over_views.SCENARIOS,
    **lock_order.SCENARIOS,
}


def run_anomalies(console: Console, folder: Path | None, seed: int) -> list[AnomalyShown]:
    """Run all scenarios and show each as it ends.

    Args:
        folder: of the database server; one that is removed afterwards when None.
        seed: of the order in which independent messages arrive.

    Raises:
        FrescoError: EMBEDDED_START_FAILED, DEMO_LOCK.
    """
    found = []
    for outcome in played(console, folder, seed):
        found.append(outcome)
        console.print(anomaly_table(outcome))
    held = sum(one.holds for one in found)
    mark = "[bold green]holds[/]" if held == len(found) else "[bold red]does not hold[/]"
    console.print(Text.from_markup(f"{held} of {len(found)} anomalies as the papers say: {mark}"))
    return found


def played(console: Console, folder: Path | None, seed: int) -> Iterator[AnomalyShown]:
    """The outcomes, each as soon as it is there."""
    with tempfile.TemporaryDirectory(prefix="fresco-anomalies-") as temporary:
        home = folder.resolve() if folder is not None else Path(temporary)
        home.mkdir(parents=True, exist_ok=True)
        server = Postgres(home, choose_ports(home, {"postgres": None})["postgres"])
        try:
            with console.status("starting PostgreSQL"):
                server.start()
            for name, scenario in SCENARIOS.items():
                with console.status(name):
                    outcome = scenario(server, seed)
                yield outcome
        finally:
            server.stop()


def verdict(outcomes: list[AnomalyShown]) -> dict[str, Any]:
    """For `--json`."""
    return {
        "holds": all(one.holds for one in outcomes),
        "anomalies": [one.as_dict() for one in outcomes],
    }


def anomaly_table(outcome: AnomalyShown) -> Group:
    """What each side shows after each step, beside the sources; states that never were are red."""
    about = outcome.anomaly
    table = Table(
        title=Text.assemble(
            (about.key, "bold"), f": {about.title} ({about.paper}; seed {outcome.seed})"
        ),
        title_justify="left",
    )
    heads = ("what happens", f"naive: {outcome.naive.name}", f"right: {outcome.right.name}")
    for head in (*heads, "the sources' state"):
        table.add_column(head)
    possible = {shown_text(one, outcome.views) for one in outcome.sources}
    last = outcome.steps[-1]
    for step in outcome.steps:
        end = step.sources if step is last else None
        cells = (_cell(one, possible, end) for one in (step.naive, step.right))
        table.add_row(step.what, *cells, step.sources)
    mark = "[green]as the paper says[/]" if outcome.holds else "[bold red]NOT as the paper says[/]"
    return Group(table, Text.from_markup(f"{escape(about.says)}: {mark}"), "")


def _cell(states: tuple[str, ...], possible: set[str], end: str | None) -> Text:
    """Red where it is no state of the sources, or at the end not their last one."""
    wrong = [one not in possible for one in states]
    wrong[-1] |= end is not None and states[-1] != end
    found = zip(states, wrong, strict=True)
    return Text(" then ").join(Text(one, "red" if bad else "") for one, bad in found)
