"""The `fresco` command (DESIGN 13): what a person runs; output for people, `--json` for programs."""

from __future__ import annotations

import json
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

from streaming.app import serve
from streaming.cli import (
    isolated_commands as isolatedcommands,
)
from streaming.cli import (
    source_commands as sourcecommands,
)
from streaming.cli import (
    topic_commands as topiccommands,
)
from streaming.cli import (
    view_commands as viewcommands,
)
from streaming.cli.reporting import (
    ConfigOption,
    JsonOption,
    OptionalConfig,
    WarehouseOption,
    err,
    leave_soon,
    out,
    print_rows,
    quiet_libraries,
    reported,
    warehouse_of,
)
from streaming.errors import FrescoError
from streaming.scalars.written import in_json

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Many materialized views over several live databases, all at one source state.",
)
app.add_typer(viewcommands.app, name="view")
app.add_typer(topiccommands.app, name="topics")
app.add_typer(isolatedcommands.app, name="isolated")
app.command()(viewcommands.skip)
app.command()(sourcecommands.capture)
app.command()(sourcecommands.snapshots)


@app.command()
def run(
    config: ConfigOption,
    local_jars: Annotated[
        bool, typer.Option(help="fetch and use local Spark jars (off under spark-submit)")
    ] = True,
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="to run here: integrator, view:NAME, merge:GROUP, isolated:GROUP; all without"
        ),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(help="in place of metrics.port; 0 takes a free one")
    ] = None,
    log_file: Annotated[
        Path | None,
        typer.Option(
            "--log", help="the file of all that is not said here; by default below WAREHOUSE/_log"
        ),
    ] = None,
) -> None:
    """Run a pipeline, or some of its stages, until SIGINT, SIGTERM or SIGHUP."""
    with reported():
        status = serve(
            config,
            local_jars=local_jars,
            roles=role or (),
            metrics_port=metrics_port,
            log_file=log_file,
        )
    raise typer.Exit(status)


class Scenario(StrEnum):
    """What `demo` shows."""

    bank = "bank"
    anomalies = "anomalies"


def _anomalies(folder: Path | None, seed: int, as_json: bool) -> None:
    """Every anomaly, the naive manager's state beside the right one's; exits 0 when all hold."""
    from streaming.demo.anomalies.all_anomalies import run_anomalies, verdict

    with reported(as_json):
        found = run_anomalies(out if not as_json else err, folder, seed)
    if as_json:
        print(json.dumps(verdict(found)))
    raise typer.Exit(0 if all(one.holds for one in found) else 1)


@app.command()
def demo(
    seconds: Annotated[int, typer.Option(help="how long transfers run")] = 60,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="where the stack and the tables are kept")
    ] = None,
    rate: Annotated[float, typer.Option(help="transfers per second")] = 20.0,
    seed: Annotated[int, typer.Option(help="of the workload")] = 1,
    scenario: Annotated[
        Scenario, typer.Option(help="the main job, or the papers' anomalies on live databases")
    ] = Scenario.bank,
    as_json: JsonOption = False,
) -> None:
    """The main job on an embedded stack: two databases, five views, one state."""
    if scenario is Scenario.anomalies:
        _anomalies(folder, seed, as_json)
    from streaming.cli.tables import verdict_table
    from streaming.demo.demonstration import run_demo

    with reported(as_json):
        verdict = run_demo(
            out if not as_json else err,
            folder,
            verdict_table,
            seconds=seconds,
            rate=rate,
            seed=seed,
        )
    if as_json:
        print(json.dumps(verdict.as_dict()))
    raise typer.Exit(0 if verdict.holds else 1)


@app.command()
def plan(config: ConfigOption, as_json: JsonOption = False) -> None:
    """What would run: views, modes, levels, relations, topics, groups and what each choice costs.

    Where views cannot be maintained as their files ask: each with the reason and the modes that can.
    """
    from streaming.cli.tables import costs_table, left_out_table, plan_table, refusals_table
    from streaming.configuration.pipeline_config import load_config
    from streaming.pipeline.costing import plan_costs
    from streaming.pipeline.plan import plan_pipeline
    from streaming.pipeline.refusals import Refused

    with reported(as_json):
        settings = load_config(config)
        try:
            pipeline = plan_pipeline(settings)
        except Refused as refused:
            if as_json:
                print(json.dumps({"refused": [one.as_dict() for one in refused.refusals]}))
            else:
                out.print(refusals_table(refused))
            raise typer.Exit(1) from refused
        costs = plan_costs(settings, pipeline)
        if as_json:
            print(json.dumps({**pipeline.as_dict(), "costs": costs.as_dict()}))
        else:
            out.print(plan_table(pipeline))
            if any(one.refused for one in pipeline.captured):
                out.print(left_out_table(pipeline))
            out.print(costs_table(costs))


