"""No file of a warehouse can be read by everybody, whoever wrote it: the driver, its JVM, DuckDB."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from conftest import Bank
from services import specified_pipeline, until

from streaming.demo.marker import Marker

VIEWS = {
    "balance": (
        "COMPLETE CONSISTENCY",
        "SELECT account, SUM(amount) AS total FROM north.entry GROUP BY account",
    ),
    "entries": ("COMPLETE CONSISTENCY", "SELECT id, account, amount FROM north.entry"),
}


def open_to_others(folder: Path) -> list[str]:
    """What others than the owner and its group may do, by path; links and what is gone left out."""
    found = []
    for path in [folder, *folder.rglob("*")]:
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISLNK(mode) and mode & 0o027:
            found.append(f"{stat.filemode(mode)} {path.relative_to(folder)}")
    return found


@pytest.mark.timeout(900)
@pytest.mark.parametrize("spark", [False, True])
def test_others_can_read_no_file_of_a_warehouse(bank: Bank, tmp_path: Path, spark: bool) -> None:
    """With the views in the driver; and with Spark, which writes their state and the tables too."""
    limits = {"driver_rows": 0, "rewrite_bytes": 0} if spark else {"checkpoint_batches": 1}
    name = f"rights_{'spark' if spark else 'driver'}"
    pipeline = specified_pipeline(tmp_path, name, VIEWS, bank.environment, limits=limits)
    with pipeline.running() as service:
        until(pipeline.newest, "the first epoch", 300, service)
        marker = Marker.put(bank.dsns)
        until(pipeline.reflects(marker), "the marker", 300, service)
        written = {
            path.relative_to(pipeline.warehouse).parts[0] for path in pipeline.warehouse.rglob("*")
        }
        assert open_to_others(pipeline.warehouse) == []
        assert service.stops() == 0
    assert open_to_others(pipeline.warehouse) == []
    assert {"_state", "_catalog", "_updates"} <= written, written
