"""Records as Debezium writes them under other settings than it must have, and odd ones that are right."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa
import pytest

from streaming.captured.captured_schema import CapturedSource, captured
from streaming.cdc.record_shapes import EVENTS, FEW, HABIT, SHAPES, FirstRecords, check_shapes

SOURCE = CapturedSource("north", "north")
NOW = 1_795_000_000
"""Seconds, in 2026."""


def relation(type_: str, decimals: Any = "precise") -> Any:
    columns = [("id", "integer"), ("v", type_)]
    return captured("north.t", "north.public.t", columns, key=["id"], decimals=decimals)


def event(value: Any, **more: Any) -> bytes:
    said = {"op": "c", "before": None, "after": {"id": 1, "v": value}, "transaction": {"id": "1:2"}}
    return json.dumps({**said, **more}).encode()


def said(type_: str, *values: Any, decimals: str = "precise") -> list[str]:
    found = check_shapes(relation(type_, decimals), SOURCE, [event(one) for one in values])
    listed = list(found)
    assert {one.code for one in listed} <= {"SOURCE_RECORD_SHAPE"} and all(
        one.bad for one in listed
    )
    return [one.todo for one in listed]


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


BETRAYED = [
    # time.precision.mode = connect, microseconds, nanoseconds, isostring
    ("timestamp(6)", [NOW * 10**3 + n for n in range(3)], "time.precision.mode"),
    ("timestamp(6)", [NOW * 10**9 + n for n in range(3)], "time.precision.mode"),
    ("timestamp", [NOW * 10**9 + n for n in range(3)], "time.precision.mode"),
    ("timestamp(3)", [NOW * 10**6 + n for n in range(3)], "time.precision.mode"),
    ("timestamp(0)", [NOW * 10**9 + n for n in range(3)], "time.precision.mode"),
    ("timestamp(6)", ["2026-11-29T01:02:03.000004Z"], "time.precision.mode"),
    ("date", ["2026-11-29"], "time.precision.mode"),
    ("date", [20000 * 86_400, 19000 * 86_400, 18000 * 86_400], "time.precision.mode"),
    # decimal.handling.mode = double; or value.converter.decimal.format = NUMERIC
    ("numeric(10,2)", [1.5, 2], "decimal.handling.mode"),
    ("numeric(10,0)", ["150"], "decimal.handling.mode"),
    ("numeric(10,0)", ["-1500"], "decimal.handling.mode"),
    ("numeric(10,0)", ["1500"] * 8, "decimal.handling.mode"),
    # binary.handling.mode = hex, base64-url-safe
    ("bytea", ["00ff17aa" * 4], "binary.handling.mode"),
    ("bytea", ["_-8=", "-w==", "a_A="], "binary.handling.mode"),
    ("bigint unsigned", ["AIrHIwSJ6AAA"], "bigint.unsigned.handling.mode"),
    ("text", ["*****"] * 3, "column.mask"),
]


@pytest.mark.parametrize(("type_", "values", "setting"), BETRAYED)
def test_newest_values_betray_a_setting(type_: str, values: list[Any], setting: str) -> None:
    (todo,) = said(type_, *values)
    assert f"see to {setting}" in todo or f"see to no {setting}" in todo, todo


def test_decimals_as_base64_betray_the_mode_where_digits_are_expected() -> None:
    (todo,) = said("numeric(10,2)", "AJY=", b64(b"\x01\x00"), decimals="string")
    assert "decimal.handling.mode=string" in todo


RIGHT = [
    ("timestamp(6)", [NOW * 10**6 + n for n in range(9)]),
    ("timestamp(3)", [NOW * 10**3 + n for n in range(9)]),
    ("timestamp(6)", [0, 1, -1, 10**6, 9223372036825200000]),
    ("timestamp(6)", [9223372036825200000, -9223372036832400000] * 3),
    ("timestamp(6)", [NOW * 10**3] * 2),
    ("timestamp(6)", [NOW * 10**3] * 5 + [NOW * 10**6]),
    ("timestamptz", ["2026-11-29T01:02:03Z"] * 5),
    ("date", [20000, 0, -700000, 2147483647, -2147483647]),
    ("numeric(10,2)", ["AJY=", "1.50"]),
    ("numeric(10,0)", [b64(b"\xd7\x6d\xf8")]),
    ("numeric(10,0)", ["1234", "AA=="]),
    ("numeric", [{"scale": 2, "value": "AJY="}, "NaN"]),
    ("bytea", [b64(bytes(range(256))), b64(b"ab"), ""]),
    ("bytea", ["abcd", "0000"]),
    ("bigint unsigned", [1, -1]),
    ("text", ["*", "", "**", "a"]),
    ("text", ["2026-11-29", "00ff" * 20, "AA=="]),
    ("integer", [1, 2]),
    ("boolean", [True, False]),
    ("double precision", [1.5, "NaN"]),
]


@pytest.mark.parametrize(("type_", "values"), RIGHT)
def test_right_values_betray_nothing(type_: str, values: list[Any]) -> None:
    assert said(type_, *values, *[None] * 3) == []


@pytest.mark.parametrize("value", ["1.50", "NaN", "-7", "1500", "0"])
def test_digits_are_digits_where_they_are_expected(value: str) -> None:
    assert said("numeric(10,2)", *[value] * 40, decimals="string") == []


@pytest.mark.parametrize(
    ("record", "setting"),
    [
        (b"Struct{id=1}", "value.converter"),
        (json.dumps({"id": 1, "v": 2}).encode(), "no transforms"),
        (event(1, transaction=None), "provide.transaction.metadata"),
        (event(1, op="u"), "REPLICA IDENTITY FULL"),
    ],
)
def test_whole_records_betray_a_setting_where_all_are_so(record: bytes, setting: str) -> None:
    """One alone is a bad record, which suspends the views of its relation and no more."""
    found = list(check_shapes(relation("integer"), SOURCE, [record] * FEW))
    assert [f"see to {setting}" in one.todo for one in found] == [True]
    assert list(check_shapes(relation("integer"), SOURCE, [record, record, event(1)])) == []


def test_a_producer_without_transactions_has_no_connector() -> None:
    alone = CapturedSource("north", "north", transactions="per-event")
    records = [event(1.5, transaction=None)] * 5
    assert list(check_shapes(relation("numeric(10,2)"), alone, records)) == []


def test_events_with_a_schema_part_say_it_themselves() -> None:
    wrapped = [json.dumps({"schema": {}, "payload": {}}).encode()]
    assert list(check_shapes(relation("integer"), SOURCE, wrapped * 5)) == []


def test_nothing_and_messages_betray_nothing() -> None:
    assert list(check_shapes(relation("integer"), SOURCE, [])) == []
    assert (
        list(check_shapes(relation("integer"), SOURCE, [event(1, op="m", transaction=None)] * 5))
        == []
    )


def test_every_shape_is_tried() -> None:
    tried = {
        shape.says
        for type_, values, _ in BETRAYED
        for shape in SHAPES
        if shape.of(relation(type_), 1) and shape.betrays(values)
    }
    assert tried == {one.says for one in SHAPES} - {"base64, where decimals are expected as digits"}
    assert len(EVENTS) == 4


def test_the_first_records_that_come_while_a_pipeline_runs_are_judged_once() -> None:
    """In whatever batches they come; other topics and tombstones are no records of the table's."""
    first = FirstRecords([(relation("timestamp(6)"), SOURCE)])
    wrong = event(NOW * 10**3)

    def batch(*values: bytes | None, topic: str = "north.public.t") -> pa.Table:
        return pa.table({"topic": [topic] * len(values), "value": pa.array(values, pa.binary())})

    assert first.look(batch()) == first.look(batch(*[wrong] * 40, topic="other")) == []
    assert first.look(batch(*[wrong] * (HABIT - 1), None, None)) == []
    (found,) = first.look(batch(wrong))
    assert found.bad and "have in v moments that make sense in milliseconds" in found.says
    assert first.look(batch(*[wrong] * 40)) == []


@pytest.mark.parametrize(
    "type_", ["integer", "numeric(10,0)", "timestamp", "date", "bytea", "text"]
)
def test_whatever_stands_in_a_record_it_is_looked_at_without_an_error(type_: str) -> None:
    """Each is a bad record where it cannot be read; the look at its shape must not end the service."""
    odd: list[Any] = [
        *({}, [], "x", "", True, 1e308, 10**30, -1, 2**63, [[[]]], "\ud800", "NaN"),
        *({"scale": 10**9, "value": "AQ=="}, {"value": None}, "====", "99999-01-01T00:00:00Z"),
    ]
    records = [event(one) for one in odd]
    for place in ("op", "before", "after", "transaction"):
        records += [event(1, **{place: one}) for one in odd]
    records += [b"[" * 100_000, b"\xff\xfe", b"null", b"1", b"[]", b'""', b"{}"]
    for at in range(len(records)):
        list(check_shapes(relation(type_), SOURCE, [records[at]] * 5))
    list(check_shapes(relation(type_), SOURCE, records))
