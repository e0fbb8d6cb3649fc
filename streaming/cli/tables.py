"""Tables for people: what `plan`, `status`, `sql`, `verify` and `doctor` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from rich.console import Group
from rich.table import Table
from rich.text import Text

from streaming.plain import plain
from streaming.scalars import written

if TYPE_CHECKING:
    from streaming.captured.checked import Checked
    from streaming.pipeline.costing import PlanCosts
    from streaming.pipeline.plan import Pipeline
    from streaming.pipeline.refusals import Refused
    from streaming.proof.verdicts import Verdict
    from streaming.service.status import PipelineStatus

_SHOWN_RECORDS = 20
"""Bad records that `status` lists at most."""


def plan_table(pipeline: Pipeline) -> Table:
    """One row per view."""
    table = Table(title=f"pipeline {pipeline.name}", title_justify="left")
    for name in ("view", "group", "level", "mode", "scenario", "key", "relations"):
        table.add_column(name)
    for view in pipeline.every_view:
        key = (
            "whole row"
            if view.key is None
            else ", ".join(view.schema[at].name for at in view.key) or "one row"
        )
        choice = pipeline.choices[view.name]
        table.add_row(
            view.name,
            pipeline.group_of(view.name),
            f"{view.level} every {view.every}" if view.every else str(view.level),
            view.mode if choice.mode == view.mode else f"{view.mode} ({choice.mode})",
            choice.scenario,
            key,
            ", ".join(view.relations),
        )
    return table


def left_out_table(pipeline: Pipeline) -> Table:
    """One row per column that no view can read, since its type is not supported."""
    table = Table(title="columns left out: their types are not supported", title_justify="left")
    for name in ("relation", "column", "type"):
        table.add_column(name)
    for one in pipeline.captured:
        for column, type_ in one.refused:
            table.add_row(plain(one.relation.name), plain(column), plain(type_))
    return table


def refusals_table(refused: Refused) -> Table:
    """One row per view that cannot be maintained as asked, with the reason and the modes that can."""
    table = Table(title="refused", title_justify="left")
    for name in ("view", "level", "mode", "why not", "modes that can", "or"):
        table.add_column(name)
    for one in refused.refusals:
        table.add_row(
            one.view,
            one.level,
            one.mode,
            f"{one.error.code}: {one.error.what}",
            ", ".join(one.able) or "none",
            one.error.todo,
        )
    return table


def costs_table(costs: PlanCosts) -> Table:
    """What each choice of groups costs (ryco-pyco 5)."""
    known = "measured" if costs.measured else "declared rates, hops assumed"
    table = Table(title=f"costs of each grouping ({known})", title_justify="left")
    for name in ("grouping", "groups", "numbers/s to groups", "to view managers", "delay, s"):
        table.add_column(name)
    for one in costs.choices:
        groups = "; ".join(", ".join(views) for views in one.groups)
        slowest = max(one.delay.values(), default=0.0)
        table.add_row(
            one.grouping, groups, f"{one.ordered:.1f}", f"{one.told:.1f}", f"{slowest:.2f}"
        )
    return table


def status_table(status: PipelineStatus) -> Table:
    """Groups first, then stages."""
    table = Table(title=f"held by {status.holder}", title_justify="left")
    for name in ("what", "number", "state"):
        table.add_column(name)
    table.add_row("service", "", status.service)
    for stall in status.stalls:
        table.add_row(
            stall["what"],
            "",
            f"WAITS {stall['code']}: {stall['says']} -> {stall['todo']}",
        )
    for driver in status.drivers if len(status.drivers) > 1 else ():
        says = ", ".join(f"{name} {value}" for name, value in driver.owner.items())
        table.add_row(f"driver of {', '.join(driver.roles)}", "", says)
    for group in status.groups:
        fresh = "-" if group.behind_s is None else f"{group.behind_s:.1f} s behind the sources"
        age = "-" if group.age_s is None else f"committed {group.age_s:.0f} s ago"
        gone = f"; suspended: {dict(group.suspended)}" if group.suspended else ""
        if group.depends_on:
            gone = f", after epoch {', '.join(map(str, group.depends_on))}" + gone
        table.add_row(
            f"group {group.group}",
            str(group.frontier),
            f"epoch {group.epoch}, {fresh}, {age}{gone}",
        )
    for stage in status.stages:
        state = f"step {stage.step}, generation {stage.generation}"
        if stage.error:
            where = f" [{stage.error['where']}]" if stage.error.get("where") else ""
            state = f"SUSPENDED {stage.error['code']}: {stage.error['what']}{where}"
        if stage.spanned:
            state += f"; {stage.spanned} transactions spanned merge groups"
        for source, transaction in stage.lacking.items():
            state += f"; {source} waits for rows of its transaction {transaction}"
        table.add_row(stage.stage, "" if stage.number is None else str(stage.number), state)
    for change in status.changes:
        table.add_row(
            f"request {change['request']}", "", f"view {change['view']} {change['state']}"
        )
    for error in status.bad_records[:_SHOWN_RECORDS]:
        skipped = f"; skipped by {error['skipped']}" if "skipped" in error else ""
        table.add_row("bad record", "", f"{error['where']}: {error['code']}{skipped}")
    if (more := len(status.bad_records) - _SHOWN_RECORDS) > 0:
        table.add_row("bad records", "", f"{more} more in _state/bad_records")
    return table


def rows_table(rows: pa.Table, limit: int) -> Group:
    """A query's answer, at most `limit` rows of it."""
    count = "1 row" if rows.num_rows == 1 else f"{rows.num_rows} rows"
    table = Table()
    for name in rows.column_names:
        table.add_column(plain(name))
    shown = rows.slice(0, limit)
    for row in written.rows(shown):
        table.add_row(*(Text("NULL" if value is None else plain(value)) for value in row))
    return Group(table, count + (f", {limit} shown" if rows.num_rows > limit else ""))


def findings_table(findings: Sequence[Checked]) -> Table:
    """What `doctor` found."""
    table = Table()
    for name in ("check", "result", "do"):
        table.add_column(name)
    for finding in findings:
        mark = {"ok": ("ok", "green"), "warning": ("warning", "yellow")}.get(
            finding.level, ("wrong", "red")
        )
        table.add_row(finding.check, Text.assemble(mark, f" {finding.says}"), finding.todo)
    return table


def verdict_table(verdict: Verdict) -> Table:
    """Per view, group and relation: the level achieved, or a witness."""
    against = {
        "updates": "verify: recomputed from the recorded updates",
        "databases": "verify --source: compared with the databases",
    }[verdict.against]
    mark = ("holds", "green") if verdict.holds else ("DOES NOT HOLD", "bold red")
    reached = ", ".join(f"{group} up to {number}" for group, number in verdict.frontier.items())
    table = Table(
        title=Text.assemble(f"{against} ({reached}; {verdict.seconds:.1f} s): ", mark),
        title_justify="left",
        caption="\n".join((*verdict.problems, verdict.text)).strip() or None,
    )
    for name in ("what", "asked", "achieved", "numbers", "by Spark", "epochs", "rows", "note"):
        table.add_column(name)
    for line in verdict.lines:
        achieved = Text(line.achieved, "green" if line.holds else "bold red")
        note = line.note
        if line.witness is not None:
            note = f"{note} {line.witness}".strip()
        table.add_row(
            f"{line.kind} {line.name}",
            line.asked,
            achieved,
            str(line.states),
            ", ".join(map(str, line.by_spark)),
            str(line.epochs),
            str(line.rows),
            note,
        )
    return table
