"""A table that changes while it is captured, the views over it, and their truth, for tests.

The truth of a view at a number is its tree over the table's true rows then, in plain Python.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from streaming.algebra.bag import Bag, bag, evaluate
from streaming.captured.captured_schema import CapturedRelation, CapturedSource, captured
from streaming.cdc.intake import Intake, IntakeResult
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import ViewError
from streaming.messages import ActionList, Control, Suspend, Updates
from streaming.packed_rows import locate, pack, unpack
from streaming.pipeline.catalog import parse_view
from streaming.viewmanagers.base import Codec, ManagedView
from streaming.viewmanagers.replica import ReplicaManager
from tests.engines import ENGINE
from tests.sourcelog import Record, SourceLog, Topics

Row = dict[str, Any]
COLUMNS = {"id": "int8", "account": "int4", "amount": "numeric(18,2)", "note": "varchar(10)"}
VIEWS = {
    "accounts": "SELECT account, COUNT(*) AS n FROM north.entry GROUP BY account",
    "totals": "SELECT account, SUM(amount) AS total FROM north.entry GROUP BY account",
    "large": "SELECT id FROM north.entry WHERE amount > 5",
    "notes": "SELECT id, note FROM north.entry",
    "others": "SELECT id, words FROM north.other",
}
"""Only `totals` and `large` read the amount, one of them in its condition; `notes` reads the note."""
READ = {"amount": {"totals", "large"}, "note": {"notes"}, "account": {"accounts", "totals"}}
NOWHERE = Path("/nowhere")


def no_stage(content: bytes) -> str:
    raise AssertionError("small rows travel inline")


def entry(key: Sequence[str] = ("id",)) -> CapturedRelation:
    columns = list(COLUMNS.items())
    return captured("north.entry", "north.public.entry", columns, key=key, decimals="string")


OTHER = captured("north.other", "north.public.other", [("id", "int8"), ("words", "text")])
CONNECT = {
    "int8": {"type": "int64"},
    "int4": {"type": "int32"},
    "text": {"type": "string"},
    "varchar(10)": {"type": "string"},
    "numeric(18,2)": {"type": "string"},
    "date": {"type": "int32", "name": "io.debezium.time.Date"},
    "double precision": {"type": "double"},
}


def wrapped(record: Record, types: Mapping[str, str]) -> Record:
    """The event with Kafka Connect's schema part, as the table is now."""
    row = [{"field": name, **CONNECT[type_], "optional": True} for name, type_ in types.items()]
    fields = [{"type": "struct", "fields": row, "field": side} for side in ("before", "after")]
    return record[0], json.dumps(
        {
            "schema": {"type": "struct", "fields": fields, "name": "north.public.entry.Envelope"},
            "payload": json.loads(record[1] or "null"),
        }
    )


