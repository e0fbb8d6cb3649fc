"""Staged rows go when every consumer has passed them, or when the chain has dropped them."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.runtime.staging import Staging


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path, "view:balance")


def test_a_file_is_found_again_by_its_path_in_the_warehouse(staging: Staging) -> None:
    path = staging.keeper(7)(b"rows")
    assert path.startswith("_staging/view-balance/")
    assert (staging.warehouse / path).read_bytes() == b"rows"


def test_files_of_one_number_do_not_replace_each_other(staging: Staging) -> None:
    keep = staging.keeper(7)
    assert len({keep(b"one"), keep(b"two"), keep(b"two")}) == 3


def test_only_files_that_every_consumer_has_passed_are_collected(staging: Staging) -> None:
    paths = [staging.keeper(last)(b"rows") for last in (3, 4, 5)]
    assert staging.collect(4) == 2
    assert [(staging.warehouse / path).exists() for path in paths] == [False, False, True]


def test_what_a_snapshot_refers_to_stays(staging: Staging) -> None:
    paths = [staging.keeper(last)(b"rows") for last in (3, 4)]
    assert staging.collect(9, keep=frozenset(paths[:1])) == 1
    assert (staging.warehouse / paths[0]).exists()


def test_the_initial_state_is_collected_as_number_zero(staging: Staging) -> None:
    staging.keeper(-1)(b"rows")
    assert staging.collect(-1) == 0
    assert staging.collect(0) == 1


def test_other_files_are_left_alone(staging: Staging) -> None:
    (staging.folder / "README").write_text("mine")
    assert staging.collect(1 << 62) == 0
    assert (staging.folder / "README").exists()


def test_what_the_chain_dropped_goes_and_what_a_successor_staged_stays(staging: Staging) -> None:
    dropped = staging.keeper(0)(b"rows")
    staged_by_a_successor = staging.keeper(0)(b"rows")
    staging.drop([dropped])
    staging.drop([dropped])
    assert not (staging.warehouse / dropped).exists()
    assert (staging.warehouse / staged_by_a_successor).exists()
