"""Events as Debezium sends them, and the ones that cannot be used."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from streaming.ask.mariadb.mariadb_kind import MYSQL_LOG
from streaming.captured.captured_schema import captured
from streaming.cdc.debezium import Decoder
from tests.sourcelog import SourceLog, Topics
from tests.unit.test_debezium_values import read_golden

COLUMNS = [("id", "int8"), ("words", "text")]
RELATION = captured("north.t", "north.public.t", COLUMNS, key=["id"])


def bank() -> list:
    columns = {
        "account": [("id", "int8"), ("owner", "text"), ("branch", "text")],
        "entry": [("id", "int8"), ("account", "int8"), ("amount", "numeric(18,2)")],
        "fresco_global": [("id", "text"), ("parts", "int4")],
    }
    return [
        captured(f"{source}.{table}", f"{source}.public.{table}", columns[table], key=["id"])
        for source in ("north", "south")
        for table in columns
    ]


def test_events_with_and_without_the_schema_part_decode_alike() -> None:
    plain = Decoder(bank()).decode(read_golden("bank.jsonl"))
    wrapped = Decoder(bank()).decode(read_golden("bank_with_schema.jsonl"))
    assert plain.bad == wrapped.bad == ()
    assert plain.ignored == wrapped.ignored > 0
    left_out = ("position", "transaction")
    for name, rows in plain.rows.items():
        kept = [column for column in rows.column_names if column not in left_out]
        assert rows.select(kept).to_pylist() == wrapped.rows[name].select(kept).to_pylist()


def test_both_kinds_may_stand_in_one_topic() -> None:
    log, topics = SourceLog("north"), Topics()
    topic, value = log.row("t", "c", None, {"id": 1, "words": "a"}, key="7", order=1)
    wrapped = json.dumps({"schema": {}, "payload": json.loads(value)})
    for order in ([value, wrapped], [wrapped, value]):
        decoded = Decoder([RELATION]).decode(topics.batch([(topic, v) for v in order]))
        assert decoded.bad == ()
        assert decoded.rows["north.t"]["a1"].to_pylist() == ["a", "a"]


def test_oddity_11_a_tombstone_is_ignored() -> None:
    decoded = Decoder([RELATION]).decode(Topics().batch([("north.public.t", None)]))
    assert decoded.rows == {} and decoded.bad == () and decoded.ignored == 1


@pytest.mark.parametrize("op", ["u", "d"])
def test_oddity_11_a_change_without_its_old_row_is_a_clear_error(op: str) -> None:
    after = {"id": 1, "words": "a"} if op == "u" else None
    records = SourceLog("north").commit([("t", op, None, after)])
    (record,) = Decoder([RELATION]).decode(Topics().batch(records)).bad
    assert record.error["code"] == "SOURCE_BEFORE_MISSING"
    assert record.error["todo"] == "ALTER TABLE public.t REPLICA IDENTITY FULL"
    assert record.error["where"] == "topic north.public.t, partition 0, offset 0"


def test_logical_messages_are_ignored() -> None:
    log = SourceLog("north")
    _, value = log.row("t", "m", None, None, key="7", order=1)
    decoded = Decoder([RELATION]).decode(Topics().batch([("north.message", value)]))
    assert decoded.bad == () and decoded.ignored == 1
    decoded = Decoder([RELATION]).decode(Topics().batch([("north.public.t", value)]))
    assert decoded.bad == () and decoded.ignored == 1


LONG = "long " * 500


def test_oddity_9_an_unchanged_toast_value_is_the_old_one() -> None:
    placeholder = "__debezium_unavailable_value"
    records = SourceLog("north").commit(
        [("t", "u", {"id": 1, "words": LONG}, {"id": 2, "words": placeholder})]
    )
    rows = Decoder([RELATION]).decode(Topics().batch(records)).rows["north.t"]
    assert rows["a1"].to_pylist() == [LONG]


@pytest.mark.parametrize("said", ["__debezium_unavailable_value", "«unchanged»"])
def test_oddity_35_a_text_that_reads_like_the_placeholder_is_told_apart_or_refused(
    said: str,
) -> None:
    captured = replace(RELATION, placeholder=said)
    default = "__debezium_unavailable_value"

    def decoded(op: str, before: str | None, after: str) -> tuple[list[str | None], list[str]]:
        log = SourceLog("north")
        old = {"id": 1, "words": before} if op == "u" else None
        records = log.commit([("t", op, old, {"id": 1, "words": after})])
        found = Decoder([captured]).decode(Topics().batch(records))
        return found.rows["north.t"]["a1"].to_pylist(), [one.error["code"] for one in found.bad]

    assert decoded("c", None, said) == ([said], []), "an insert has no unchanged values"
    assert decoded("r", None, said) == ([said], []), "nor has a snapshot"
    assert decoded("u", "short", said) == ([said], []), "no short value is stored apart"
    assert decoded("u", None, said) == ([said], []), "nor NULL"
    assert decoded("u", "é" * 10, said) == ([said], [])
    assert decoded("u", said, said) == ([said], [])
    assert decoded("u", LONG, said) == ([LONG], []), "a large row's values are"
    assert decoded("u", "x" * 21, said) == ([], ["SOURCE_PLACEHOLDER"])
    if said != default:
        assert decoded("u", LONG, default) == ([default], []), "it is a text like any other then"


def codes(value: str | bytes, topic: str = "north.public.t") -> list[str]:
    good = SourceLog("north").row("t", "c", None, {"id": 1, "words": "a"}, key="7", order=1)
    records: list = [good, (topic, value), good]
    decoded = Decoder([RELATION]).decode(Topics().batch(records))
    assert decoded.rows["north.t"].num_rows == 2, "nothing else is lost"
    return [record.error["code"] for record in decoded.bad]


def test_a_bad_event_is_named_and_nothing_else_is_lost() -> None:
    lacking = SourceLog("north").row("t", "c", None, {"words": "a"}, key="7", order=1)
    event = json.loads(lacking[1] or "")
    assert codes("{not json") == ["SOURCE_NOT_JSON"]
    assert codes(b"\xff\xfe") == ["SOURCE_NOT_UTF8"]
    assert codes("[1, 2]") == ["SOURCE_NOT_AN_EVENT"]
    assert codes('{"x": 1}') == ["SOURCE_NOT_AN_EVENT"]
    assert codes('{"id": 1, "words": "a"}') == ["SOURCE_FLATTENED"]
    assert codes('{"schema": {}, "payload": {"id": 1, "words": "a"}}') == ["SOURCE_FLATTENED"]
    assert codes(json.dumps(event)) == ["SOURCE_FIELD_MISSING"]
    assert codes(json.dumps({**event, "after": None})) == ["SOURCE_FIELD_MISSING"]
    full = {**event, "after": {"id": 1, "words": "a", "more": 3}}
    assert codes(json.dumps({**full, "op": "x"})) == ["SOURCE_OP_UNKNOWN"]
    assert codes(json.dumps({**full, "transaction": None})) == ["SOURCE_TRANSACTION_MISSING"]
    assert codes(json.dumps({**full, "source": {}})) == ["SOURCE_FIELD_MISSING"]
    assert codes("{}", topic="north.public.other") == ["SOURCE_RELATION_UNKNOWN"]
    assert codes("{}", topic="north.transaction") == ["SOURCE_TRANSACTION_BAD"]


@pytest.mark.parametrize(
    "said",
    [
        {},
        3,
        None,
        {"payload": None},
        {"type": "STARTED", "additional_data": ["x"]},
        {"type": "COMPLETED", "timestamp": "yesterday"},
        {"type": "TABLE_SCAN_COMPLETED", "additional_data": {"total_rows_scanned": "3"}},
        {
            "type": "TABLE_SCAN_COMPLETED",
            "additional_data": {"scanned_collection": "public.t", "total_rows_scanned": "many"},
        },
    ],
)
def test_a_bad_notification_is_named_where_it_is_read(said: object) -> None:
    """Later it would end the integrator's step, again and again."""
    assert codes(json.dumps(said), topic="north.notifications") == ["SOURCE_NOTIFICATION_BAD"]


