"""Snapshots taken again of which no more comes: let go, and said so (DESIGN 5 and 11)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streaming.cdc.later_snapshots import SILENCE_MS
from tests.intakeworld import insert, row, spoiled
from tests.retakenworld import Source
from tests.sourcelog import Record


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
    said = [one.split(":")[0] for one in source.step().notices]
    differs = ["SOURCE_SNAPSHOT_DIFFERS"] * len(scanned)
    assert said == [*differs, *["SOURCE_SNAPSHOT_UNFINISHED"] * (2 - len(scanned))]
    assert source.intake.snapshot()["retaken"]["takings"] == []
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "lost" if scanned else "a"), (9, "a")]
    assert source.has("entry") == [(0, "a"), (1, "a")]


def test_a_snapshot_of_a_producer_whose_events_do_not_say_when_they_committed_is_let_go() -> None:
    """By our clock: nothing tells when its log has passed what the snapshot may have seen."""
    source = Source("per-event")

    def timeless(records: list[Record]) -> list[Record]:
        return [(topic, (text or "").replace('"ts_ms"', '"at"')) for topic, text in records]

    rows = source.again(account=[row(0), row(1), row(2, "lost")])
    source.step([*rows, *timeless(source.later(insert("account", 9)))], 1)
    source.step(timeless(source.later(insert("account", 10))), SILENCE_MS)
    assert source.step(now_ms=SILENCE_MS + 1).notices == (), "more of it may come"
    said = source.step(now_ms=SILENCE_MS + 2).notices
    assert [one.partition(":")[0] for one in said] == ["SOURCE_SNAPSHOT_UNFINISHED"]
    assert source.intake.snapshot()["retaken"]["takings"] == []
    assert source.has("account") == [(0, "a"), (1, "a"), (2, "a"), (9, "a"), (10, "a")]


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