@app.command()
def status(
    config: OptionalConfig = None, warehouse: WarehouseOption = None, as_json: JsonOption = False
) -> None:
    """Where a pipeline stands: frontiers, freshness, suspended views, stages."""
    from streaming.cli.tables import status_table
    from streaming.service.status import pipeline_status

    with reported(as_json):
        found = pipeline_status(warehouse_of(config, warehouse))
        if as_json:
            print(json.dumps(found.as_dict()))
        else:
            out.print(status_table(found))


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="a SELECT over the views")],
    config: OptionalConfig = None,
    warehouse: WarehouseOption = None,
    epoch: Annotated[int | None, typer.Option(help="as of a warehouse commit")] = None,
    transaction: Annotated[int | None, typer.Option(help="as of a source transaction")] = None,
    suspended_as_of: Annotated[
        bool,
        typer.Option(
            "--suspended-as-of", help="read suspended views as of their last good transaction"
        ),
    ] = False,
    limit: Annotated[int, typer.Option(help="rows shown to people")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Ask the views, all at one state.

    A suspended view stands still, so a query that reads one with a later state is refused, unless
    --suspended-as-of asks for it: then standard error says so, and each row of --json in
    "_suspended_as_of".
    """
    from streaming.cli.tables import rows_table
    from streaming.readers import STANDING_STILL, Warehouse

    with reported(as_json):
        rows = Warehouse(warehouse_of(config, warehouse)).sql(
            query, epoch=epoch, transaction=transaction, suspended_as_of=suspended_as_of
        )
        told = (rows.schema.metadata or {}).get(STANDING_STILL.encode())
        behind: dict[str, int] = json.loads(told) if told else {}
        for name, after in behind.items():
            err.print(f"view {name} is suspended: its rows are those after transaction {after}")
        if as_json:
            print_rows(rows, {"_suspended_as_of": behind} if behind else {})
        else:
            out.print(rows_table(rows, limit))


@app.command()
def verify(
    config: OptionalConfig = None,
    warehouse: WarehouseOption = None,
    source: Annotated[bool, typer.Option("--source", help="compare with the databases")] = False,
    sample: Annotated[int, typer.Option(help="numbers to check, 0 for all")] = 200,
    seed: Annotated[int, typer.Option(help="of the sample")] = 1,
    by_spark: Annotated[
        int,
        typer.Option(help="of them, numbers at which Spark itself runs the views' text; 0: none"),
    ] = 8,
    as_json: JsonOption = False,
) -> None:
    """Recompute the views from the recorded updates and say which level they really have."""
    from streaming.cli.tables import verdict_table
    from streaming.configuration.pipeline_config import load_config
    from streaming.proof.databases import databases
    from streaming.proof.verdicts import verify_pipeline, verify_sources

    with reported(as_json):
        folder = warehouse_of(config, warehouse)
        if source:
            if config is None:
                raise FrescoError(
                    "CLI_OPTION", "--source needs the databases' connections", todo="pass --config"
                )
            verdict = verify_sources(folder, databases(load_config(config)))
        else:
            with _progress(as_json) as progress:
                verdict = verify_pipeline(folder, sample or None, seed, progress, by_spark)
        if as_json:
            print(json.dumps(in_json(verdict.as_dict())))
        else:
            out.print(verdict_table(verdict))
    raise typer.Exit(0 if verdict.holds else 1)


@contextmanager
def _progress(as_json: bool) -> Any:
    """A progress bar on standard error for long work; None for programs."""
    if as_json:
        yield None
        return
    with Progress(console=err, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show(group: str, done: int, total: int) -> None:
            if group not in tasks:
                tasks[group] = bar.add_task(f"group {group}", total=total)
            bar.update(tasks[group], completed=done)

        yield show


@app.command()
def ddl(
    engine: Annotated[str, typer.Argument(help="spark, duckdb or trino")],
    config: OptionalConfig = None,
    warehouse: WarehouseOption = None,
) -> None:
    """SQL that gives each view its own name and plain columns in another engine."""
    from streaming.cli.ddl import ddl as statements

    with reported():
        for statement in statements(str(warehouse_of(config, warehouse)), engine):
            print(f"{statement};")


@app.command()
def doctor(config: ConfigOption, as_json: JsonOption = False) -> None:
    """Check everything a pipeline needs, and say what to do about what is wrong."""
    from streaming.cli.tables import findings_table
    from streaming.service.doctor import examine

    with reported(as_json):
        findings = examine(config)
    if as_json:
        print(json.dumps([finding.as_dict() for finding in findings]))
    else:
        out.print(findings_table(findings))
    raise typer.Exit(1 if any(finding.bad for finding in findings) else 0)


def main() -> None:
    """Entry point of the `fresco` script."""
    quiet_libraries()
    status = 1
    try:
        app()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
        raise
    finally:
        leave_soon(status)


if __name__ == "__main__":
    main()
