"""`fresco isolated install | remove`: delta tables and triggers at the sources of isolated views.

A command of its own, and no part of `run`: it writes into somebody's database, needs its tables' owner,
and waits for locks there, none of which a service that starts by itself should do. `--sql` prints the
statements for whoever may run them. Both commands may be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from streaming.cli.reporting import ConfigOption, JsonOption, out, reported
from streaming.errors import FrescoError

if TYPE_CHECKING:
    from streaming.isolated.delta_install import Done
    from streaming.isolated.delta_tables import DeltaTable

app = typer.Typer(no_args_is_help=True, help="Delta tables for views USING isolated.")
SourceOption = Annotated[
    str | None, typer.Option("--source", "-s", help="one source; all of them without")
]
OwnerOption = Annotated[
    Path | None,
    typer.Option("--owner-file", help="a file with the URL of the tables' owner, with --source"),
]


@app.command()
def install(
    config: ConfigOption,
    source: SourceOption = None,
    owner_file: OwnerOption = None,
    notify: Annotated[
        bool, typer.Option(help="let triggers notify; commits then wait for each other")
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="print the statements, do nothing")] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the delta tables and triggers that isolated views need, or mend them."""
    from streaming.isolated import delta_install

    with reported(as_json):
        done: list[Done] = []
        for name, reader, owner, tables in _wanted(config, source, owner_file):
            role = delta_install.role_of(reader, name)
            if sql:
                for one in tables:
                    for statement in delta_install.statements(one, role, notify):
                        print(f"{statement.strip()};")
                continue
            done += delta_install.install(owner, name, tables, role, notify=notify)
        if not sql:
            _show(done, as_json)


@app.command()
def remove(
    config: ConfigOption,
    source: SourceOption = None,
    owner_file: OwnerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take the delta tables and triggers away; the views stay as they are until they are back."""
    from streaming.isolated import delta_install

    with reported(as_json):
        wanted = _wanted(config, source, owner_file)
        removed: Callable[..., list[Done]] = delta_install.remove
        _show([one for name, _, owner, ts in wanted for one in removed(owner, name, ts)], as_json)


def _wanted(
    config: Path, source: str | None, owner_file: Path | None
) -> list[tuple[str, str, str, list[DeltaTable]]]:
    """By source: its name, the service's connection, the owner's, and the delta tables."""
    from streaming.configuration.pipeline_config import load_config
    from streaming.isolated.delta_tables import delta_table_of
    from streaming.pipeline.plan import plan_pipeline

    loaded = load_config(config)
    relations = plan_pipeline(loaded).sessions.relations
    if source is not None and source not in relations:
        raise FrescoError(
            "CLI_OPTION",
            f"no isolated view uses source {source}",
            where="--source",
            todo=f"sources with isolated views: {', '.join(sorted(relations)) or 'none'}",
        )
    if owner_file is not None and source is None:
        raise FrescoError("CLI_OPTION", "whose owner?", where="--owner-file", todo="pass --source")
    found = []
    for name in sorted(relations) if source is None else [source]:
        reader = loaded.sources[name].secret() or ""
        owner = reader if owner_file is None else _read(owner_file)
        tables = [delta_table_of(one, loaded.pipeline) for one in relations[name]]
        found.append((name, reader, owner, tables))
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FrescoError(
            "CONFIG_FILE",
            f"the file cannot be read: {type(error).__name__}",
            where=str(file),
            todo="write the URL of the tables' owner into this file, readable for this user",
        ) from None


def _show(done: Sequence[Done], as_json: bool) -> None:
    if as_json:
        print(json.dumps([one.as_dict() for one in done]))
        return
    table = Table("relation", "delta table and triggers")
    for one in done:
        table.add_row(one.relation, one.what)
    out.print(table)
