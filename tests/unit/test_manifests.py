"""Manifests (DESIGN 9): put once, the newest found, none put again once it was removed."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from streaming.errors import FrescoError
from streaming.runtime import manifests
from streaming.runtime.manifests import ManifestExists, put_if_absent
from streaming.runtime.step import Manifest, ManifestStore
from tests.stepworld import Crash


def manifest(step: int, generation: int = 1) -> Manifest:
    return Manifest(stage="s", step=step, generation=generation, offsets={}, snapshot={})


def test_a_file_is_put_once_whoever_comes_first(tmp_path: Path) -> None:
    put_if_absent(tmp_path / "one.json", b"first")
    with pytest.raises(ManifestExists):
        put_if_absent(tmp_path / "one.json", b"second")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"first"]


def test_of_many_threads_exactly_one_puts_a_step(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    start, won = threading.Barrier(8), []

    def compete(generation: int) -> None:
        start.wait()
        try:
            store.put(manifest(1, generation))
        except ManifestExists:
            return
        won.append(generation)

    threads = [threading.Thread(target=compete, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    latest = store.latest()
    assert latest is not None
    assert won == [latest.generation]


def test_a_crash_before_the_link_leaves_no_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: Any) -> None:
        raise Crash("link")

    store = ManifestStore(tmp_path)
    monkeypatch.setattr(os, "link", crash)
    with pytest.raises(Crash):
        store.put(manifest(1))
    assert store.latest() is None


def test_what_a_crash_left_beside_a_manifest_is_not_read_and_never_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver killed after the link leaves the manifest itself, by another name."""
    store = ManifestStore(tmp_path)
    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", lambda *_, **__: None)
        store.put(manifest(1))
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(ManifestExists):
        store.put(manifest(1, generation=7))
    assert store.latest() == manifest(1)


def test_manifests_beyond_the_newest_twenty_are_removed(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    for step in range(1, 31):
        store.put(manifest(step))
    assert len(list(tmp_path.iterdir())) == manifests.KEPT_MANIFESTS
    assert store.latest() == manifest(30)
    assert store.read(11) == manifest(11)
    with pytest.raises(ManifestExists):
        store.read(10)


def test_a_step_whose_manifest_was_removed_cannot_be_put_again(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    for step in range(1, 31):
        store.put(manifest(step))
    with pytest.raises(ManifestExists):
        store.put(manifest(2, generation=9))
    assert store.latest() == manifest(30)
    assert not (tmp_path / "000000000002.json").exists()


def test_a_reader_finds_the_newest_even_when_what_it_listed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ManifestStore(tmp_path)
    store.put(manifest(1))
    listings = iter([[1], [1, 2]])
    (tmp_path / "000000000001.json").rename(tmp_path / "000000000002.json")
    monkeypatch.setattr(store, "_steps", lambda: next(listings))
    assert store.latest() == manifest(1)


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    (tmp_path / "000000000001.json").write_text('{"stage": "s", ')
    with pytest.raises(FrescoError, match=r"STATE_DAMAGED.*000000000001\.json"):
        store.latest()


def test_a_manifest_comes_back_as_it_was_put(tmp_path: Path) -> None:
    store = ManifestStore(tmp_path)
    put = Manifest(
        stage="view:balance",
        step=1,
        generation=3,
        offsets={"bank.updates.bank:0": 7},
        snapshot={"control": {"number": 4}, "umlaut": "ä\u2028"},
        sequences={"bank.actions.bank": 2},
        writes={"rows": [[1, None, "x"]]},
    )
    store.put(put)
    assert store.read(1) == put