@dataclass
class Table:
    """The table at its source, its views' managers, and what they sent.

    Attributes:
        rows: true rows by id, with the columns the table has now.
        types: those columns.
        suspended: view -> its last good number and error.
        truth: the views' bags after each number, as long as they can be told.
    """

    with_schema: bool = False
    key: Sequence[str] = ("id",)
    snapshot: bool = False
    rows: dict[int, Row] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=lambda: dict(COLUMNS))
    suspended: dict[str, Suspend] = field(default_factory=dict)
    results: list[IntakeResult] = field(default_factory=list)
    truth: list[dict[str, Bag]] = field(default_factory=list)

    def __post_init__(self) -> None:
        relations = [entry(self.key), OTHER]
        by_name = {one.relation.name: one.relation for one in relations}
        self.log, self.topics = SourceLog("north"), Topics()
        self.views = {
            name: parse_view(f"CREATE MATERIALIZED VIEW {name} AS {text}", by_name)
            for name, text in VIEWS.items()
        }
        self.intake = Intake(
            relations,
            list(self.views.values()),
            {"main": list(self.views)},
            sources=[CapturedSource("north", "north", snapshot=self.snapshot)],
            engine=ENGINE,
        )
        codec = Codec(lambda table: pack(table, no_stage), lambda rows: locate(rows, NOWHERE))
        self.managers = {
            name: ReplicaManager(
                ManagedView(name, "main", view.tree), DuckEvaluator(view.tree, threads=1), codec
            )
            for name, view in self.views.items()
        }
        self.sent: dict[str, list[tuple[int, int, tuple[Any, ...]]]] = {n: [] for n in self.views}
        if not self.snapshot:
            self.take([])
            self.truth.append(self.evaluated())

    # The source -----------------------------------------------------------------------------------

    def put(self, id_: int, **values: Any) -> Record:
        """Insert or update a row; a value of None stands for NULL."""
        before = self.rows.get(id_)
        after = {name: None for name in self.types} | (before or {}) | {"id": id_, **values}
        self.rows[id_] = {name: after[name] for name in self.types}
        return self._event("c" if before is None else "u", before, self.rows[id_])

    def delete(self, id_: int) -> Record:
        return self._event("d", self.rows.pop(id_), None)

    def drop(self, column: str) -> None:
        """ALTER TABLE ... DROP COLUMN: the rows that are there lose it too."""
        del self.types[column]
        for row in self.rows.values():
            del row[column]

    def add(self, column: str, type_: str, value: Any = None) -> None:
        """ALTER TABLE ... ADD COLUMN ... DEFAULT."""
        self.types[column] = type_
        for row in self.rows.values():
            row[column] = value

    def retype(self, column: str, type_: str, convert: Any) -> None:
        """ALTER TABLE ... ALTER COLUMN ... TYPE ... USING."""
        self.types[column] = type_
        for row in self.rows.values():
            row[column] = None if row[column] is None else convert(row[column])

    def commit(self, *records: Record, other: int | None = None) -> int:
        """One transaction with these events, taken in; returns its number."""
        self.log.transaction += 1
        key = str(self.log.transaction)
        events = [self.log.begin(key)]
        for order, record in enumerate(records, 1):
            self.log.lsn += 10
            event = json.loads(record[1] or "null")
            event["source"]["lsn"] = self.log.lsn
            event["transaction"] = {"id": f"{key}:{self.log.lsn}", "total_order": order}
            plain = (record[0], json.dumps(event))
            events.append(wrapped(plain, self.types) if self.with_schema else plain)
        counts = {"entry": len(records)}
        self.log.lsn += 10
        self.take([*events, self.log.end(key, counts)])
        self.truth.append(self.evaluated())
        return len(self.truth) - 1

    def _event(self, op: str, before: Row | None, after: Row | None) -> Record:
        return self.log.row("entry", op, before, after, key="0", order=1)

    # The pipeline ---------------------------------------------------------------------------------

    def take(self, records: Iterable[Record]) -> IntakeResult:
        """One batch through the intake and all view managers."""
        result = self.intake.step(self.topics.batch(records), 0)
        self.results.append(result)
        whole = tuple(
            Control(number=number, relation=name, kind="tainted")
            for number, names in result.tainted.items()
            for name in names
        )
        if result.first <= result.last:
            message = Updates(
                group="main",
                first=result.first,
                last=result.last,
                runs=result.runs["main"],
                relations={n: pack(rows, no_stage) for n, rows in result.updates.items()},
                controls=result.controls + whole,
            )
            for name in self.managers.keys() - self.suspended.keys():
                self._maintain(name, message)
        return result

    def _maintain(self, name: str, message: Updates) -> None:
        manager, lists = self.managers[name], list[ActionList]()
        try:
            lists += manager.handle_all([message])
        except ViewError as error:
            before, self.suspended[name] = manager.suspend([message], error)
            lists += before
        manager.advance()
        for one in lists:
            if one.delta is not None:
                rows = unpack(one.delta, NOWHERE)
                for number, count, *values in zip(*rows.to_pydict().values(), strict=True):
                    self.sent[name].append((number, count, tuple(values)))

    # The truth ------------------------------------------------------------------------------------

    def evaluated(self) -> dict[str, Bag]:
        """Every view from scratch over the true rows; a column that is not there any more is NULL."""
        read = {"amount": Decimal, "account": int, "note": str, "id": int}
        rows = [
            tuple(_as(read[name], row.get(name)) for name in COLUMNS) for row in self.rows.values()
        ]
        relations = {"north.entry": bag(rows), "north.other": bag([])}
        return {name: evaluate(view.tree, relations) for name, view in self.views.items()}

    def check(self, *going_on: str) -> None:
        """These views equal recomputation at every number, the others up to their last good one."""
        assert set(self.views) - set(self.suspended) == set(going_on)
        for name in self.views:
            last = self.suspended[name].after if name in self.suspended else len(self.truth) - 1
            for number in range(last + 1):
                found = bag([(r, m) for n, m, r in self.sent[name] if n <= number], counted=True)
                assert found == self.truth[number][name], (name, number)
            assert all(n <= last for n, _, _ in self.sent[name]), name


def _as(type_: Any, value: Any) -> Any:
    """The value in its captured type; None where it has none."""
    try:
        return None if value is None else type_(value)
    except (ValueError, ArithmeticError):
        return None
