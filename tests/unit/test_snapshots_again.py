"""A snapshot taken again while the log goes on: no doubles, no lost deletes (oddity 5; DESIGN 5)."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.cdc.intake_result import IntakeResult
from streaming.cdc.replacement import cannot_tell
from streaming.durable import as_json
from streaming.warehouse.initial import emptied_by_source, still_lost
from streaming.warehouse.updates import LostColumn
from tests.intakeworld import insert, row, snapshot_of
from tests.retakenworld import Change, Source


def update(old: dict[str, Any], new: dict[str, Any]) -> Change:
    return ("account", "u", old, new)


def test_a_snapshot_that_agrees_changes_nothing_and_takes_no_number() -> None:
    source = Source()
    result = source.step(source.again(account=[row(0), row(1), row(2)], entry=[row(0), row(1)]))
    assert result.first > result.last
    result = source.step(source.later(insert("account", 9)))
    assert (result.first, result.last) == (1, 1)
    result = source.step()
    assert result.first > result.last and result.controls == ()
    assert [n.partition(": it ")[2] for n in result.notices] == [
        "agrees with what the log has told"
    ] * 2
    assert source.step().notices == (), "said once"
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "a"), (9, "a")]


def test_what_the_log_has_lost_is_made_good_under_one_number_in_all_relations() -> None:
    """Lost: account 1 changed, account 2 deleted, account 7 and entry 8 inserted."""
    source = Source()
    rows = source.again(account=[row(0), row(1, "x"), row(7)], entry=[row(0), row(1), row(8)])
    source.step([*rows, *source.later(insert("account", 9))])
    result = source.step()
    assert (result.first, result.last) == (2, 2)
    assert [(c.number, c.relation, c.kind) for c in result.controls] == [
        (2, "north.account", "truncate"),
        (2, "north.entry", "truncate"),
    ]
    assert [(r.first, r.last, r.views) for r in result.runs["main"]] == [
        (2, 2, ("north_account", "north_entry"))
    ]
    assert result.transactions.num_rows == 0
    assert [n.partition(":")[0] for n in result.notices] == ["SOURCE_SNAPSHOT_DIFFERS"] * 2
    assert source.has("account") == [(0, "a"), (1, "x"), (7, "a"), (9, "a")]
    assert source.has("entry") == [(0, "a"), (1, "a"), (8, "a")]


def test_what_the_snapshot_has_seen_ahead_of_the_log_is_not_done_twice() -> None:
    """Blocking: the rows are stamped with where the log stood, and have seen part of what comes then."""
    source = Source()
    source.step(source.commit(insert("entry", 9)))
    stood = source.log.lsn
    seen = source.commit(
        insert("account", 5), update(row(0), row(0, "y")), ("account", "d", row(1), None)
    )
    read = [row(0, "y"), row(2, "lost"), row(5)]
    rows = [source.log.row("account", "r", None, one, lsn=stood) for one in read]
    source.step([*rows, *source.log.scanned({"account": 3})])
    assert source.step().notices == (), "the log has not come so far"
    source.step(seen)
    assert source.step().notices == (), "nothing says that the log has passed the snapshot"
    source.step(source.later(update(row(5), row(5, "z"))))
    source.step()
    assert source.has("account") == [(0, "y"), (2, "lost"), (5, "z")]


def test_events_that_have_no_number_yet_come_after_the_snapshots_rows() -> None:
    source = Source()
    rows = source.again(account=[row(0), row(1), row(2, "lost")])
    source.step([*rows, *source.later(insert("account", 9))])
    begin, change, end = source.commit(update(row(2, "lost"), row(2, "new")))
    source.step([begin, change])
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "lost"), (9, "a")]
    source.step([end])
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "new"), (9, "a")]


def test_a_snapshot_waits_for_all_its_rows_and_only_the_newest_attempt_counts() -> None:
    source = Source()
    broken = source.again(account=[row(0), row(1), row(2)])[:2]
    rows = source.again(account=[row(0), row(1), row(6)])
    source.step([source.log.note("STARTED"), *broken])
    late = rows.pop(1)
    source.step([*rows, *source.later(insert("entry", 9))])
    assert source.step().notices == ()
    source.step([late])
    source.step()
    assert source.has("account") == [(0, "a"), (1, "a"), (6, "a")]


def test_events_without_transactions_say_themselves_how_far_the_log_has_come() -> None:
    source = Source("per-event")
    source.step(source.commit(insert("entry", 9)))
    stood = source.log.lsn
    seen = source.commit(insert("account", 5), update(row(0), row(0, "y")))
    read = [row(0, "y"), row(2, "lost"), row(5)]
    rows = [source.log.row("account", "r", None, one, lsn=stood) for one in read]
    source.step([*rows, *source.log.scanned({"account": 3})])
    source.step(seen)
    assert source.step().notices == (), "nothing says that the log has passed the snapshot"
    source.step(source.later(update(row(5), row(5, "z"))))
    source.step()
    assert source.has("account") == [(0, "y"), (2, "lost"), (5, "z")]


@pytest.mark.parametrize("split", [False, True])
def test_a_transaction_that_is_delivered_again_after_the_snapshot_is_not_newer(split: bool) -> None:
    """A TRUNCATE that the log does not tell, a snapshot to make it good, a restart of the connector."""
    source = Source()
    old = source.commit(insert("account", 7))
    source.step(old)
    rows = source.again(account=[row(0)])
    begin, event, end = old
    source.step([*rows, begin, event, *([] if split else [end])])
    source.step([*([end] if split else []), *source.later(insert("entry", 9))])
    source.step()
    assert source.has("account") == [(0, "a")]


def test_rows_of_an_attempt_are_not_counted_as_those_of_the_next() -> None:
    """Between the two the log has lost entry 1 and entry 8; each topic comes when it likes."""
    source = Source()
    account = [row(0), row(1), row(2)]
    broken = source.again(account=account, entry=[row(0), row(1)])
    source.step([source.log.note("STARTED"), *broken[:5]])
    rows = source.again(account=account, entry=[row(0), row(8)])
    source.step([*rows[:3], *rows[5:], *source.later(insert("account", 9))])
    assert source.step().notices == (), "the rows of entry have not come"
    source.step(rows[3:5])
    source.step(source.later(insert("account", 10)))
    source.step()
    assert source.has("entry") == [(0, "a"), (8, "a")]


def test_rows_of_the_initial_snapshot_that_come_after_those_of_a_broken_attempt_replace_them() -> (
    None
):
    """The notifications, in a topic of their own, were ahead of them."""
    source = Source(begun=False)
    tables = {"account": 2, "entry": 1}
    source.step([source.log.note("STARTED"), *snapshot_of(source.log, tables)[:3]])
    rows = source.again(account=[row(0, "new"), row(7)], entry=[row(8)])
    source.step(rows[3:])
    source.step(rows[:3])
    source.step(source.later(insert("account", 9)))
    source.step()
    assert source.has("account") == [(0, "new"), (7, "a"), (9, "a")]
    assert source.has("entry") == [(8, "a")]


@pytest.mark.parametrize("partition", [0, 1])
def test_a_truncate_before_the_snapshot_takes_nothing_of_it(partition: int) -> None:
    source = Source()
    source.topics.truncates = partition
    before = source.commit(("account", "t", None, None), insert("account", 4))
    rows = source.again(account=[row(4), row(5, "lost")])
    first, *others = [*before, *rows] if not partition else [*rows, *before]
    source.step([first, *others, *source.later(insert("entry", 9))])
    source.step()
    assert source.has("account") == [(4, "a"), (5, "lost")]


@pytest.mark.parametrize("partition", [0, 1])
def test_a_truncate_after_the_snapshot_leaves_nothing_of_it(partition: int) -> None:
    source = Source()
    source.topics.truncates = partition
    rows = source.again(account=[row(0), row(1), row(2, "lost")])
    gone = insert("account", 2, "lost")
    source.step([*rows, *source.later(gone, ("account", "t", None, None), insert("account", 4))])
    assert source.step().controls == ()
    assert source.has("account") == [(4, "a")]


def test_rows_between_the_logs_own_count_at_their_place() -> None:
    """Incremental: upserts of some keys; what they do not name stays."""
    source = Source()
    passing = [
        source.log.row("account", "r", None, row(i, v), passing=True)
        for i, v in ((1, "lost"), (2, "a"))
    ]
    note = source.log.note("COMPLETED", kind="Incremental Snapshot")
    before = source.commit(update(row(2), row(2, "b")))
    after = source.commit(update(row(2, "b"), row(2, "c")))
    source.step([*before[:-1], passing[0], note])
    assert source.step().notices == (), "an event before the row has no number"
    source.step(
        [before[-1], source.log.row("account", "r", None, row(2, "b"), passing=True), *after]
    )
    source.step()
    assert source.has("account") == [(0, "a"), (1, "lost"), (2, "c")]


def test_a_row_told_gone_with_values_it_never_came_with_is_gone() -> None:
    """The log has lost how it changed, and then told of its end; no incremental snapshot names it."""
    source = Source()
    source.step(source.commit(("account", "d", row(1, "lost"), None)))
    read = source.log.row("account", "r", None, row(2, "new"), passing=True)
    source.step([read, source.log.note("COMPLETED", kind="Incremental Snapshot")])
    source.step()
    assert source.has("account") == [(0, "a"), (2, "new")]


def test_a_relation_without_a_key_is_replaced_while_nobody_writes_to_it() -> None:
    source = Source()
    rows = source.again(entry=[row(1), row(1), row(5)])
    source.step([*rows, *source.later(insert("account", 9))])
    source.step()
    assert source.has("entry") == [(1, "a"), (1, "a"), (5, "a")]


WORDS = row(1, "no number")


def lost(*results: IntakeResult) -> list[tuple[int, str]]:
    """Numbers and texts of the columns' taints that are not ended by what came after."""
    controls = [one for result in results for one in result.controls]
    columns = [
        LostColumn(one.number, one.relation, "v", one.adds, one.what)
        for one in controls
        if one.columns
    ]
    whole = [one for one in controls if not one.columns]
    found = still_lost(columns, emptied_by_source(whole, retold=True))
    return [(one.number, one.relation) for one in found]


