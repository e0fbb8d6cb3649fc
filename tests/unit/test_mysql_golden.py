"""What Debezium's MySQL connector 3.6.1 wrote of a server that told it no transactions, decoded.

Recorded by tests/golden/record_mysql.py from a MariaDB: each event is a transaction by itself.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow.compute as pc

from streaming.ask.mariadb.mariadb_kind import MYSQL_LOG
from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.capture.envelope import CapturedTable, Envelope, RowOrigin
from streaming.captured.captured_schema import CapturedSource
from streaming.cdc.debezium import Decoder
from streaming.cdc.intake import Intake
from tests.mysqlshop import SHOP
from tests.unit.test_debezium_values import read_golden

SOURCE = CapturedSource("shop", "shop", log=MYSQL_LOG, transactions="per-event")
GOLDEN = "shop_mysql_single.jsonl"


def test_rows_keep_their_operations_places_and_values() -> None:
    decoded = Decoder(SHOP, [SOURCE]).decode(read_golden(GOLDEN))
    assert decoded.bad == () and decoded.versions == {"shop": "3.6.1.Final"}
    entry = decoded.rows["shop.entry"]
    assert entry["op"].to_pylist() == ["r", "r", "c", "c", "u", "u", "u", "u", "d", "d", "t", "c"]
    positions = entry["position"].to_pylist()
    assert positions == sorted(positions) and positions[-1] == (1 << 32) + 3679
    assert entry["a2"].to_pylist()[:4] == [Decimal(v) for v in ("-5.00", "5.00", "-12.50", "12.50")]
    account = decoded.rows["shop.account"]
    assert account["op"].to_pylist()[-3:] == ["d", "c", "c"], "a changed key is a delete and insert"
    assert account["a1"].to_pylist()[1] == 'Åse "quoted" 🙂'
    assert decoded.ignored == 3, "tombstones"


def test_a_snapshot_and_single_events_come_out_in_order_and_whole() -> None:
    batch = read_golden(
        GOLDEN
    )  # without the tag of a global transaction, whose other part is nowhere
    batch = batch.filter(pc.not_equal(batch["topic"], SHOP[2].topic))
    result = Intake(SHOP[:2], [], {"main": []}, sources=[SOURCE]).step(batch, 0)
    assert result.bad == () and result.waiting == {} and result.open_snapshots == {}
    emptied = {c.relation: c.number for c in result.controls if c.kind == "truncate"}
    assert list(emptied) == ["shop.entry"]
    found: dict[str, dict[tuple[Any, ...], int]] = {}
    for name, delta in result.updates.items():
        bag = found.setdefault(name, {})
        for number, multiplicity, *row in zip(*(c.to_pylist() for c in delta.columns), strict=True):
            if number > emptied.get(name, -1):
                bag[tuple(row)] = bag.get(tuple(row), 0) + multiplicity
    rows = {name: {row for row, n in bag.items() if n} for name, bag in found.items()}
    assert rows["shop.account"] == {
        (1, "uno"), (2, 'Åse "quoted" 🙂'), (33, None), (1000, "last"),
    }  # fmt: skip
    assert rows["shop.entry"] == {(401, 2, Decimal("9.99"))}


def test_our_own_producer_writes_the_fields_that_debezium_does() -> None:
    """Apart from the version, the thread, and the digits of times, which ours has in milliseconds."""
    events = [json.loads(one["value"]) for one in read_golden(GOLDEN).to_pylist() if one["value"]]
    theirs = next(e for e in events if e.get("op") == "c")
    source = theirs["source"]
    at = LogPlace(source["file"], source["pos"])
    origin = RowOrigin(at, source["row"], source["server_id"], source["ts_ms"])
    table = CapturedTable("shop", source["table"], "shop.shop.entry", ("id",))
    made = Envelope("shop", "n").change(table, "c", None, theirs["after"], origin, None)
    ours = json.loads(made[2] or b"")
    assert list(ours) == list(theirs) and list(ours["source"]) == list(source)
    assert {k for k in source if ours["source"][k] != source[k]} == {"version"}
    assert {k for k in ours if ours[k] != theirs[k]} <= {"source", "ts_ms", "ts_us", "ts_ns"}
    assert made[1] == b'{"id":201}'
