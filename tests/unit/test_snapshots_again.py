"""A snapshot taken again while the log goes on: no doubles, no lost deletes (oddity 5; DESIGN 5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from streaming.errors import FrescoError
from streaming.sources.intake import Intake, IntakeResult
from streaming.sources.retaken import CLOCKS_MS, SILENCE_MS
from tests.intakeworld import Recorded, insert, make, relations, row, snapshot_of, spoiled
from tests.sourcelog import Record, SourceLog, Topics

Change = tuple[str, str, dict[str, Any] | None, dict[str, Any] | None]


class Source:
    """A database, its log as the connector tells it, and an intake that is restarted at every step."""

    def __init__(self) -> None:
        self.log, self.topics = SourceLog("north"), Topics()
        self.results = Recorded()
        self.intake = self._made()
        self.step(snapshot_of(self.log, {"account": 3, "entry": 2}))

    def _made(self) -> Intake:
        return make(snapshot=True, contents=self.results.contents)

    def step(self, records: list[Record] | None = None, now_ms: int = 0) -> IntakeResult:
        result = self.intake.step(self.topics.batch(records or []), now_ms)
        self.results.append(result)
        saved = json.loads(json.dumps(self.intake.snapshot()))
        self.intake = self._made()
        self.intake.restore(saved)
        return result

    def commit(self, *changes: Change) -> list[Record]:
        return self.log.commit(list(changes))

    def later(self, *changes: Change) -> list[Record]:
        """A transaction so late that a snapshot before it has not seen it, whoever's clock is right."""
        self.log.lsn += CLOCKS_MS
        return self.commit(*changes)

    def again(self, **tables: list[dict[str, Any]]) -> list[Record]:
        """A whole snapshot, taken at the log's end."""
        self.log.lsn += 1
        rows = [self.log.row(t, "r", None, values) for t, rows in tables.items() for values in rows]
        return [*rows, *self.log.scanned({table: len(rows) for table, rows in tables.items()})]

    def has(self, table: str) -> list[tuple[Any, ...]]:
        """The relation as the numbered updates make it."""
        captured = {one.counted_as: one for one in relations()}[f"public.{table}"]
        return self.results.rows(captured)


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


def test_a_truncate_after_the_snapshot_leaves_nothing_of_it() -> None:
    source = Source()
    rows = source.again(account=[row(0), row(1), row(2, "lost")])
    source.step([*rows, *source.later(("account", "t", None, None), insert("account", 4))])
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


def test_a_relation_without_a_key_is_replaced_while_nobody_writes_to_it() -> None:
    source = Source()
    rows = source.again(entry=[row(1), row(1), row(5)])
    source.step([*rows, *source.later(insert("account", 9))])
    source.step()
    assert source.has("entry") == [(1, "a"), (1, "a"), (5, "a")]


def test_without_a_key_a_difference_beside_changes_is_refused_and_changes_nothing() -> None:
    source = Source()
    rows = source.again(entry=[row(1), row(5)])
    source.step([*rows, *source.later(insert("entry", 9))])
    before = source.intake.snapshot()
    with pytest.raises(FrescoError) as refused:
        source.intake.step(source.topics.batch([]), 0)
    assert refused.value.code == "SOURCE_SNAPSHOT_REPEATED"
    assert "no key" in refused.value.what and "offset 2" in refused.value.where
    assert source.intake.snapshot() == before


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
    saved = json.loads(json.dumps(source.intake.snapshot()))
    saved["columns"]["north.account"][1][1] = "int"
    source.intake = source._made()
    source.intake.restore(saved)
    source.step(source.later(insert("entry", 9)))
    assert source.step().controls == ()
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "a")]


@pytest.mark.parametrize("scanned", [("account",), ()])
def test_what_was_read_of_a_snapshot_that_was_broken_off_is_let_go(
    scanned: tuple[str, ...],
) -> None:
    """Else the keys of all later events were held for it, for ever."""
    source = Source()
    rows = source.again(account=[row(0), row(1), row(2, "lost")], entry=[row(0)])[:4]
    told = [source.log.note("STARTED")]
    for table in scanned:
        collection = f"public.{table}"
        told.append(
            source.log.note(
                "TABLE_SCAN_COMPLETED", scanned_collection=collection, total_rows_scanned="3"
            )
        )
    source.step([*rows, *told, source.log.note("ABORTED")])
    source.step(source.later(insert("account", 9)))
    source.step()
    assert source.intake.snapshot()["retaken"]["takings"] == []
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "lost" if scanned else "a"), (9, "a")]
    assert source.has("entry") == [(0, "a"), (1, "a")]


