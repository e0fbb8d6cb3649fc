"""Oddity 17 over a restart: rows that wait while their relation gets other columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from streaming.captured.captured_schema import captured
from streaming.cdc.held_rows import HeldFiles
from streaming.cdc.intake import Intake
from streaming.durable import as_json
from tests.intakeworld import make, net
from tests.sourcelog import SourceLog, Topics

BEFORE = [("id", "int4"), ("old", "text"), ("kept", "text"), ("wide", "int4")]
AFTER = [("id", "int4"), ("kept", "text"), ("wide", "int8"), ("new", "text")]


def files(folder: Path) -> HeldFiles:
    def stage(rows: Any) -> str:
        path = str(folder / f"{len(list(folder.iterdir()))}.parquet")
        pq.write_table(rows, path)
        return path

    return HeldFiles(stage, lambda path, columns: pq.read_table(path, columns=list(columns)))


def intake(columns: list[tuple[str, str]], folder: Path) -> Intake:
    return make([captured("north.t", "north.public.t", columns, key=["id"])], files=files(folder))


@pytest.mark.parametrize("rows", [1, 2000], ids=["inside_the_snapshot", "staged"])
def test_oddity_17_held_rows_keep_their_columns_over_a_restart(tmp_path: Path, rows: int) -> None:
    log, topics = SourceLog("north"), Topics()
    changes = [
        ("t", "c", None, {"id": i, "old": f"o{i}", "kept": f"k{i}", "wide": i}) for i in range(rows)
    ]
    *events, end = log.commit(changes)
    first = intake(BEFORE, tmp_path)
    first.step(topics.batch(events), 0)
    saved = as_json(first.snapshot())
    assert len(list(tmp_path.iterdir())) == (1 if rows > 1 else 0)

    second = intake(AFTER, tmp_path)
    second.restore(saved)
    result = second.step(topics.batch([end]), 0)
    expected = {(i, f"k{i}", None, None): 1 for i in range(rows)}
    assert net(result) == {(1, "north.t"): expected}
    assert [(c.number, c.columns) for c in result.controls] == [(1, (2,)), (1, (3,))]

    same = intake(BEFORE, tmp_path)
    same.restore(saved)
    result = same.step(topics.batch([end]), 0)
    assert net(result) == {(1, "north.t"): {(i, f"o{i}", f"k{i}", i): 1 for i in range(rows)}}
    assert result.controls == ()