def test_an_unknown_field_is_ignored_and_a_null_is_not_a_missing_field() -> None:
    records = SourceLog("north").commit(
        [("t", "c", None, {"id": 1, "words": None, "added": {"deep": [1]}})]
    )
    decoded = Decoder([RELATION]).decode(Topics().batch(records))
    assert decoded.bad == ()
    assert decoded.rows["north.t"]["a1"].to_pylist() == [None]


def test_oddity_16_names_an_engine_would_confuse() -> None:
    names = ["Id", "id", "select", "a.b", 'q"uote', "it's", "sp ace", "com,ma", "größe"]
    relation = captured("north.t", "north.public.t", [(name, "text") for name in names])
    row = {name: f"value of {name}" for name in names}
    records = SourceLog("north").commit([("t", "u", {**row, "Id": None}, row)])
    decoded = Decoder([relation]).decode(Topics().batch(records))
    assert decoded.bad == ()
    after = [decoded.rows["north.t"][f"a{i}"][0].as_py() for i in range(len(names))]
    assert after == list(row.values())
    assert decoded.rows["north.t"]["b0"].to_pylist() == [None]


def test_mysql_transactions_keep_their_whole_id() -> None:
    from streaming.captured.captured_schema import CapturedSource

    event = {
        "before": None,
        "after": {"id": 1, "words": "a"},
        "source": {"file": "binlog.000182", "pos": 400},
        "transaction": {"id": "file=binlog.000182,pos=339", "total_order": 1},
        "op": "c",
    }
    source = CapturedSource("north", "north", log=MYSQL_LOG)
    end = {
        "status": "END",
        "id": "file=binlog.000182,pos=339",
        "ts_ms": 1,
        "data_collections": [{"data_collection": "public.t", "event_count": 1}],
    }
    batch = Topics().batch(
        [("north.public.t", json.dumps(event)), ("north.transaction", json.dumps(end))]
    )
    decoded = Decoder([RELATION], [source]).decode(batch)
    assert decoded.rows["north.t"]["transaction"].to_pylist() == ["file=binlog.000182,pos=339"]
    assert decoded.rows["north.t"]["position"].to_pylist() == [182 * 2**32 + 400]
    assert decoded.transactions["north"]["position"].to_pylist() == [182 * 2**32 + 339]
