"""Repeats: a row or transaction that comes twice, and connectors that start again inside one."""

from __future__ import annotations

import json

import pytest

from streaming.cdc.transaction_log import LATER_MS
from streaming.errors import FrescoError
from tests.intakeworld import insert, make, net, row
from tests.sourcelog import Record, SourceLog, Topics


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


# A server whose log goes back (oddity 33) ---------------------------------------------------------


def restored(log: SourceLog, *, at: int, days_later: int = 1) -> SourceLog:
    """The same source from a position on, its clock so much later; `ts_ms` follows the position."""
    later = SourceLog(log.name, lsn=at, transaction=5)
    begin, end = later.begin, later.end

    def moved(record: Record) -> Record:
        event = json.loads(str(record[1]))
        return record[0], json.dumps(event | {"ts_ms": event["ts_ms"] + days_later * 86_400_000})

    later.begin = lambda key: moved(begin(key))  # type: ignore[method-assign]
    later.end = lambda *a, **k: moved(end(*a, **k))  # type: ignore[method-assign]
    return later


@pytest.mark.parametrize("apart", [True, False], ids=["in a later batch", "in one batch"])
@pytest.mark.parametrize("again", [True, False], ids=["from a manifest", "as it runs"])
def test_oddity_33_a_restored_database_under_the_same_prefix_is_told_not_dropped(
    apart: bool, again: bool
) -> None:
    log, topics, intake = SourceLog("north", lsn=500_000), Topics(), make()
    before = [record for _ in range(3) for record in log.commit([insert("account", 1)])]
    after = restored(log, at=1000).commit([insert("account", 2)])
    if apart:
        intake.step(topics.batch(before), 0)
        if again:
            held = intake.snapshot()
            intake = make()
            intake.restore(held)
        intake.step(topics.batch(after[:1]), 0)  # its BEGIN alone says nothing yet
        batch = topics.batch(after[1:])
    else:
        batch = topics.batch([*before, *after])
    for _ in range(2):
        with pytest.raises(FrescoError, match=r"SOURCE_POSITIONS_BACK.*north"):
            intake.step(batch, 0)


def test_repeats_from_far_back_are_no_restored_database() -> None:
    """A connector that lost its offsets sends all again, with the commit times of then."""
    log, topics, intake = SourceLog("north"), Topics(), make()
    every = [record for _ in range(50) for record in log.commit([insert("account", 1)])]
    assert intake.step(topics.batch(every), 0).last == 50
    again = intake.step(topics.batch([*every, *every[:30]]), 0)
    assert net(again) == {} and again.last < again.first


def test_commit_times_that_differ_a_little_from_the_order_of_positions_are_no_fault() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make()
    late, early = log.commit([insert("account", 1)]), log.commit([insert("account", 2)])
    event = json.loads(str(late[2][1]))
    ends = (late[2][0], json.dumps(event | {"ts_ms": event["ts_ms"] + LATER_MS}))
    intake.step(topics.batch([*late[:2], ends, *early]), 0)
    assert intake.step(topics.batch([*late[:2], ends]), 0).waiting == {}
