"""The second assembly agrees with the first on recorded topics, and notices what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from second_assembly import Assembly, Captured, assemble

from streaming.algebra.tree import Relation
from streaming.captured.captured_schema import CapturedRelation
from streaming.cdc.intake import Intake, IntakeResult
from streaming.scalars.expression import Column
from streaming.scalars.types import delta_schema

RECORDED = Path(__file__).parent.parent / "golden" / "debezium" / "bank.jsonl"
COLUMNS = {
    "account": {"id": "bigint", "owner": "string", "branch": "string"},
    "entry": {"id": "bigint", "account": "bigint", "amount": "decimal(18,2)"},
    "fresco_global": {"id": "string", "parts": "int"},
}
DATABASE_TYPES = {
    "bigint": "bigint", "string": "text", "decimal(18,2)": "numeric(18,2)", "int": "integer",
}  # fmt: skip
CAPTURED = [
    Captured(f"{source}.{table}", f"{source}.public.{table}", columns)
    for source in ("north", "south")
    for table, columns in COLUMNS.items()
]
SCHEMAS = {
    one.relation: tuple(Column(name, kind) for name, kind in one.columns.items())
    for one in CAPTURED
}


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return [json.loads(text) for text in RECORDED.read_text().splitlines()]


@pytest.fixture(scope="module")
def first(records: list[dict[str, Any]]) -> IntakeResult:
    """The product's assembly of the same records."""
    captured = [
        CapturedRelation(
            Relation(one.relation, SCHEMAS[one.relation], (0,)),
            one.topic,
            one.source,
            tuple(DATABASE_TYPES[kind] for kind in one.columns.values()),
        )
        for one in CAPTURED
    ]

    def encoded(name: str) -> pa.Array:
        texts = [record[name] for record in records]
        return pa.array([t.encode() if t is not None else None for t in texts], pa.binary())

    batch = pa.table(
        {
            "topic": [record["topic"] for record in records],
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array([record["offset"] for record in records], pa.int64()),
            "key": encoded("key"),
            "value": encoded("value"),
        }
    )
    return Intake(captured, [], {"g": ()}).step(batch, 1_900_000_000_000)


def compare(second: Assembly, first: IntakeResult, **changed: pa.Table) -> list[str]:
    updates = {
        name: first.updates.get(name, delta_schema(schema).empty_table())
        for name, schema in SCHEMAS.items()
    }
    transactions = changed.pop("transactions", first.transactions)
    truncates = [(control.number, control.relation) for control in first.controls]
    return second.compare({**updates, **changed}, transactions, first.released, truncates)


def test_both_assemblies_agree(records: list[dict[str, Any]], first: IntakeResult) -> None:
    second = assemble(records, CAPTURED)
    assert second.incomplete == []
    assert len(second.globals["g-1"]) == 2
    assert compare(second, first) == []


def test_topics_in_another_order_among_themselves_change_nothing(
    records: list[dict[str, Any]], first: IntakeResult
) -> None:
    by_topic = sorted(records, key=lambda record: record["topic"], reverse=True)
    assert compare(assemble(by_topic, CAPTURED), first) == []


def test_events_that_a_connector_sends_again_count_once(
    records: list[dict[str, Any]], first: IntakeResult
) -> None:
    again = assemble([*records, *_stream_only(records)], CAPTURED)
    assert compare(again, first) == []


def _stream_only(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records without the snapshot's, which a restarted connector does not send again."""
    return [r for r in records if r["value"] is None or '"op":"r"' not in r["value"]]


def test_a_lost_row_a_doubled_row_and_a_moved_row_are_found(
    records: list[dict[str, Any]], first: IntakeResult
) -> None:
    second = assemble(records, CAPTURED)
    rows = first.updates["north.entry"]
    lost = rows.slice(0, rows.num_rows - 1)
    doubled = pa.concat_tables([rows, rows.slice(rows.num_rows - 1)])
    number = pa.array([n + 1 for n in rows.column(0).to_pylist()], pa.int64())
    moved = rows.set_column(0, rows.schema.field(0), number)
    for wrong in (lost, doubled, moved):
        assert compare(second, first, **{"north.entry": wrong})


def test_a_split_global_transaction_and_a_missing_one_are_found(
    records: list[dict[str, Any]], first: IntakeResult
) -> None:
    second = assemble(records, CAPTURED)
    entries = first.transactions.to_pylist()
    missing = pa.Table.from_pylist(entries[1:], schema=first.transactions.schema)
    assert any("has no number" in one for one in compare(second, first, transactions=missing))
    part = second.globals["g-1"][0]
    for entry in entries:
        if (entry["source"], entry["transaction"]) == part:
            entry["number"] += 1_000
    split = pa.Table.from_pylist(entries, schema=first.transactions.schema)
    found = compare(second, first, transactions=split)
    assert any("global transaction g-1" in one for one in found)
