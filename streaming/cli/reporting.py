"""What every command shares: where it writes, how it names a pipeline, how it tells an error."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.text import Text

from streaming.errors import FrescoError
from streaming.plain import PlainFormatter, plain
from streaming.scalars import written
from streaming.service.screen import Screen

LEAVE_SECONDS = 5.0
"""For threads of libraries, once all has been stopped."""

out = Screen()
err = Screen(stderr=True)

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="the pipeline's YAML file")]
JsonOption = Annotated[bool, typer.Option("--json", help="output for programs")]
WarehouseOption = Annotated[
    Path | None, typer.Option("--warehouse", "-w", help="a warehouse folder, instead of --config")
]
OptionalConfig = Annotated[
    Path | None, typer.Option("--config", "-c", help="the pipeline's YAML file")
]


def print_error(error: FrescoError, as_json: bool = False) -> None:
    """One readable block on standard error, or one JSON object on standard output."""
    if as_json:
        print(json.dumps({"error": error.as_dict()}))
        return
    # As text: what stands in brackets is not rich's markup, and a path is not broken.
    err.print(Text.assemble((error.code, "bold red"), f" {plain(error.what)}"), soft_wrap=True)
    if error.where:
        err.print(Text(f"  where: {plain(error.where)}"), soft_wrap=True)
    if error.todo:
        err.print(Text(f"  do:    {plain(error.todo)}"), soft_wrap=True)


def quiet_libraries() -> None:
    """Of what is logged only Fresco's own warnings are shown, one line each.

    What a library has to say of an error is in the coded error; without a handler Python would print it.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    shown = logging.StreamHandler()
    shown.setLevel(logging.WARNING)
    shown.setFormatter(PlainFormatter())
    logging.getLogger("fresco").addHandler(shown)


@contextmanager
def reported(as_json: bool = False) -> Any:
    """A coded error is printed and ends the command with exit status 1."""
    try:
        yield
    except FrescoError as error:
        print_error(error, as_json)
        raise typer.Exit(1) from error


def print_rows(rows: pa.Table, told: Mapping[str, Any]) -> None:
    """An answer for programs: one JSON object a row, each with what is `told` beside its columns.

    Raises:
        FrescoError: READ_SQL, two of the names are the same, so an object would hold one of them.
    """
    names = [*rows.column_names, *told]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise FrescoError(
            "READ_SQL",
            f"two columns of the answer have the name {twice[0]}",
            todo="give each column a name of its own with AS",
        )
    for row in written.rows(rows):
        shown = written.in_json(dict(zip(rows.column_names, row, strict=True)))
        print(json.dumps({**shown, **told}))


def warehouse_of(config: Path | None, warehouse: Path | None) -> Path:
    """The warehouse folder that the options name.

    Raises:
        FrescoError: CLI_OPTION, neither does.
    """
    from streaming.configuration.pipeline_config import load_config

    if warehouse is not None:
        return warehouse
    if config is None:
        raise FrescoError("CLI_OPTION", "which warehouse?", todo="pass --warehouse or --config")
    return load_config(config).warehouse


def leave_soon(status: int) -> None:
    """Let nothing that a library left running keep this process from ending."""
    here = threading.current_thread()
    if any(not one.daemon and one is not here for one in threading.enumerate()):
        last = threading.Timer(LEAVE_SECONDS, os._exit, [status])
        last.daemon = True
        last.start()
