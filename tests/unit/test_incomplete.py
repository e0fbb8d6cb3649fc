"""What holds up a source is told of once, and again when it is another transaction that does."""

from __future__ import annotations

import pytest

from streaming.stages.incomplete_watch import (
    IncompleteWatch,
    part_missing,
    rows_missing,
    snapshot_open,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (rows_missing, "SOURCE_TRANSACTION_INCOMPLETE"),
        (part_missing, "SOURCE_GLOBAL_INCOMPLETE"),
        (snapshot_open, "SOURCE_SNAPSHOT_OPEN"),
    ],
)
def test_each_transaction_is_told_of_once(error, code) -> None:
    shown: list[str] = []
    watch = IncompleteWatch(lambda source, seconds: shown.append(source), error, patience=0)
    (first,) = watch.look({"north": "17"})
    assert first.code == code
    assert "17" in str(first)
    assert watch.look({"north": "17"}) == []
    (second,) = watch.look({"north": "18"})
    assert "18" in str(second)
    assert watch.look({}) == []
    (again,) = watch.look({"north": "18"})
    assert again.code == code
    assert shown == ["north"] * 5


def test_nothing_is_told_of_what_waits_for_a_moment_only() -> None:
    watch = IncompleteWatch(lambda *_: None, rows_missing, patience=3600)
    assert watch.look({"north": "17"}) == []
    assert watch.look({}) == []
