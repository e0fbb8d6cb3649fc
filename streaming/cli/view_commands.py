"""`fresco view add | drop | list | resume`: views that come and go while a pipeline runs.

A command checks the change, writes it down (`viewchanges.requests`) and waits for the running service to
make it. Where none runs, the request stays, and the next start makes it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from streaming.cli.reporting import (
    ConfigOption,
    JsonOption,
    OptionalConfig,
    WarehouseOption,
    err,
    out,
    print_error,
    reported,
    warehouse_of,
)
from streaming.errors import FrescoError

if TYPE_CHECKING:
    from streaming.viewchanges.requests import Request

app = typer.Typer(no_args_is_help=True, help="Views that join a running pipeline and leave it.")
WaitOption = Annotated[
    float, typer.Option("--wait", help="seconds to wait for it; the request stays in any case")
]
POLL_SECONDS = 0.2


@app.command()
def add(
    file: Annotated[Path, typer.Argument(help="a view file; it is copied to the pipeline's views")],
    config: ConfigOption,
    wait: WaitOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Let a view join, with the rows it would have had."""
    from streaming.configuration.pipeline_config import load_config
    from streaming.viewchanges.asked_changes import ask_to_add, take_back

    with reported(as_json):
        loaded = load_config(config)
        request = ask_to_add(loaded, file)
        refused = partial(take_back, file, loaded.views, request.view)
        _wait(loaded.warehouse, request, wait, as_json, refused)


@app.command()
def drop(
    name: Annotated[str, typer.Argument(help="a view")],
    config: OptionalConfig = None,
    warehouse: WarehouseOption = None,
    wait: WaitOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Let a view leave; with --config its file is set aside."""
    from streaming.configuration.pipeline_config import load_config
    from streaming.viewchanges.asked_changes import ask_to_drop

    with reported(as_json):
        folder = warehouse_of(config, warehouse)
        views = load_config(config).views if config is not None else None
        _wait(folder, ask_to_drop(folder, name, views), wait, as_json)


@app.command()
def resume(
    name: Annotated[str, typer.Argument(help="a suspended view")],
    config: OptionalConfig = None,
    warehouse: WarehouseOption = None,
    wait: WaitOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """Let a suspended view join again, now that its cause is gone."""
    from streaming.viewchanges.asked_changes import ask_to_resume

    with reported(as_json):
        folder = warehouse_of(config, warehouse)
        _wait(folder, ask_to_resume(folder, name), wait, as_json)


@app.command(name="list")
def list_views(
    config: OptionalConfig = None, warehouse: WarehouseOption = None, as_json: JsonOption = False
) -> None:
    """Every view: since when it is there, whether it goes on, what was asked for."""
    from streaming.service.view_states import view_states

    with reported(as_json):
        found = view_states(warehouse_of(config, warehouse))
    if as_json:
        print(json.dumps([one.as_dict() for one in found]))
        return
    table = Table()
    for column in ("view", "group", "mode", "since", "state", "error"):
        table.add_column(column)
    for one in found:
        state = one.state if one.after is None else f"{one.state} after {one.after}"
        error = f"{one.error['code']}: {one.error['what']}" if one.error else ""
        since = "-" if one.since is None else str(one.since)
        table.add_row(one.view, one.group, one.mode, since, state, error)
    out.print(table)


def skip(
    topic: Annotated[str, typer.Argument(help="of the bad record, as `fresco status` names it")],
    partition: Annotated[int, typer.Argument()],
    offset: Annotated[int, typer.Argument()],
    reason: Annotated[str, typer.Option(help="why nothing is lost by it; kept for an audit")],
    config: OptionalConfig = None,
    warehouse: WarehouseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide that the pipeline goes on without a record that cannot be read."""
    from streaming.viewchanges.skip import skip as decide

    with reported(as_json):
        decision = decide(warehouse_of(config, warehouse), topic, partition, offset, reason)
    if as_json:
        print(json.dumps(decision))
        return
    relation = decision["record"].get("relation") or topic
    out.print(
        f"{topic}, partition {partition}, offset {offset} is skipped: {reason}\nviews of {relation} "
        "that stopped there try to come back by themselves; at once: fresco view resume NAME"
    )


def _wait(
    warehouse: Path,
    request: Request,
    seconds: float,
    as_json: bool,
    refused: Callable[[], object] = lambda: None,
) -> None:
    """Wait for a request's end and tell what came of it; one that was refused ends the command."""
    from streaming.viewchanges.requests import Requests, phase

    requests, number = Requests(warehouse), request.number
    deadline = time.monotonic() + seconds
    said = ""
    with err.status(f"request {number}", spinner="dots") as spinner:
        while requests.told(number, "done") is None and time.monotonic() < deadline:
            if (now := f"view {request.view} {phase(requests, request)}") != said:
                said = now
                spinner.update(said)
            time.sleep(POLL_SECONDS)
    done = requests.told(number, "done")
    if done is not None and "error" in done:
        refused()
        print_error(FrescoError(**done["error"]), as_json)
        raise typer.Exit(1)
    state = phase(requests, request)
    if as_json:
        print(json.dumps({"request": number, "view": request.view, "state": state, "done": done}))
    elif done is not None:
        out.print(f"view {request.view}: {request.change} {state}")
    else:
        out.print(
            f"view {request.view} {state}: request {number} is written down, a running service makes "
            "it, or else the next start; see `fresco view list`"
        )
