"""Values of every supported type, as Debezium 3.6.1 recorded them
(`golden/debezium/types*.jsonl`).
"""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streaming.captured.captured_schema import captured, schema_from_connect, spark_type
from streaming.cdc.debezium import Decoder
from streaming.cdc.records import Decoded
from tests.sourcelog import RECORDS, SourceLog, Topics

GOLDEN = Path(__file__).parent.parent / "golden" / "debezium"
COLUMNS = [
    ("id", "integer"),
    ("n_free", "numeric"),
    ("n_wide", "numeric(38,10)"),
    ("n_money", "numeric(18,2)"),
    ("at_zone", "timestamp with time zone"),
    ("at_wall", "timestamp without time zone"),
    ("at_milli", "timestamp(3) without time zone"),
    ("on_day", "date"),
    ("at_time", "time without time zone"),
    ("flag", "boolean"),
    ("i2", "smallint"),
    ("i4", "integer"),
    ("i8", "bigint"),
    ("f4", "real"),
    ("f8", "double precision"),
    ("words", "text"),
    ("limited", "character varying(20)"),
    ("padded", "character(4)"),
    ("bytes", "bytea"),
    ("uid", "uuid"),
    ("doc", "jsonb"),
    ("doc_text", "json"),
    ("Mixed Case, name", "text"),
]
FREE = [pair for pair in COLUMNS if pair[0] != "n_free"]
"""Without the NUMERIC whose values cannot all be held."""


def read_golden(name: str) -> pa.Table:
    lines = [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]
    for line in lines:
        line["key"] = line["key"].encode() if line["key"] else None
        line["value"] = line["value"].encode() if line["value"] else None
    return pa.Table.from_pylist(lines, schema=RECORDS)


def decode_odd(name: str, columns: list[tuple[str, str]], decimals: str = "precise") -> Decoded:
    relation = captured(
        "north.odd",
        "north.public.odd",
        columns,
        key=["id"],
        decimals=decimals,  # type: ignore[arg-type]
    )
    return Decoder([relation]).decode(read_golden(name))


def values(decoded: Decoded, columns: list[tuple[str, str]], column: str) -> list[Any]:
    """The after values by offset; temporal ones as integers."""
    supported = [name for name, text in columns if spark_type(text)]
    array = decoded.rows["north.odd"][f"a{supported.index(column)}"]
    if pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_temporal(array.type):
        array = array.cast(pa.int64())
    return array.to_pylist()


@pytest.mark.parametrize("name", ["types.jsonl", "types_precise.jsonl"])
def test_decimals_of_both_modes_are_exact(name: str) -> None:
    decoded = decode_odd(name, FREE)
    assert decoded.bad == ()
    assert values(decoded, FREE, "n_wide")[:4] == [
        Decimal("1234567890123456789012345678.0123456789"),
        Decimal("0.0000000001"),
        Decimal("-0.5000000000"),
        None,
    ]
    assert values(decoded, FREE, "n_money")[:4] == [
        Decimal("-12.30"),
        Decimal("0.00"),
        None,
        Decimal("9999999999999999.99"),
    ]


@pytest.mark.parametrize("name", ["types.jsonl", "types_precise.jsonl"])
def test_oddity_10_an_unscaled_numeric_is_exact_or_refused_by_name(name: str) -> None:
    decoded = decode_odd(name, COLUMNS)
    assert set(values(decoded, COLUMNS, "n_free")) <= {Decimal("123.45"), None}
    rows = decoded.rows["north.odd"]
    free = [column for column, _ in COLUMNS].index("n_free")
    refused = set(rows["offset"].filter(pc.is_valid(rows["unfit"])).to_pylist())
    # -1E-20, 1E30 in the snapshot, the stream and the old versions; NAN is a word in string mode.
    assert {2, 3, 6, 7, 10, 11} <= refused
    assert (1 in refused) == (name == "types.jsonl")
    assert {tuple(each) for each in rows["unfit"].drop_null().to_pylist()} == {(free,)}


def test_oddity_10_floats_keep_nan_infinities_and_the_sign_of_zero() -> None:
    decoded = decode_odd("types.jsonl", FREE)
    f4, f8 = values(decoded, FREE, "f4"), values(decoded, FREE, "f8")
    assert f4[0] == float(np.float32(0.1)) and math.isnan(f4[1])
    assert f4[2:4] == [-math.inf, 16777216.0]
    assert f8[0] == 0.1 and f8[1] == math.inf and math.isnan(f8[2]) and f8[3] == 5e-324
    log = SourceLog("north")
    relation = captured("north.f", "north.public.f", [("f", "double precision")])
    records = log.commit([("f", "c", None, {"f": -0.0})])
    rows = Decoder([relation]).decode(Topics().batch(records)).rows["north.f"]
    assert math.copysign(1, rows["a0"][0].as_py()) == -1


