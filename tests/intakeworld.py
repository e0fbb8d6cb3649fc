"""Two captured tables, the intake over them, and what it makes of a source's log, for tests."""

from __future__ import annotations

from collections import Counter
from typing import Any

from streaming.algebra.tree import Scan
from streaming.sources.intake import Intake, IntakeResult
from streaming.sources.schema import CapturedRelation, CapturedSource, captured
from tests.sourcelog import Record, SourceLog


class BaseView:
    """A view that is a captured relation."""

    def __init__(self, relation: CapturedRelation) -> None:
        self.name = relation.relation.name.replace(".", "_")
        self.tree = Scan(relation.relation.name, relation.relation.schema)


def relations() -> list[CapturedRelation]:
    columns = [("id", "int4"), ("v", "text")]
    return [
        captured("north.account", "north.public.account", columns, key=["id"]),
        captured("north.entry", "north.public.entry", columns),
    ]


def make(
    taken: list[CapturedRelation] | None = None, *, snapshot: bool = False, **options: Any
) -> Intake:
    taken = taken or relations()
    names = dict.fromkeys(relation.source for relation in taken)
    sources = [CapturedSource(name, name, snapshot=snapshot) for name in names]
    views = [BaseView(relation) for relation in taken]
    return Intake(taken, views, {"main": [v.name for v in views]}, sources=sources, **options)


def row(id_: int, v: str | None = "a") -> dict[str, Any]:
    return {"id": id_, "v": v}


def insert(table: str, id_: int, v: str | None = "a") -> tuple:
    return (table, "c", None, row(id_, v))


def net(*results: IntakeResult) -> dict[tuple[int, str], dict[tuple[Any, ...], int]]:
    """(number, relation) -> row -> multiplicity."""
    found: dict[tuple[int, str], Counter] = {}
    for result in results:
        for relation, delta in result.updates.items():
            for record in delta.to_pylist():
                number, count, *values = record.values()
                found.setdefault((number, relation), Counter())[tuple(values)] += count
    return {key: dict(counter) for key, counter in found.items()}


def spoiled(record: Record) -> Record:
    return (record[0], "{not json")


def snapshot_of(log: SourceLog, counts: dict[str, int]) -> list[Record]:
    rows = [
        log.row(table, "r", None, row(i)) for table, count in counts.items() for i in range(count)
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
