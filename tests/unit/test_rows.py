"""Rows travel inside a message or as a staged file, and damage is found before they are used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streaming.errors import FrescoError
from streaming.messages import INLINE_LIMIT, Rows
from streaming.packed_rows import locate, pack, unpack


def stage_under(root: Path):  # type: ignore[no-untyped-def]
    def stage(content: bytes) -> str:
        (root / "_staging").mkdir(exist_ok=True)
        (root / "_staging" / "a.parquet").write_bytes(content)
        return "_staging/a.parquet"

    return stage


def random_numbers(rows: int) -> pa.Table:
    return pa.table({"c0": np.random.default_rng(7).integers(0, 2**62, rows)})


def test_small_rows_travel_inside_the_message(tmp_path: Path) -> None:
    table = random_numbers(100)
    rows = pack(table, stage_under(tmp_path))
    assert rows.path is None
    assert unpack(rows, tmp_path) == table
    assert locate(rows, tmp_path) == table


def test_rows_above_the_limit_are_staged_once_and_found_by_path(tmp_path: Path) -> None:
    table = random_numbers(INLINE_LIMIT // 8 + 1)
    rows = pack(table, stage_under(tmp_path))
    assert rows.ipc is None
    assert rows.rows == table.num_rows
    assert locate(rows, tmp_path) == tmp_path / "_staging/a.parquet"
    assert unpack(rows, tmp_path) == table


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    rows = pack(random_numbers(INLINE_LIMIT // 4), stage_under(tmp_path))
    assert rows.path is not None
    file = tmp_path / rows.path
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    with pytest.raises(FrescoError, match=r"ROWS_DAMAGED.*checksum"):
        locate(rows, tmp_path)


@pytest.mark.parametrize(
    "rows",
    [
        Rows(rows=1),
        Rows(rows=1, ipc="not base64!"),
        Rows(rows=1, ipc="aGVsbG8="),
        Rows(rows=1, path="_staging/gone.parquet", sha256="0"),
    ],
)
def test_rows_that_cannot_be_read_are_refused(rows: Rows, tmp_path: Path) -> None:
    with pytest.raises(FrescoError, match="ROWS_DAMAGED"):
        unpack(rows, tmp_path)


def test_a_wrong_count_is_refused(tmp_path: Path) -> None:
    rows = pack(random_numbers(10), stage_under(tmp_path)).model_copy(update={"rows": 11})
    with pytest.raises(FrescoError, match="10 rows instead of 11"):
        unpack(rows, tmp_path)
