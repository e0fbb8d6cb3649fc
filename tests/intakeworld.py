"""Two captured tables, the intake over them, and what it makes of a source's log, for tests."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pyarrow as pa

from streaming.algebra.tree import Scan
from streaming.captured.captured_schema import CapturedRelation, CapturedSource, captured
from streaming.cdc.intake import Intake, IntakeResult
from streaming.scalars.expression import MULTIPLICITY, NUMBER
from streaming.scalars.types import delta_schema
from streaming.warehouse.initial import folded
from tests.engines import ENGINE
from tests.sourcelog import Record, SourceLog


class BaseView:
    """A view that is a captured relation."""

    def __init__(self, relation: CapturedRelation) -> None:
        self.name = relation.relation.name.replace(".", "_")
        self.tree = Scan(relation.relation.name, relation.relation.schema)


class Recorded(list[IntakeResult]):
    """Results as `_updates` keeps them."""

    def contents(self, captured: CapturedRelation, number: int) -> pa.Table:
        """What the relation holds after a number, as a delta."""
        name, schema = captured.relation.name, captured.relation.schema
        controls = [c for one in self for c in one.controls if c.kind == "truncate"]
        emptied = [c.number for c in controls if c.relation == name]
        since = max((n for n in emptied if n <= number), default=0)
        parts = [one.updates[name] for one in self if name in one.updates]
        rows = pa.concat_tables([delta_schema(schema).empty_table(), *parts])
        kept = [since <= n <= number for n in rows[NUMBER].to_pylist()]
        return folded(rows.filter(pa.array(kept, pa.bool_())), schema, number)

    def rows(self, captured: CapturedRelation) -> list[tuple[Any, ...]]:
        """What the relation holds after the last number, sorted; doubled rows doubled."""
        held = self.contents(captured, max(one.last for one in self)).to_pylist()
        return sorted((r["c0"], r["c1"]) for r in held for _ in range(r[MULTIPLICITY]))


def relations(value: str = "text") -> list[CapturedRelation]:
    columns = [("id", "int4"), ("v", value)]
    return [
        captured("north.account", "north.public.account", columns, key=["id"]),
        captured("north.entry", "north.public.entry", columns),
    ]


def make(
    taken: list[CapturedRelation] | None = None,
    *,
    snapshot: bool = False,
    transactions: Literal["metadata", "per-event"] = "metadata",
    **options: Any,
) -> Intake:
    taken = taken or relations()
    names = dict.fromkeys(relation.source for relation in taken)
    sources = [
        CapturedSource(name, name, snapshot=snapshot, transactions=transactions) for name in names
    ]
    views = [BaseView(relation) for relation in taken]
    groups = {"main": [v.name for v in views]}
    return Intake(taken, views, groups, sources=sources, **{"engine": ENGINE, **options})


def row(id_: int, v: str | int | None = "a") -> dict[str, Any]:
    return {"id": id_, "v": v}


def insert(table: str, id_: int, v: str | int | None = "a") -> tuple[Any, ...]:
    return (table, "c", None, row(id_, v))


def net(*results: IntakeResult) -> dict[tuple[int, str], dict[tuple[Any, ...], int]]:
    """(number, relation) -> row -> multiplicity."""
    found: dict[tuple[int, str], Counter[tuple[Any, ...]]] = {}
    for result in results:
        for relation, delta in result.updates.items():
            for record in delta.to_pylist():
                number, count, *values = record.values()
                found.setdefault((number, relation), Counter())[tuple(values)] += count
    return {key: dict(counter) for key, counter in found.items()}


def spoiled(record: Record) -> Record:
    return (record[0], "{not json")


def snapshot_of(log: SourceLog, counts: dict[str, int], v: str | int = "a") -> list[Record]:
    rows = [
        log.row(table, "r", None, row(i, v))
        for table, count in counts.items()
        for i in range(count)
    ]
    return [*rows, *log.scanned(counts)]


def key_change(log: SourceLog, old: dict[str, Any], new: dict[str, Any]) -> list[Record]:
    """d, tombstone and c at one position, as Debezium sends a key change."""
    key = str(log.transaction)
    return [
        log.row("account", "d", old, None, key=key, order=1),
        (log.topic("account"), None),
        log.row("account", "c", None, new, key=key, order=2),
    ]
