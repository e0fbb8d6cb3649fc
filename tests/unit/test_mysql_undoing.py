"""Rolled-back rows in a log: against a list that is cut where a savepoint stands."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.capture import rollbacks
from streaming.capture.log_events import (
    Begin,
    Commit,
    Passed,
    Rollback,
    RollbackTo,
    RowChange,
    Savepoint,
)
from streaming.capture.rollbacks import kept_rows

LASTING = ("bank", "lasting")


def at(offset: int) -> LogPlace:
    return LogPlace("log.000001", offset)


def random_log(rng: random.Random) -> tuple[list[Any], list[Any]]:
    """A log of some transactions, and what is left of it, told by a model of the server's own."""
    log: list[Any] = []
    left: list[Any] = []
    place = 4
    for _ in range(rng.randrange(1, 5)):
        begin = Begin(at(place), "", 1)
        log.append(begin)
        rows: list[Any] = []
        marks: list[tuple[str, int]] = []
        for _ in range(rng.randrange(0, 25)):
            place += 10
            kind = rng.random()
            if kind < 0.6:
                table = LASTING if rng.random() < 0.2 else ("bank", "entry")
                row = RowChange(table, "c", None, {"id": place}, at(place), 0, 1, 1)
                log.append(row)
                rows.append(row)
            elif kind < 0.8:
                name = rng.choice("abc")
                log.append(Savepoint(name, at(place)))
                marks = [mark for mark in marks if mark[0] != name] + [(name, place)]
            elif marks:
                chosen = rng.randrange(len(marks))
                name, since = marks[chosen]
                del marks[chosen + 1 :]
                log.append(RollbackTo(name, at(place)))
                rows = [r for r in rows if r.at < at(since) or r.table == LASTING]
        place += 10
        if rng.random() < 0.3:
            log.append(Rollback(at(place), 1))
            rows = [r for r in rows if r.table == LASTING]
        else:
            log.append(Commit(at(place), 1))
        left += [begin, *rows, Commit(at(place), 1)]
        if rng.random() < 0.3:
            log.append(Passed(at(place)))
            left.append(Passed(at(place)))
    return log, left


@pytest.mark.parametrize("held", [0, 1, 5, 1000])
def test_what_was_rolled_back_is_left_out_however_much_is_held(
    held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollbacks, "HELD", held)
    for seed in range(300):
        log, left = random_log(random.Random(seed))

        def ahead(begin: LogPlace, log: list[Any] = log) -> Iterator[Any]:
            first = [n for n, e in enumerate(log) if isinstance(e, Begin) and e.at == begin]
            return (e for e in log[first[0] :] if not isinstance(e, RowChange))

        assert list(kept_rows(log, {LASTING}, ahead)) == left, f"seed {seed}, held {held}"
