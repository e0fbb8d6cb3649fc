"""Source transactions put back together: order, key changes, truncates, bad records, state."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest

from streaming.captured.captured_schema import CapturedSource
from streaming.cdc.held_rows import HeldFiles
from streaming.cdc.intake import Intake
from streaming.durable import as_json
from tests.intakeworld import BaseView, insert, key_change, make, net, relations, row, spoiled
from tests.sourcelog import SourceLog, Topics
from tests.unit.test_debezium_events import bank
from tests.unit.test_debezium_values import read_golden


def test_the_recorded_bank_comes_out_whole() -> None:
    result = make(bank(), snapshot=True).step(read_golden("bank.jsonl"), 0)
    assert (result.first, result.last) == (0, 12)
    assert result.bad == () and result.tainted == {} and result.held == 0
    by_number = Counter(result.transactions["number"].to_pylist())
    (number,) = [n for n, count in by_number.items() if count == 2]
    changes = net(result)
    assert sum(changes[(number, "north.entry")].values()) == 1
    assert sum(changes[(number, "south.entry")].values()) == 1
    assert [c.relation for c in result.controls] == ["south.entry"]
    assert len(changes[(0, "north.entry")]) == 8


def test_oddity_2_interleaved_transactions_are_whole_and_in_commit_order() -> None:
    log = SourceLog("north")
    b1, x1, y1, e1 = log.commit([insert("account", 1), insert("account", 2)])
    b2, x2, y2, e2 = log.commit([insert("account", 3), insert("account", 4)])
    result = make().step(Topics().batch([b1, b2, x2, x1, y2, y1, e1, e2]), 0)
    assert net(result) == {
        (1, "north.account"): {(1, "a"): 1, (2, "a"): 1},
        (2, "north.account"): {(3, "a"): 1, (4, "a"): 1},
    }


def test_oddity_3_a_key_change_is_one_transaction_and_one_row_moved() -> None:
    log = SourceLog("north")
    changes = key_change(log, row(1), row(2))
    key = str(log.transaction)
    log.lsn += 20
    batch = Topics().batch([log.begin(key), *changes, log.end(key, {"account": 2})])
    assert net(make().step(batch, 0)) == {(1, "north.account"): {(1, "a"): -1, (2, "a"): 1}}


def test_oddity_4_keys_swapped_between_two_rows_net_to_the_swap() -> None:
    records = SourceLog("north").commit(
        [
            ("account", "d", row(1, "x"), None),
            ("account", "c", None, row(9, "x")),
            ("account", "d", row(2, "y"), None),
            ("account", "c", None, row(1, "y")),
            ("account", "d", row(9, "x"), None),
            ("account", "c", None, row(2, "x")),
        ]
    )
    changes = net(make().step(Topics().batch(records), 0))[(1, "north.account")]
    left = {values: count for values, count in changes.items() if count}
    assert left == {(1, "x"): -1, (2, "y"): -1, (1, "y"): 1, (2, "x"): 1}


SAID = "__debezium_unavailable_value"
LONG = "long " * 500


def test_oddity_9_an_unchanged_toast_value_of_a_key_change_comes_from_its_delete() -> None:
    log = SourceLog("north")
    changes = key_change(log, row(1, LONG), row(2, "__debezium_unavailable_value"))
    key = str(log.transaction)
    log.lsn += 20
    intake, topics = make(), Topics()
    intake.step(topics.batch([log.begin(key), *changes[:2], log.end(key, {"account": 2})]), 0)
    result = intake.step(topics.batch(changes[2:]), 0)
    assert net(result) == {(1, "north.account"): {(1, LONG): -1, (2, LONG): 1}}


@pytest.mark.parametrize(("before", "after"), [("short", SAID), (SAID, SAID), ("", SAID)])
def test_oddity_35_a_short_value_of_a_key_change_has_changed(before: str, after: str) -> None:
    log = SourceLog("north")
    changes = key_change(log, row(1, before), row(2, after))
    key = str(log.transaction)
    log.lsn += 20
    records = [log.begin(key), *changes, log.end(key, {"account": 2})]
    result = make().step(Topics().batch(records), 0)
    assert net(result) == {(1, "north.account"): {(1, before): -1, (2, after): 1}}
    assert result.bad == () and not result.tainted


def test_oddity_35_what_nobody_can_tell_is_a_record_that_one_can_decide_on() -> None:
    log = SourceLog("north")
    changes = key_change(log, row(1, "x" * 100), row(2, SAID))
    key = str(log.transaction)
    log.lsn += 20
    records = [log.begin(key), *changes, log.end(key, {"account": 2})]
    result = make().step(Topics().batch(records), 0)
    (bad,) = result.bad
    assert bad.error["code"] == "SOURCE_PLACEHOLDER" and bad.transaction == key
    assert f"fresco skip {bad.topic} {bad.partition} {bad.offset}" in bad.error["todo"]
    assert result.tainted == {1: ("north.account",)}


def test_oddity_6_a_truncate_is_a_control_and_drops_the_changes_before_it() -> None:
    records = SourceLog("north").commit(
        [
            insert("entry", 1),
            insert("account", 1),
            ("entry", "t", None, None),
            insert("entry", 2),
        ]
    )
    result = make().step(Topics().batch(records), 0)
    assert [(c.number, c.relation, c.kind) for c in result.controls] == [
        (1, "north.entry", "truncate")
    ]
    assert net(result) == {
        (1, "north.entry"): {(2, "a"): 1},
        (1, "north.account"): {(1, "a"): 1},
    }
    assert result.runs["main"][-1].views == ("north_account", "north_entry")


def test_oddity_15_offset_gaps_do_not_stall() -> None:
    batch = Topics().batch(SourceLog("north").commit([insert("account", 1)]))
    offsets = pa.array([7 * offset.as_py() + 5 for offset in batch["offset"]])
    result = make().step(batch.set_column(2, "offset", offsets), 0)
    assert result.last == 1


def test_oddity_19_an_update_that_changes_nothing_has_an_empty_rel() -> None:
    log = SourceLog("north")
    same = log.commit([("account", "u", row(1), row(1))])
    result = make().step(Topics().batch([*same, *log.commit([insert("account", 2)])]), 0)
    assert [(r.first, r.last, r.views) for r in result.runs["main"]] == [
        (0, 0, ("north_account", "north_entry")),
        (1, 1, ()),
        (2, 2, ("north_account",)),
    ]


def test_end_may_come_before_the_data_and_uncaptured_tables_do_not_count() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make()
    begin, change, _ = log.commit([insert("account", 1)])
    random_name = "io.debezium...LogicalDecodingMessageId@2b48f70a"
    end = log.end("701", {"account": 1})
    event = json.loads(end[1] or "")
    for name in (random_name, "public.elsewhere"):
        event["data_collections"].append({"data_collection": name, "event_count": 4})
    assert intake.step(topics.batch([begin, (end[0], json.dumps(event))]), 0).last == 0
    assert intake.step(topics.batch([change]), 0).last == 1


def test_only_the_longest_complete_prefix_is_numbered() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make()
    begin, late, end = log.commit([insert("account", 1)])
    result = intake.step(topics.batch([begin, end, *log.commit([insert("entry", 2)])]), 0)
    assert result.last == 0 and result.waiting == {"north.entry": 1}
    result = intake.step(topics.batch([late]), 0)
    assert net(result) == {
        (1, "north.account"): {(1, "a"): 1},
        (2, "north.entry"): {(2, "a"): 1},
    }
    assert result.positions == {"north": str(log.lsn)}


def test_an_end_short_by_its_undecodable_records_is_numbered_and_tainted() -> None:
    log = SourceLog("north")
    begin, first, second, end = log.commit([insert("account", 1), insert("entry", 2)])
    after = log.commit([insert("account", 3)])
    result = make().step(Topics().batch([begin, spoiled(first), second, end, *after]), 0)
    assert [record.error["code"] for record in result.bad] == ["SOURCE_NOT_JSON"]
    assert result.tainted == {1: ("north.account",)}
    assert net(result) == {
        (1, "north.entry"): {(2, "a"): 1},
        (2, "north.account"): {(3, "a"): 1},
    }
    assert "north_account" in result.runs["main"][1].views


def test_an_end_short_by_more_than_the_undecodable_records_is_held() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make()
    begin, first, second, end = log.commit([insert("account", 1), insert("account", 2)])
    result = intake.step(topics.batch([begin, spoiled(first), end]), 0)
    assert result.last == 0 and result.tainted == {}
    assert intake.step(topics.batch([second]), 0).tainted == {1: ("north.account",)}


@pytest.mark.timeout(60)
def test_a_topic_full_of_undecodable_records_takes_no_longer_than_one_of_others() -> None:
    """As after REPLICA IDENTITY DEFAULT: a batch's records, each looked for among all, took hours."""
    log, count = SourceLog("north"), 20_000
    records = []
    for number in range(count):
        begin, change, end = log.commit([insert("account", number)])
        records += [begin, spoiled(change), end]
    intake = make()
    result = intake.step(Topics().batch(records), 0)
    assert result.last == len(result.bad) == len(result.tainted) == count
    assert intake.snapshot()["assembler"]["sources"]["north"]["bad"] == []


