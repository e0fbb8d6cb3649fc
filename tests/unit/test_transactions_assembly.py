"""Source transactions put back together: repeats, restarts, snapshots, truncates, bad records."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from streaming.algebra.tree import Scan
from streaming.errors import FrescoError
from streaming.sources.intake import Intake, IntakeResult
from streaming.sources.schema import CapturedRelation, CapturedSource, captured
from tests.sourcelog import Record, SourceLog, Topics
from tests.unit.test_debezium_events import bank
from tests.unit.test_debezium_values import read_golden


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


def test_oddity_1_the_same_row_version_twice_is_counted_once() -> None:
    begin, first, second, end = SourceLog("north").commit(
        [insert("account", 1), insert("account", 2)]
    )
    result = make().step(Topics().batch([begin, first, first, second, end]), 0)
    assert net(result) == {(1, "north.account"): {(1, "a"): 1, (2, "a"): 1}}


def test_a_repeat_does_not_stand_in_for_a_row_that_is_late() -> None:
    begin, first, second, end = SourceLog("north").commit(
        [insert("account", 1), insert("account", 2)]
    )
    intake, topics = make(), Topics()
    early = intake.step(topics.batch([begin, first, first, end]), 0)
    assert early.last == 0
    late = intake.step(topics.batch([second]), 0)
    assert net(late) == {(1, "north.account"): {(1, "a"): 1, (2, "a"): 1}}


def test_a_transaction_repeated_whole_is_dropped_with_its_rows() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make()
    one = log.commit([insert("account", 1)])
    two = log.commit([insert("account", 2)])
    intake.step(topics.batch([*one, *two]), 0)
    again = intake.step(topics.batch([*one, *two, *log.commit([insert("account", 3)])]), 0)
    assert net(again) == {(3, "north.account"): {(3, "a"): 1}}
    assert again.waiting == {}


def test_rows_of_a_repeated_transaction_are_dropped_when_its_end_comes_later() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make()
    begin, change, end = log.commit([insert("account", 1)])
    intake.step(topics.batch([begin, change, end]), 0)
    assert intake.step(topics.batch([begin, change]), 0).waiting == {"north.account": 1}
    assert intake.step(topics.batch([end]), 0).waiting == {}
    assert intake.step(topics.batch([change]), 0).waiting == {}


def test_oddity_2_interleaved_transactions_are_whole_and_in_commit_order() -> None:
    log = SourceLog("north")
    b1, x1, y1, e1 = log.commit([insert("account", 1), insert("account", 2)])
    b2, x2, y2, e2 = log.commit([insert("account", 3), insert("account", 4)])
    result = make().step(Topics().batch([b1, b2, x2, x1, y2, y1, e1, e2]), 0)
    assert net(result) == {
        (1, "north.account"): {(1, "a"): 1, (2, "a"): 1},
        (2, "north.account"): {(3, "a"): 1, (4, "a"): 1},
    }


def key_change(log: SourceLog, old: dict[str, Any], new: dict[str, Any]) -> list[Record]:
    """d, tombstone and c at one position, as Debezium sends a key change."""
    key = str(log.transaction)
    return [
        log.row("account", "d", old, None, key=key, order=1),
        (log.topic("account"), None),
        log.row("account", "c", None, new, key=key, order=2),
    ]


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


def test_oddity_9_an_unchanged_toast_value_of_a_key_change_comes_from_its_delete() -> None:
    log = SourceLog("north")
    changes = key_change(log, row(1, "long"), row(2, "__debezium_unavailable_value"))
    key = str(log.transaction)
    log.lsn += 20
    intake, topics = make(), Topics()
    intake.step(topics.batch([log.begin(key), *changes[:2], log.end(key, {"account": 2})]), 0)
    result = intake.step(topics.batch(changes[2:]), 0)
    assert net(result) == {(1, "north.account"): {(1, "long"): -1, (2, "long"): 1}}


def test_oddity_7_a_restart_inside_a_transaction_leaves_it_once_and_whole() -> None:
    begin, first, second, third, end = SourceLog("north").commit(
        [insert("account", 1), insert("entry", 2), insert("account", 3)]
    )
    result = make().step(
        Topics().batch([begin, first, second, begin, second, first, third, end]), 0
    )
    assert net(result) == {
        (1, "north.account"): {(1, "a"): 1, (3, "a"): 1},
        (1, "north.entry"): {(2, "a"): 1},
    }


def test_oddity_7_an_old_connector_counts_from_one_again_and_only_the_rest() -> None:
    log = SourceLog("north", version="3.6.0.Final")
    places = [1010, 1020, 1030]
    first = [
        log.row("account", "c", None, row(i), key="7", order=i, lsn=at)
        for i, at in enumerate(places[:2], 1)
    ]
    rest = [
        log.row("account", "c", None, row(i + 1), key="7", order=i, lsn=at)
        for i, at in enumerate(places[1:], 1)
    ]
    log.lsn = 1040
    records = [log.begin("7"), *first, log.begin("7"), *rest, log.end("7", {"account": 2})]
    intake, topics = make(), Topics()
    *most, last = [r for r in records if r[0].endswith("account")]
    others = [r for r in records if not r[0].endswith("account")]
    assert intake.step(topics.batch([*others, *most]), 0).last == 0, "the rest is not all there"
    # The closing row of another transaction proves that no row of this one is still to come.
    result = intake.step(topics.batch([last, *log.commit([insert("entry", 9)])]), 0)
    assert net(result)[(1, "north.account")] == {(1, "a"): 1, (2, "a"): 1, (3, "a"): 1}


def test_oddity_8_and_20_equal_rows_at_one_position_are_kept_and_not_doubled() -> None:
    log = SourceLog("north")
    log.transaction += 1
    rows = [log.row("entry", "c", None, row(1), key="701", order=order) for order in (1, 2, 3)]
    begin = log.begin("701")
    log.lsn += 10
    end = log.end("701", {"entry": 3})
    again = [begin, *rows[:2], begin, *rows, end]
    assert net(make().step(Topics().batch(again), 0)) == {(1, "north.entry"): {(1, "a"): 3}}
    delete = [begin, *rows, end, *log.commit([("entry", "d", row(1), None)])]
    result = make().step(Topics().batch(delete), 0)
    assert net(result)[(2, "north.entry")] == {(1, "a"): -1}, "one at a time"


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


def spoiled(record: Record) -> Record:
    return (record[0], "{not json")


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


# Snapshots ----------------------------------------------------------------------------------------


def snapshot_of(log: SourceLog, counts: dict[str, int]) -> list[Record]:
    rows = [
        log.row(table, "r", None, row(i)) for table, count in counts.items() for i in range(count)
    ]
    return [*rows, *log.scanned(counts)]


def test_number_0_waits_until_every_row_of_every_snapshot_is_in() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make(snapshot=True)
    *rows, last = snapshot_of(log, {"account": 2, "entry": 0})
    late = rows.pop(1)
    early = [*rows, last, *log.commit([insert("entry", 5)])]
    result = intake.step(topics.batch(early), 0)
    assert (result.first, result.last) == (0, -1) and result.open_snapshots == ("north",)
    assert result.held == 1
    result = intake.step(topics.batch([late]), 0)
    assert (result.first, result.last) == (0, 1)
    assert net(result) == {
        (0, "north.account"): {(0, "a"): 1, (1, "a"): 1},
        (1, "north.entry"): {(5, "a"): 1},
    }


def test_a_snapshot_begun_again_before_it_was_closed_counts_once() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make(snapshot=True)
    broken = snapshot_of(log, {"account": 2, "entry": 1})[:2]
    intake.step(topics.batch([log.note("STARTED"), *broken]), 0)
    log.lsn += 100
    result = intake.step(topics.batch(snapshot_of(log, {"account": 1, "entry": 1})), 0)
    assert net(result) == {
        (0, "north.account"): {(0, "a"): 1},
        (0, "north.entry"): {(0, "a"): 1},
    }


def test_oddity_5_a_second_snapshot_is_refused_with_its_place_and_changes_nothing() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make(snapshot=True)
    intake.step(topics.batch(snapshot_of(log, {"account": 1, "entry": 0})), 0)
    before = intake.snapshot()
    again = log.row("account", "r", None, row(0))
    assert intake.step(topics.batch([again]), 0).last == 0, "the same snapshot's row, repeated"
    log.lsn += 100
    with pytest.raises(FrescoError) as refused:
        intake.step(topics.batch([log.row("account", "r", None, row(0))]), 0)
    assert refused.value.code == "SOURCE_SNAPSHOT_REPEATED"
    assert refused.value.where == "topic north.public.account, partition 0, offset 2"
    assert intake.snapshot() == before


def test_an_undecodable_snapshot_row_taints_number_0() -> None:
    log = SourceLog("north")
    first, *rest = snapshot_of(log, {"account": 2, "entry": 0})
    result = make(snapshot=True).step(Topics().batch([spoiled(first), *rest]), 0)
    assert result.last == 0 and result.tainted == {0: ("north.account",)}


def test_a_source_without_snapshot_starts_empty() -> None:
    result = make(snapshot=False).step(Topics().batch([]), 0)
    assert (result.first, result.last) == (0, 0) and result.updates == {}


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


# State --------------------------------------------------------------------------------------------


def test_held_rows_are_staged_once_and_never_written_again() -> None:
    staged: dict[str, pa.Table] = {}

    def stage(table: pa.Table) -> str:
        staged[f"part-{len(staged)}"] = table
        return f"part-{len(staged) - 1}"

    log, topics = SourceLog("north"), Topics()
    big = [insert("entry", i, "x" * 50) for i in range(2000)]
    *some, last, end = log.commit(big)
    intake = make(stage=stage, load=staged.__getitem__)
    intake.step(topics.batch(some[:1500]), 0)
    first = json.dumps(intake.snapshot())
    assert len(staged) == 1 and len(first) < 5000
    intake.step(topics.batch(some[1500:]), 0)
    intake.snapshot()
    saved = json.loads(json.dumps(intake.snapshot()))
    assert sum(table.num_rows for table in staged.values()) == len(some) - 1
    again = make(stage=stage, load=staged.__getitem__)
    again.restore(saved)
    result = again.step(topics.batch([last, end]), 0)
    assert net(result)[(1, "north.entry")] == {(i, "x" * 50): 1 for i in range(2000)}
    assert again.snapshot()["assembler"]["held"] == {}
