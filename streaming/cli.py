"""The `fresco` command (DESIGN 13): what a person runs; output for people, `--json` for programs."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import Progress
from rich.text import Text

from streaming.errors import FrescoError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Many materialized views over several live databases, all at one source state.",
)
out = Console()
err = Console(stderr=True)

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="the pipeline's YAML file")]
JsonOption = Annotated[bool, typer.Option("--json", help="output for programs")]
WarehouseOption = Annotated[
    Path | None, typer.Option("--warehouse", "-w", help="a warehouse folder, instead of --config")
]
OptionalConfig = Annotated[
    Path | None, typer.Option("--config", "-c", help="the pipeline's YAML file")
]


@contextmanager
def _reported(as_json: bool = False) -> Any:
    """A coded error becomes one readable block (or one JSON object) and exit status 1."""
    try:
        yield
    except FrescoError as error:
        if as_json:
            print(json.dumps({"error": error.as_dict()}))
        else:
            # As text: what stands in brackets is not rich's markup, and a path is not broken.
            err.print(Text.assemble((error.code, "bold red"), f" {error.what}"), soft_wrap=True)
            if error.where:
                err.print(Text(f"  where: {error.where}"), soft_wrap=True)
            if error.todo:
                err.print(Text(f"  do:    {error.todo}"), soft_wrap=True)
        raise typer.Exit(1) from error


def _warehouse(config: Path | None, warehouse: Path | None) -> Path:
    """The warehouse folder that the options name."""
    from streaming.config import load_config

    if warehouse is not None:
        return warehouse
    if config is None:
        raise FrescoError("CLI_OPTION", "which warehouse?", todo="pass --warehouse or --config")
    return load_config(config).warehouse


@app.command()
def run(
    config: ConfigOption,
    local_jars: Annotated[
        bool, typer.Option(help="fetch and use local Spark jars (off under spark-submit)")
    ] = True,
) -> None:
    """Run a pipeline until SIGINT or SIGTERM."""
    from streaming.app import serve

    logging.basicConfig(
        level=logging.INFO,
        format="%(message)s",
        handlers=[RichHandler(console=err, show_path=False, markup=False)],
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.WARNING)
    with _reported():
        serve(config, local_jars=local_jars, on_stop=_stop_on_signals)


def _stop_on_signals(stop: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop())


@app.command()
def demo(
    seconds: Annotated[int, typer.Option(help="how long transfers run")] = 60,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="where the stack and the tables are kept")
    ] = None,
    rate: Annotated[float, typer.Option(help="transfers per second")] = 20.0,
    seed: Annotated[int, typer.Option(help="of the workload")] = 1,
    as_json: JsonOption = False,
) -> None:
    """The main job on an embedded stack: two databases, five views, one state."""
    from streaming.demo import run_demo

    with _reported(as_json):
        verdict = run_demo(
            out if not as_json else err, folder, seconds=seconds, rate=rate, seed=seed
        )
    if as_json:
        print(json.dumps(verdict.as_dict()))
    raise typer.Exit(0 if verdict.holds else 1)


@app.command()
def plan(config: ConfigOption, as_json: JsonOption = False) -> None:
    """What would run: views, modes, levels, groups, relations and topics."""
    from streaming.config import load_config
    from streaming.console.show import plan_table
    from streaming.runtime.plan import plan_pipeline

    with _reported(as_json):
        pipeline = plan_pipeline(load_config(config))
        if as_json:
            print(json.dumps(pipeline.as_dict()))
        else:
            out.print(plan_table(pipeline))


@app.command()
def status(
    config: OptionalConfig = None, warehouse: WarehouseOption = None, as_json: JsonOption = False
) -> None:
    """Where a pipeline stands: frontiers, freshness, suspended views, stages."""
    from streaming.console.show import status_table
    from streaming.runtime.status import pipeline_status

    with _reported(as_json):
        found = pipeline_status(_warehouse(config, warehouse))
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
    limit: Annotated[int, typer.Option(help="rows shown to people")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Ask the views, all at one state."""
    from streaming.console.show import rows_table
    from streaming.readers import Warehouse

    with _reported(as_json):
        rows = Warehouse(_warehouse(config, warehouse)).sql(
            query, epoch=epoch, transaction=transaction
        )
        if as_json:
            for row in rows.to_pylist():
                print(json.dumps(row, default=str))
        else:
            out.print(rows_table(rows, limit))


@app.command()
def verify(
    config: OptionalConfig = None,
    warehouse: WarehouseOption = None,
    source: Annotated[bool, typer.Option("--source", help="compare with the databases")] = False,
    sample: Annotated[int, typer.Option(help="numbers to check, 0 for all")] = 200,
    seed: Annotated[int, typer.Option(help="of the sample")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Recompute the views from the recorded updates and say which level they really have."""
    from streaming.config import load_config
    from streaming.console.show import verdict_table
    from streaming.runtime.plan import databases
    from streaming.verify import verify_pipeline, verify_sources

    with _reported(as_json):
        folder = _warehouse(config, warehouse)
        if source:
            if config is None:
                raise FrescoError(
                    "CLI_OPTION", "--source needs the databases' connections", todo="pass --config"
                )
            verdict = verify_sources(folder, databases(load_config(config)))
        else:
            with _progress(as_json) as progress:
                verdict = verify_pipeline(folder, sample or None, seed, progress)
        if as_json:
            print(json.dumps(verdict.as_dict(), default=str))
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
    from streaming.ddl import ddl as statements

    with _reported():
        for statement in statements(str(_warehouse(config, warehouse)), engine):
            print(f"{statement};")


@app.command()
def doctor(config: ConfigOption, as_json: JsonOption = False) -> None:
    """Check everything a pipeline needs, and say what to do about what is wrong."""
    from streaming.console.show import findings_table
    from streaming.runtime.doctor import examine

    with _reported(as_json):
        findings = examine(config)
    if as_json:
        print(json.dumps([finding.as_dict() for finding in findings]))
    else:
        out.print(findings_table(findings))
    raise typer.Exit(1 if any(finding.bad for finding in findings) else 0)


def main() -> None:
    """Entry point of the `fresco` script."""
    app()


if __name__ == "__main__":
    main()