def test_events_without_transactions_are_one_each() -> None:
    source = CapturedSource("north", "north", snapshot=False, transactions="per-event")
    views = [BaseView(relation) for relation in relations()]
    intake = Intake(relations(), views, {"main": [v.name for v in views]}, sources=[source])
    log = SourceLog("north")
    records = []
    for table, id_ in (("account", 1), ("entry", 2), ("account", 3)):
        log.lsn += 10
        records.append(log.row(table, "c", None, row(id_)))
    result = intake.step(Topics().batch(records), 0)
    assert result.last == 3 and result.bad == ()
    assert net(result)[(2, "north.entry")] == {(2, "a"): 1}


def test_held_rows_are_staged_once_and_never_written_again() -> None:
    staged: dict[str, pa.Table] = {}

    def stage(table: pa.Table) -> str:
        staged[f"part-{len(staged)}"] = table
        return f"part-{len(staged) - 1}"

    log, topics = SourceLog("north"), Topics()
    big = [insert("entry", i, "x" * 50) for i in range(2000)]
    *some, last, end = log.commit(big)
    files = HeldFiles(stage, lambda path, columns: staged[path].select(columns))
    intake = make(files=files)
    intake.step(topics.batch(some[:1500]), 0)
    first = json.dumps(intake.snapshot())
    assert len(staged) == 1 and len(first) < 5000
    intake.step(topics.batch(some[1500:]), 0)
    intake.snapshot()
    saved = as_json(intake.snapshot())
    assert sum(table.num_rows for table in staged.values()) == len(some) - 1
    again = make(files=files)
    again.restore(saved)
    result = again.step(topics.batch([last, end]), 0)
    assert net(result)[(1, "north.entry")] == {(i, "x" * 50): 1 for i in range(2000)}
    assert again.snapshot()["assembler"]["held"] == {}