@pytest.mark.parametrize("case", ["gone", "there", "after", "incremental"])
def test_a_taint_ends_with_a_snapshot_that_tells_all_values(case: str) -> None:
    """A value that could not be read: the log has lost that it is gone, or it is there still, in the
    snapshot, or in a row that an event has told since."""
    source = Source(value="int4")
    bad = update(row(1, 0), WORDS)
    source.step(source.commit(bad))
    assert lost(*source.results) == [(1, "north.account")]
    rows = [row(0, 7), WORDS if case == "there" else row(1, 1), row(2, 0)]
    records = source.again(account=rows)
    if case == "incremental":
        records = [source.log.row("account", "r", None, one, passing=True) for one in rows]
        records.append(source.log.note("COMPLETED", kind="Incremental Snapshot"))
    then = [update(row(2, 0), row(2, "no number"))] if case == "after" else []
    source.step([*records, *source.later(*then, insert("entry", 9, 9))])
    source.step()
    assert source.has("account")[0] == (0, 7), "it differs, and is replaced"
    wanted = {"gone": [], "there": [(3, "north.account")]}
    assert lost(*source.results) == wanted.get(case, [(1, "north.account")])


def test_a_snapshot_that_nobody_can_tell_stops_the_views_of_its_relation_and_no_others() -> None:
    """Without a key, a difference beside changes; the snapshot waits for a decision, as a bad record."""
    source = Source()
    rows = source.again(account=[row(0), row(1), row(2, "lost")], entry=[row(1), row(5)])
    source.step([*rows, *source.later(insert("entry", 9))])
    result = source.step(source.commit(insert("account", 7)))
    (bad,) = result.bad
    assert bad.error["code"] == "SOURCE_SNAPSHOT_REPEATED" and "no key" in bad.error["what"]
    assert (bad.relation, bad.transaction, bad.partition, bad.offset) == ("north.entry", None, 0, 2)
    assert (result.first, result.last) == (2, 3) and result.tainted == {2: ("north.entry",)}
    views = ("north_account", "north_entry")
    assert [run.views for run in result.runs["main"]] == [views, views[:1]]
    assert source.intake.snapshot()["retaken"]["takings"] == []
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "lost"), (7, "a")]
    assert source.has("entry") == [(0, "a"), (1, "a"), (9, "a")]