def silence(source: Source) -> None:
    """The source commits, and for so long nothing of a snapshot has been heard."""
    source.log.lsn += SILENCE_MS
    source.step(source.commit(insert("account", 10)))


def lacking(source: Source) -> list[Record]:
    """A snapshot of which a record cannot be decoded."""
    rows = source.again(account=[row(0), row(1), row(2, "lost")], entry=[row(0)])
    return [spoiled(rows[0]), *rows[1:]]


def doubled(source: Source) -> list[Record]:
    """A snapshot with a row delivered twice of a table in which rows have no identity."""
    rows = source.again(account=[row(0), row(1), row(2, "lost")], entry=[row(0), row(1)])
    return [rows[3], *rows]


def cut_off(source: Source) -> list[Record]:
    """A snapshot whose connector was killed."""
    rows = source.again(account=[row(0), row(1), row(2, "lost")], entry=[row(0)])
    return [*rows[:2], source.log.note("STARTED")]


@pytest.mark.parametrize(
    ("spoil", "count"),
    [
        (lacking, "2 of 3 rows"),
        (doubled, "3 of 2 rows"),
        (cut_off, "2 of an unknown number of rows"),
    ],
)
def test_a_whole_snapshot_that_can_never_take_effect_is_let_go_and_said_so(
    spoil: Callable[[Source], list[Record]], count: str
) -> None:
    """Else the keys of all later events were held for it until the next snapshot."""
    source = Source()
    records = spoil(source)
    source.step(records)
    source.step(source.later(insert("account", 9)))
    assert source.step().notices == (), "more of it may come"
    assert source.intake.snapshot()["retaken"]["takings"]
    silence(source)
    said = source.step().notices
    assert [one.partition(":")[0] for one in said] == ["SOURCE_SNAPSHOT_UNFINISHED"] * len(said)
    assert sum(count in one for one in said) == 1
    assert source.intake.snapshot()["retaken"]["takings"] == []
    source.step([records[1]])  # delivered again
    assert source.intake.snapshot()["retaken"]["takings"] == []
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "a"), (9, "a"), (10, "a")]
    assert source.has("entry") == [(0, "a"), (1, "a")]


def test_the_snapshot_after_one_that_was_let_go_takes_effect() -> None:
    source = Source()
    source.step(lacking(source))
    silence(source)
    source.step()
    rows = source.again(account=[row(0), row(2, "lost"), row(10)], entry=[row(0), row(1)])
    source.step([*rows, *source.later(insert("entry", 9))])
    source.step()
    assert source.has("account") == [(0, "a"), (2, "lost"), (10, "a")]


def test_while_rows_of_a_snapshot_come_nothing_of_it_is_let_go() -> None:
    """However long it takes: what counts is when the last row was read."""
    source = Source()
    rows = source.again(account=[row(0), row(1), row(2, "lost")])
    source.step(rows[:1])
    source.log.lsn += 2 * SILENCE_MS
    late = source.commit(insert("account", 10))
    source.step([*rows[1:2], *late], source.log.lsn)
    source.step()
    source.step(rows[2:])
    source.step(source.later(insert("account", 9)))
    source.step()
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "lost"), (9, "a"), (10, "a")]


def test_what_came_of_an_incremental_snapshot_that_was_broken_off_is_used() -> None:
    source = Source()
    source.step([source.log.row("account", "r", None, row(1, "lost"), passing=True)])
    source.step(source.later(insert("account", 9)))
    assert source.step().controls == (), "more of it may come"
    silence(source)
    source.step()
    assert source.has("account") == [(0, "a"), (1, "lost"), (2, "a"), (9, "a"), (10, "a")]
    assert source.intake.snapshot()["retaken"]["takings"] == []