def test_oddity_13_times_are_the_same_instant_in_the_snapshot_and_in_the_stream() -> None:
    decoded = decode_odd("types.jsonl", FREE)
    for column in ("at_zone", "at_wall", "at_milli", "on_day"):
        found = values(decoded, FREE, column)
        assert found[:4] == found[4:8], column
    assert values(decoded, FREE, "at_zone")[:3] == [
        1709200800123456,
        9223372036825200000,
        -9223372036832400000,
    ]
    assert values(decoded, FREE, "at_wall")[:4] == [
        1709208000123456,
        9223372036825200000,
        -1,
        253402300799000000,
    ]
    year_one = -62135596800000000
    assert values(decoded, FREE, "at_milli")[:3] == [
        1709208000123000,
        -9223372036832400000,
        year_one,
    ]
    assert values(decoded, FREE, "on_day")[:4] == [19782, 2147483647, -719162, 2932896]


def test_the_other_types_come_as_they_are() -> None:
    decoded = decode_odd("types.jsonl", FREE)
    assert values(decoded, FREE, "flag")[:3] == [True, False, None]
    assert values(decoded, FREE, "i8")[:3] == [9223372036854775807, 0, -9223372036854775808]
    assert values(decoded, FREE, "bytes")[:3] == [b"\x00\xff\x10", b"", None]
    assert values(decoded, FREE, "words")[0] == "text 'quoted' é 🙂"
    assert values(decoded, FREE, "doc")[1] == "null"
    assert values(decoded, FREE, "padded")[0] == "ab  "
    assert values(decoded, FREE, "Mixed Case, name")[0] == "mixed"


def test_an_unsupported_type_is_left_out_and_named() -> None:
    relation = captured("north.odd", "north.public.odd", COLUMNS)
    assert relation.refused == (("at_time", "time without time zone"),)
    assert "at_time" not in [column.name for column in relation.relation.schema]


def test_a_numeric_without_fraction_is_read_by_its_mode() -> None:
    columns = [("n", "numeric(10,0)")]
    log, topics = SourceLog("north"), Topics()
    precise = captured("north.n", "north.public.n", columns)
    batch = topics.batch(log.commit([("n", "c", None, {"n": "EjRW"})]))
    rows = Decoder([precise]).decode(batch).rows["north.n"]
    assert rows["a0"].to_pylist() == [Decimal(0x123456)]
    written = captured("north.n", "north.public.n", columns, decimals="string")
    batch = topics.batch(log.commit([("n", "c", None, {"n": "1234"})]))
    assert Decoder([written]).decode(batch).rows["north.n"]["a0"].to_pylist() == [Decimal(1234)]


@pytest.mark.parametrize(
    ("type_", "value"),
    [("int4", 1.5), ("int4", "x"), ("int2", 70000), ("numeric(5,2)", "1.234"), ("bool", 2)],
)
def test_a_value_that_does_not_fit_is_null_and_named_and_in_a_key_a_bad_record(
    type_: str, value: object
) -> None:
    columns = [("v", type_), ("w", "text")]
    records = SourceLog("north").commit([("v", "c", None, {"v": value, "w": "x"})])
    free = captured("north.v", "north.public.v", columns, decimals="string")
    decoded = Decoder([free]).decode(Topics().batch(records))
    rows = decoded.rows["north.v"]
    assert decoded.bad == ()
    assert rows.select(["a0", "a1", "unfit"]).to_pylist() == [{"a0": None, "a1": "x", "unfit": [0]}]
    keyed = captured("north.v", "north.public.v", columns, key=["v"], decimals="string")
    decoded = Decoder([keyed]).decode(Topics().batch(records))
    (record,) = decoded.bad
    assert record.error["code"] == "SOURCE_VALUE_UNFIT"
    assert record.transaction == "701" and decoded.rows["north.v"].num_rows == 0


def test_the_schema_part_tells_the_types() -> None:
    for name, money in (("types.jsonl", "string"), ("types_precise.jsonl", "decimal(18,2)")):
        events = read_golden(name).to_pylist()
        event = next(e for e in events if e["topic"] == "north.public.odd")
        relation = schema_from_connect(
            json.loads(event["value"])["schema"],
            "north.odd",
            "north.public.odd",
            json.loads(event["key"])["schema"],
        )
        types = {column.name: column.type for column in relation.relation.schema}
        assert relation.relation.key == (0,)
        assert types["n_money"] == money
        assert types["at_zone"] == "timestamp" and types["at_milli"] == "timestamp_ntz"
        assert types["on_day"] == "date" and types["f4"] == "float" and types["i2"] == "smallint"
        assert relation.refused == (("at_time", "io.debezium.time.MicroTime"),)