def test_a_snapshot_of_what_is_no_longer_recorded_ends_no_pipeline() -> None:
    source = Source()
    source.contents = cannot_tell
    source.step()
    rows = source.again(account=[row(0)], entry=[])
    source.step([*rows, *source.later(insert("entry", 9))])
    result = source.step()
    assert result.tainted == {2: ("north.account",)}
    assert [one.partition(":")[0] for one in result.notices] == ["SOURCE_SNAPSHOT_EMPTY"]


def test_without_a_key_changes_beside_a_snapshot_that_agrees_are_fine() -> None:
    source = Source()
    seen = source.commit(insert("entry", 5))
    rows = source.again(entry=[row(0), row(1), row(5)])
    source.step([*rows, *seen, *source.later(insert("entry", 9))])
    assert len(source.step().notices) == 1
    assert source.has("entry") == [(0, "a"), (1, "a"), (5, "a"), (9, "a")]


def test_an_empty_table_cannot_tell_what_came_after_it_and_is_named() -> None:
    source = Source()
    source.step([*source.again(account=[]), *source.later(insert("account", 9))])
    source.step()
    source.step()
    said = [one for result in source.results for one in result.notices]
    assert ["SOURCE_SNAPSHOT_EMPTY" in one for one in said] == [True]
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "a"), (9, "a")]


def test_rows_of_a_table_that_was_altered_before_they_took_effect_are_dropped() -> None:
    source = Source()
    rows = source.again(account=[row(0), row(1), row(2, "lost")])
    source.step(rows)
    saved = as_json(source.intake.snapshot())
    saved["columns"]["north.account"][1][1] = "int"
    source.intake = source._made()
    source.intake.restore(saved)
    source.step(source.later(insert("entry", 9)))
    assert source.step().controls == ()
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "a")]
