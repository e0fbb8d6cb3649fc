"""What must hold of a warehouse at rest, each judged from other evidence.

`verify` recomputes from `_updates`, `verify --source` asks the databases, the second assembly reads
the raw topics, and PostgreSQL itself counts and hashes its rows.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from deltalake import DeltaTable
from second_assembly import Captured, assemble, read_topics
from services import Pipeline

from streaming.proof.databases import databases
from streaming.proof.verdicts import Verdict, verify_pipeline, verify_sources
from streaming.readers import Warehouse
from streaming.warehouse.names import physical_name
from streaming.warehouse.updates import UpdatesReader

COLUMNS = {
    "account": {"id": "bigint", "owner": "string", "branch": "string"},
    "entry": {"id": "bigint", "account": "bigint", "amount": "decimal(18,2)"},
    "fresco_global": {"id": "string", "parts": "int"},
}
CAPTURED = [
    Captured(f"{source}.{table}", f"{source}.public.{table}", columns, ("id",))
    for source in ("north", "south")
    for table, columns in COLUMNS.items()
]
_HASHED = """
SELECT count(*), coalesce(sum(('x' || substr(md5(concat_ws('|', id, account, amount)), 1, 15))
                              ::bit(60)::bigint), 0)
FROM entry
"""


def assert_proved(
    pipeline: Pipeline, dsns: Mapping[str, str], bootstrap: str, sample: int = 50
) -> None:
    """Everything below holds; `sample` numbers are recomputed, and every number's rows compared."""
    assert_complete(verify_pipeline(pipeline.warehouse, sample))
    assert_equal(verify_sources(pipeline.warehouse, databases(pipeline.read_config())))
    assert second_assembly_differs(pipeline, bootstrap) == []
    for source, dsn in dsns.items():
        assert recorded_entries(pipeline, source) == database_entries(dsn), source
    assert_every_epoch_once(pipeline)
    assert_no_change_twice(pipeline)


def assert_complete(verdict: Verdict) -> None:
    """Every view and the group reached completeness."""
    assert verdict.problems == ()
    levels = {(line.kind, line.name): (line.achieved, line.witness) for line in verdict.lines}
    assert {level for level, _ in levels.values()} == {"complete"}, levels
    assert {kind for kind, _ in levels} == {"view", "group"}
    assert verdict.holds


def assert_equal(verdict: Verdict) -> None:
    """Every relation and every view equals the databases."""
    different = {line.name: line.witness for line in verdict.lines if line.achieved != "equal"}
    assert not different
    assert verdict.holds and verdict.lines


def second_assembly_differs(pipeline: Pipeline, bootstrap: str) -> list[str]:
    """What in `_updates` the raw topics do not say."""
    topics = [one.topic for one in CAPTURED] + ["north.transaction", "south.transaction"]
    assembly = assemble(read_topics(bootstrap, topics), CAPTURED)
    assert assembly.incomplete == []
    assert any(len(parts) == 2 for parts in assembly.globals.values())
    opened = Warehouse(pipeline.warehouse)
    reader = UpdatesReader(str(pipeline.warehouse))
    truncates = [
        (one.number, one.relation) for one in reader.controls(-1, 1 << 62) if one.kind == "truncate"
    ]
    updates = {one.relation: opened.updates(one.relation) for one in CAPTURED}
    return assembly.compare(updates, reader.transactions(-1, 1 << 62), (), truncates)


def database_entries(dsn: str) -> tuple[int, int]:
    """Count and hash of a database's entries, made by PostgreSQL."""
    with psycopg.connect(dsn) as connection:
        count, hashed = connection.execute(_HASHED).fetchone() or (0, 0)
    return int(count), int(hashed)


def recorded_entries(pipeline: Pipeline, source: str) -> tuple[int, int]:
    """The same of the recorded updates, read by delta-rs and folded here."""
    relation = f"{source}.entry"
    table = DeltaTable(str(pipeline.warehouse / "_updates")).to_pyarrow_table(
        [("relation", "=", relation)]
    )
    rows: Counter[tuple[Any, ...]] = Counter()
    structs = table.column(physical_name(relation)).to_pylist()
    for row, multiplicity in zip(structs, table.column("multiplicity").to_pylist(), strict=True):
        rows[tuple(row.values())] += multiplicity
    assert set(rows.values()) <= {0, 1}
    hashes = [
        int(hashlib.md5("|".join(map(str, row)).encode()).hexdigest()[:15], 16)
        for row, times in rows.items()
        if times
    ]
    return len(hashes), sum(hashes)


def assert_every_epoch_once(pipeline: Pipeline) -> None:
    """Epochs are 1, 2, ... and cover each number once, in the log's own words too."""
    epochs = pipeline.epochs()
    assert [one.epoch for one in epochs] == list(range(1, len(epochs) + 1))
    covered = sorted(run for one in epochs for run in one.added)
    following = 0
    for first, last in covered:
        assert first == following, f"number {following} is published twice or never"
        following = last + 1
    assert following == epochs[-1].frontier + 1
    for table in (pipeline.group, f"{pipeline.group}_changes", "_updates"):
        versions = _application_versions(pipeline.warehouse / table)
        assert versions and all(found == sorted(set(found)) for found in versions.values()), (
            f"{table}: {versions}"
        )


def _application_versions(table: Path) -> dict[str, list[int]]:
    """Application -> its versions in the order of a Delta table's commits."""
    found: dict[str, list[int]] = {}
    for file in sorted((table / "_delta_log").glob("*[0-9].json")):
        for line in file.read_text().splitlines():
            if transaction := json.loads(line).get("txn"):
                found.setdefault(transaction["appId"], []).append(transaction["version"])
    return found


def assert_no_change_twice(pipeline: Pipeline) -> None:
    """A row changes in a view at a number once: what is more has been written twice."""
    table = DeltaTable(str(pipeline.warehouse / f"{pipeline.group}_changes")).to_pyarrow_table()
    views = [name for name in table.column_names if name not in ("view", "number", "multiplicity")]
    seen: Counter[Any] = Counter()
    for row in table.to_pylist():
        values = [tuple(row[name].values()) for name in views if row[name] is not None]
        assert len(values) == 1 and row["multiplicity"] != 0
        seen[row["view"], row["number"], values[0]] += 1
    assert seen and [one for one, times in seen.items() if times > 1] == []
