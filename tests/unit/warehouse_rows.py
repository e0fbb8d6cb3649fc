"""Views and deltas for the warehouse's tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming.scalars.expression import Column
from streaming.scalars.types import delta_schema
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.epoch import Epoch, Runs, merge_runs

BALANCE = ViewTable(
    "balance",
    (Column("account", "bigint"), Column("total", "decimal(18,2)")),
    (0,),
)
ODD = ViewTable(
    "Flow of, (money)",
    (
        Column("Id", "int"),
        Column("id", "string"),
        Column("a.b c;", "double"),
        Column("at", "timestamp"),
        Column("raw", "binary"),
        Column("day", "date"),
        Column("flag", "boolean"),
        Column("tiny", "tinyint"),
        Column("exact", "decimal(38,10)"),
        Column("local", "timestamp_ntz"),
        Column("single", "float"),
    ),
)
LINES = ViewTable("lines", (Column("text", "string"), Column("number", "bigint")))


def delta(view: ViewTable, rows: Sequence[Sequence[object]]) -> pa.Table:
    """A delta from rows (number, multiplicity, value, ...)."""
    schema = delta_schema(view.schema)
    columns = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def frontier_of(covered: Runs) -> int:
    """The largest n such that every number from 0 to n is covered; -1 when there is none."""
    return covered[0][1] if covered and covered[0][0] <= 0 else -1


def next_epoch(before: Epoch | None, group: str, added: Runs, **more: Any) -> Epoch:
    """The epoch after `before` that covers `added` too; `more` are `Epoch`'s other attributes."""
    covered = merge_runs(before.covered if before else (), added)
    number = before.epoch + 1 if before else 1
    return Epoch(group, number, merge_runs(added), covered, frontier_of(covered), **more)


def write_catalog(warehouse: Path, group: str, views: Sequence[ViewTable]) -> None:
    """A catalog with these views, as `streaming.pipeline.catalog` writes it."""
    entries = [
        {
            "name": view.name,
            "group": group,
            "schema": [{"name": one.name, "type": one.type} for one in view.schema],
            "key": list(view.key),
            "since": view.since,
            "column": view.column,
        }
        for view in views
    ]
    folder = warehouse / "_catalog"
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"views": entries, "relations": []})
    (folder / "views.json").write_text(text)
