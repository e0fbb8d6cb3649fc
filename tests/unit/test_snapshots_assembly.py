"""Initial snapshots put together: number 0, late rows, a snapshot begun again, the first of several."""

from __future__ import annotations

from tests.intakeworld import insert, make, net, row, snapshot_of, spoiled
from tests.retakenworld import Source
from tests.sourcelog import Record, SourceLog, Topics


def test_number_0_waits_until_every_row_of_every_snapshot_is_in() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make(snapshot=True)
    *rows, last = snapshot_of(log, {"account": 2, "entry": 0})
    late = rows.pop(1)
    early = [*rows, last, *log.commit([insert("entry", 5)])]
    result = intake.step(topics.batch(early), 0)
    assert (result.first, result.last) == (0, -1)
    said = "it is complete, and 1 of 2 rows of north.account have come"
    assert result.open_snapshots == {"north": said}
    assert result.held == 1
    result = intake.step(topics.batch([late]), 0)
    assert (result.first, result.last) == (0, 1) and result.open_snapshots == {}
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


def test_what_has_come_of_a_snapshot_that_does_not_close_is_said() -> None:
    """Without notifications, or with a row delivered twice of a table without a key, it never does."""
    log, topics, intake = SourceLog("north"), Topics(), make(snapshot=True)
    *rows, last = snapshot_of(log, {"account": 1, "entry": 2})
    result = intake.step(topics.batch([*rows, rows[1]]), 0)
    said = "4 rows have come, and no notification that it is complete"
    assert result.open_snapshots == {"north": said}
    result = intake.step(topics.batch([last]), 0)
    said = "it is complete, and 3 of 2 rows of north.entry have come"
    assert result.open_snapshots == {"north": said}


def ended_at_its_last_row(log: SourceLog) -> list[Record]:
    """A snapshot whose connector was killed between its last row and its COMPLETED."""
    return [log.note("STARTED"), *snapshot_of(log, {"account": 2, "entry": 1})[:3]]


def test_of_an_attempt_that_came_to_its_last_row_nothing_counts_either() -> None:
    """What was changed before the next attempt no log tells: it begins after that one."""
    log, topics, intake = SourceLog("north"), Topics(), make(snapshot=True)
    intake.step(topics.batch(ended_at_its_last_row(log)), 0)
    log.lsn += 100
    rows = [log.row("account", "r", None, row(i, "new")) for i in (0, 7)]
    rows.append(log.row("entry", "r", None, row(8)))
    records = [*rows, *log.scanned({"account": 2, "entry": 1}), *log.commit([insert("entry", 9)])]
    result = intake.step(topics.batch(records), 0)
    assert net(result) == {
        (0, "north.account"): {(0, "new"): 1, (7, "new"): 1},
        (0, "north.entry"): {(8, "a"): 1},
        (1, "north.entry"): {(9, "a"): 1},
    }


def test_an_attempt_without_rows_does_not_make_a_later_snapshot_the_initial_one() -> None:
    """As where a right was missing at first: the log tells that the other is a later one."""
    log, topics, intake = SourceLog("north"), Topics(), make(snapshot=True)
    broken = [log.note("STARTED"), log.note("ABORTED")]
    first = snapshot_of(log, {"account": 1, "entry": 0})
    between = log.commit([("account", "u", row(0), row(0, "b"))])
    log.lsn += 100
    later = [log.row("account", "r", None, row(0, "b"))]
    records = [*broken, *first, *between, *later, *log.scanned({"account": 1, "entry": 0})]
    result = intake.step(topics.batch(records), 0)
    assert net(result) == {
        (0, "north.account"): {(0, "a"): 1},
        (1, "north.account"): {(0, "a"): -1, (0, "b"): 1},
    }


def test_a_row_of_the_closed_snapshot_that_comes_again_is_a_repeat() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make(snapshot=True)
    intake.step(topics.batch(snapshot_of(log, {"account": 1, "entry": 0})), 0)
    before = intake.snapshot()
    again = log.row("account", "r", None, row(0))
    assert intake.step(topics.batch([again]), 0).last == 0
    assert intake.snapshot() == before


def test_a_snapshot_of_a_source_configured_without_one_is_one_that_is_taken_later() -> None:
    """It must not end the service: its relation is filled when it is complete, under one number."""
    source = Source(begun=False, snapshot=False)
    source.step(source.commit(insert("account", 7, "x"), insert("entry", 1)))
    source.step(source.again(account=[row(0), row(7, "x"), row(8, "y")]))
    assert source.has("account") == [(7, "x")]
    source.step(source.later(insert("entry", 2)))
    result = source.step(source.later(insert("entry", 3)))
    assert any("SOURCE_SNAPSHOT_DIFFERS" in one for one in result.notices)
    assert source.has("account") == [(0, "a"), (7, "x"), (8, "y")]
    assert source.has("entry") == [(1, "a"), (2, "a"), (3, "a")]


def test_the_first_whole_snapshot_is_the_initial_one_when_topics_hold_later_ones() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make(snapshot=True)
    first = snapshot_of(log, {"account": 1, "entry": 0})
    between = log.commit([insert("account", 5)])
    log.lsn += 100
    later = [log.row("account", "r", None, row(i)) for i in (0, 5)]
    notes = log.scanned({"account": 2, "entry": 0})
    result = intake.step(topics.batch([*first, *between, *later, *notes]), 0)
    assert net(result) == {
        (0, "north.account"): {(0, "a"): 1},
        (1, "north.account"): {(5, "a"): 1},
    }


def test_an_undecodable_snapshot_row_taints_number_0() -> None:
    log = SourceLog("north")
    first, *rest = snapshot_of(log, {"account": 2, "entry": 0})
    result = make(snapshot=True).step(Topics().batch([spoiled(first), *rest]), 0)
    assert result.last == 0 and result.tainted == {0: ("north.account",)}


def test_a_source_without_snapshot_starts_empty() -> None:
    result = make(snapshot=False).step(Topics().batch([]), 0)
    assert (result.first, result.last) == (0, 0) and result.updates == {}
