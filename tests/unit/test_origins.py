"""The server of a source against that of the last start (oddity 33)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from streaming.captured.source_origin import Origin, check_origin
from streaming.errors import FrescoError
from streaming.runtime.manifests import Manifest, ManifestStore
from streaming.runtime.snapshots import IntegratorState
from streaming.service.origins import Origins
from streaming.service.surroundings import refuse

THEN = Origin("7001", 1, 5000)


@pytest.mark.parametrize(
    ("now", "kept", "last", "level", "code"),
    [
        (Origin("7001", 1, 6000), THEN, 5500, "ok", ""),
        (Origin("7001", 1, 6000), None, -1, "ok", ""),
        (Origin("7001", 1, 6000), None, 6000, "ok", ""),
        (Origin("7001", 1, 5999), None, 6000, "wrong", "SOURCE_POSITIONS_BACK"),
        (Origin("7001", 2, 5400), THEN, 5500, "wrong", "SOURCE_POSITIONS_BACK"),
        (Origin("9", 1, 100), THEN, 5500, "wrong", "SOURCE_POSITIONS_BACK"),
        (Origin("9", 1, 9000), THEN, 5500, "warning", "SOURCE_ANOTHER_SERVER"),
        (Origin("7001", 2, 9000), THEN, 5500, "warning", "SOURCE_TIMELINE"),
        (Origin("7001", None, None), THEN, 5500, "ok", ""),
        (Origin("9", None, None), THEN, 5500, "warning", "SOURCE_ANOTHER_SERVER"),
    ],
)
def test_a_server_is_judged_by_its_position_first(
    now: Origin, kept: Origin | None, last: int, level: str, code: str
) -> None:
    found = check_origin("north", now, kept, last)
    assert (found.level, found.code) == (level, code)


def at(warehouse: Path, origin: Origin) -> Origins:
    source = SimpleNamespace(secret=lambda: "dsn", snapshots=None, database="postgres")
    config: Any = SimpleNamespace(warehouse=warehouse, sources={"north": source})
    pipeline: Any = SimpleNamespace(sources=[SimpleNamespace(name="north")])
    with mock.patch("streaming.service.origins.read_origin", return_value=origin):
        return Origins(config, pipeline)


def test_what_a_start_has_kept_and_taken_is_what_the_next_is_judged_by(tmp_path: Path) -> None:
    first = at(tmp_path, THEN)
    assert not (tmp_path / "_state").exists(), "to look changes nothing"
    first.keep()
    assert [one.level for one in at(tmp_path, Origin("9", 1, 6000)).checks] == ["warning"]
    store = ManifestStore(tmp_path / "_state" / "integrator" / "manifests")
    intake = {"positions": {"north": "7000"}}
    taken = IntegratorState.of(sequence=1, number=1, intake=intake).dumped()
    store.put(Manifest(stage="integrator", step=1, generation=1, offsets={}, snapshot=taken))
    with pytest.raises(FrescoError, match="SOURCE_POSITIONS_BACK"):
        refuse(at(tmp_path, Origin("7001", 1, 6000)).checks)
    refuse(at(tmp_path, Origin("7001", 1, 7000)).checks)
