"""What every command shares: where it writes, how it names a pipeline, how it tells an error."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from streaming.errors import FrescoError

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


def print_error(error: FrescoError, as_json: bool = False) -> None:
    """One readable block on standard error, or one JSON object on standard output."""
    if as_json:
        print(json.dumps({"error": error.as_dict()}))
        return
    # As text: what stands in brackets is not rich's markup, and a path is not broken.
    err.print(Text.assemble((error.code, "bold red"), f" {error.what}"), soft_wrap=True)
    if error.where:
        err.print(Text(f"  where: {error.where}"), soft_wrap=True)
    if error.todo:
        err.print(Text(f"  do:    {error.todo}"), soft_wrap=True)


@contextmanager
def reported(as_json: bool = False) -> Any:
    """A coded error is printed and ends the command with exit status 1."""
    try:
        yield
    except FrescoError as error:
        print_error(error, as_json)
        raise typer.Exit(1) from error


def warehouse_of(config: Path | None, warehouse: Path | None) -> Path:
    """The warehouse folder that the options name.

    Raises:
        FrescoError: CLI_OPTION, neither does.
    """
    from streaming.config import load_config

    if warehouse is not None:
        return warehouse
    if config is None:
        raise FrescoError("CLI_OPTION", "which warehouse?", todo="pass --warehouse or --config")
    return load_config(config).warehouse
