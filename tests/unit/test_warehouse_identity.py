"""`_id` follows its written canonical form, for every type."""

from __future__ import annotations

import hashlib
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.errors import FrescoError
from streaming.warehouse.net_changes import net_changes
from streaming.warehouse.rewrite import id_prefixes

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS: list[tuple[pa.DataType, st.SearchStrategy[object]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=5)),
    (pa.binary(), st.binary(max_size=5)),
    (pa.decimal128(18, 2), st.decimals(-(10**15), 10**15, places=2)),
    (pa.float64(), st.floats()),
    (pa.float32(), st.floats(width=32)),
    (pa.date32(), st.dates()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    (pa.timestamp("us"), st.datetimes()),
]


def text(kind: pa.DataType, value: object) -> str:
    """The canonical text of a value, written a second time from the module's description."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        value = 0.0 if value == 0 else float("nan") if value != value else value
        bits = struct.pack("<d", value) if value == value else b"\0\0\0\0\0\0\xf8\x7f"
        return str(struct.unpack("<q", bits)[0])
    if isinstance(value, datetime):
        return str((value.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1))
    if isinstance(value, date):
        return str((value - EPOCH.date()).days)
    if isinstance(value, bytes):
        return value.hex().upper()
    if isinstance(value, Decimal):
        return f"{value.quantize(Decimal('0.01')):f}".replace("-0.00", "0.00")
    return str(value)


def expected(kinds: list[pa.DataType], row: list[object]) -> str:
    parts = (
        "~" if value is None else f"{len(text(kind, value).encode())}:{text(kind, value)}"
        for kind, value in zip(kinds, row, strict=True)
    )
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:32]


def ids(rows: pa.Table) -> set[str]:
    """The `_id`s of rows that all come."""
    ones = pa.array([1] * rows.num_rows, pa.int64())
    delta = rows.append_column("_multiplicity", ones)
    return set(net_changes(delta, rows.num_columns).column("_id").to_pylist())


@settings(deadline=None, print_blob=True)
@given(st.data())
def test_ids_are_those_of_the_canonical_form(data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | values for _, values in chosen)).map(list)
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    kinds = [kind for kind, _ in chosen]
    names = [f"c{at}" for at in range(len(kinds))]
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    found = ids(pa.Table.from_arrays(columns, names))
    assert found == {expected(kinds, row) for row in rows}


def test_null_differs_from_the_empty_text_and_values_do_not_run_into_each_other() -> None:
    rows = [(None, "ab"), ("", "ab"), ("a", "b"), ("ab", ""), ("ab", None), ("~", "ab")]
    table = pa.table({"c0": [row[0] for row in rows], "c1": [row[1] for row in rows]})
    assert len(ids(table)) == len(rows)


def test_a_type_without_canonical_form_is_refused_by_name() -> None:
    with pytest.raises(FrescoError, match=r"WAREHOUSE_TYPE.*list"):
        ids(pa.table({"c0": [[1]]}))


@given(st.lists(st.text("0123456789abcdef", min_size=32, max_size=32), max_size=20))
def test_prefixes_are_the_first_64_bits(ids: list[str]) -> None:
    array = pa.array(["f" * 32, *ids], pa.string()).slice(1)
    assert id_prefixes(array).tolist() == [int(one[:16], 16) for one in ids]


def test_net_changes_cancel_what_lies_between() -> None:
    delta = pa.table(
        {
            "_number": [1, 1, 2, 2, 2],
            "_multiplicity": [-1, 1, -1, 1, 1],
            "c0": [7, 7, 7, 7, 8],
            "c1": ["a", "b", "b", "c", None],
        }
    )
    keyed = net_changes(delta, 2, key=(0,)).to_pylist()
    assert sorted((one["plus"], one["minus"], one["row"]) for one in keyed) == [
        *((1, 0, 4), (1, 1, 3)),
    ]
    whole = net_changes(delta, 2).to_pylist()
    assert sorted((one["plus"], one["minus"], one["row"]) for one in whole) == [
        *((0, 1, 0), (1, 0, 3), (1, 0, 4)),
    ]
    assert [one["_id"] for one in whole] == sorted(one["_id"] for one in whole)
