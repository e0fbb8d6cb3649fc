"""What Debezium's MySQL connector 3.6.1 wrote, decoded and put together (tests/golden/debezium)."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

from streaming.ask.mariadb.mariadb_kind import MYSQL_LOG
from streaming.captured.captured_schema import CapturedSource
from streaming.cdc.debezium import Decoder
from tests.mysqlshop import SHOP, relation
from tests.unit.test_debezium_values import read_golden

SOURCE = CapturedSource("shop", "shop", log=MYSQL_LOG)
ODD = {
    "id": "int(11)", "t": "tinyint(4)", "tu": "tinyint(3) unsigned", "iu": "int(10) unsigned",
    "bu": "bigint(20) unsigned", "d": "decimal(18,2)", "dw": "decimal(38,10)", "f": "float",
    "g": "double", "dt": "date", "d6": "datetime(6)", "d3": "datetime(3)", "t6": "timestamp(6)",
    "y": "year(4)", "c": "char(4)", "v": "varchar(300)", "bi": "binary(4)", "bl": "blob",
    "b1": "bit(1)", "b10": "bit(10)", "e": "enum('x','y z')", "s": "set('a','b','c')",
    "j": "longtext",
}  # fmt: skip


def test_transactions_of_every_kind_are_whole_and_a_truncate_outside_of_one_is_refused() -> None:
    """The connector gives TRUNCATE no transaction, so it has no place among them."""
    decoded = Decoder(SHOP, [SOURCE]).decode(read_golden("shop_mysql.jsonl"))
    (refused,) = decoded.bad
    assert (refused.error["code"], refused.relation) == ("SOURCE_TRANSACTION_MISSING", "shop.entry")
    assert "TRUNCATE of shop.entry" in refused.error["what"]
    assert "fresco capture" in refused.error["todo"] and "snapshot" in refused.error["todo"]
    counted: dict[str, int] = {}
    for rows in decoded.rows.values():
        for key in rows["transaction"].to_pylist():
            if key is not None:
                counted[key] = counted.get(key, 0) + 1
    table = decoded.transactions["shop"].to_pylist()
    ends = {
        row["transaction"]: sum(one["event_count"] for one in row["counts"] or ())
        for row in table
        if row["status"] == "END"
    }
    assert {key: count for key, count in ends.items() if count} == counted
    positions = [row["position"] for row in table if row["status"] == "END"]
    assert positions == sorted(set(positions))


def test_a_transaction_has_one_id_in_begin_rows_and_end() -> None:
    decoded = Decoder(SHOP, [SOURCE]).decode(read_golden("shop_mysql.jsonl"))
    table = decoded.transactions["shop"]
    ends = {t for t, s in zip(table["transaction"].to_pylist(), table["status"].to_pylist(), strict=True) if s == "END"}  # fmt: skip  # noqa: E501
    keys = {k for rows in decoded.rows.values() for k in rows["transaction"].to_pylist() if k}
    assert keys <= ends and all(key.startswith("file=binlog.") for key in keys)


def test_every_type_s_value_is_what_the_database_held_in_snapshot_and_stream_alike() -> None:
    odd = relation("odd", ODD)
    decoded = Decoder([odd], [SOURCE]).decode(read_golden("types_mysql.jsonl"))
    assert decoded.bad == ()
    rows = decoded.rows["shop.odd"]
    assert set(rows["unfit"].to_pylist()) == set(rows["missing"].to_pylist()) == {None}
    table = rows.to_pylist()
    full = (
        -128, 255, 4294967295, Decimal(18446744073709551615), Decimal("-12.30"),
        Decimal("1234567890123456789012345678.0123456789"), 0.10000000149011612, 0.1,
        date(2024, 2, 29), datetime(2024, 2, 29, 12, 0, 0, 123456),
        datetime(2024, 2, 29, 12, 0, 0, 123000),
        datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC), 2024, "ab", "é🙂", b"ab\0\0", b"\0\xff",
        True, b"\x02\x01", "y z", "a,c", '{"a": [1, 2.5]}',
    )  # fmt: skip
    found = {}
    for row in table:
        if row["op"] in ("r", "c"):
            found[row["a0"]] = tuple(row[f"a{i}"] for i in range(1, len(ODD)))
    assert found == {1: full, 11: full, 13: full} | {n: (None,) * 22 for n in (2, 12, 14)}
    deleted = [row for row in table if row["op"] == "d"]
    assert {row["b0"] for row in deleted} == {1, 2, 11, 12}
    assert all(row["b1"] == 7 for row in deleted)


def test_our_own_producer_writes_the_fields_that_debezium_does() -> None:
    """Apart from what differs by nature: times, and our place at the end of a transaction."""
    from streaming.ask.mariadb.mysql_state import LogPlace
    from streaming.capture.envelope import CapturedTable, Envelope, RowOrigin, place_of

    lines = read_golden("shop_mysql.jsonl").to_pylist()
    events = [json.loads(one["value"]) for one in lines if one["value"]]
    theirs = next(e for e in events if e.get("op") == "c")
    envelope = Envelope("shop", "shop.notifications")
    table = CapturedTable("shop", "entry", "shop.shop.entry", ("id",))
    place = theirs["transaction"]
    block = place_of(place["id"], place["total_order"], place["data_collection_order"])
    source = theirs["source"]
    at = LogPlace(source["file"], source["pos"])
    origin = RowOrigin(at, source["row"], source["server_id"], source["ts_ms"])
    _, _, value = envelope.change(table, "c", None, theirs["after"], origin, block)
    ours = json.loads(value or b"")
    assert ours.keys() == theirs.keys() and ours["source"].keys() == source.keys()
    differing = ("ts_ms", "ts_us", "ts_ns", "source")
    assert {k: v for k, v in ours.items() if k not in differing} == {
        k: v for k, v in theirs.items() if k not in differing
    }
    unlike = {k for k in source if ours["source"][k] != source[k]}
    assert unlike <= {"version", "thread", "ts_us", "ts_ns"}, unlike
    end = next(e for e in events if e.get("status") == "END" and e["event_count"])
    counts = {one["data_collection"]: one["event_count"] for one in end["data_collections"]}
    _, _, value = envelope.end(end["id"], end["ts_ms"], counts, at)
    said = json.loads(value or b"")
    assert said.pop("end") == {"file": at.file, "pos": at.offset}
    assert said == end
