"""The exactly-once step (DESIGN 9): a crash or an error at any moment leaves no trace."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from streaming.errors import FrescoError
from streaming.runtime import manifests
from streaming.runtime.step import Fence, Manifest, ManifestStore, Stepper, unseen
from tests.stepworld import SCHEMA, Countdown, Counting, Crash, Driver, Sleeper, World

SOURCE = {0: (3, 8, 1, 6, 7, 2), 1: (10, 11, 12)}
OWNER = {"host": "alpha", "process": 1}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, SOURCE)


def moments(tmp_path: Path) -> list[str]:
    """What a driver passes when nothing happens to it."""
    passed: list[str] = []
    Driver(World(tmp_path, SOURCE), passed.append).run()
    return passed


# The protocol -----------------------------------------------------------------------------------


def test_a_run_without_crash_counts_and_publishes_everything_once(world: World) -> None:
    Driver(world, lambda _: None).run()
    world.assert_whole()
    assert len(world.log) == len(world.rows()) == 9


def test_every_moment_that_matters_is_passed(tmp_path: Path) -> None:
    assert {
        "before the manifest",
        "after the manifest",
        "before the warehouse write",
        "after the warehouse write",
        "publishing",
        "published",
        "applied",
    } <= set(moments(tmp_path))


def test_a_crash_at_any_moment_leaves_the_outcome_as_it_would_have_been(tmp_path: Path) -> None:
    for at, moment in enumerate(moments(tmp_path / "calm")):
        world = World(tmp_path / str(at), SOURCE)
        with pytest.raises(Crash, match=moment):
            Driver(world, Countdown(at)).run()
        Driver(world, lambda _: None, seed=at).run()
        world.assert_whole()


def test_a_crash_while_a_crash_is_repaired_does_no_harm(tmp_path: Path) -> None:
    for at in range(0, len(moments(tmp_path / "calm")), 3):
        world = World(tmp_path / str(at), SOURCE)
        with pytest.raises(Crash):
            Driver(world, Countdown(at)).run()
        for again in range(9):
            with pytest.raises(Crash):
                Driver(world, Countdown(again), seed=again).run()
        Driver(world, lambda _: None, seed=at).run()
        world.assert_whole()


@pytest.mark.parametrize("tick", [False, True], ids=["the batch comes again", "a tick comes first"])
def test_an_error_at_any_moment_leaves_no_trace_in_the_stage_s_memory(
    tmp_path: Path, tick: bool
) -> None:
    """The same stepper goes on: what a failed run left in memory must not reach a manifest."""
    passed = moments(tmp_path / "calm")
    start = passed.index("batch") + 1
    for at in range(start, len(passed) - 1):
        if passed[at] == "batch":
            continue
        world = World(tmp_path / str(at), SOURCE)
        Driver(world, Countdown(at, OSError), tick=tick).run()
        world.assert_whole()


def test_a_step_that_has_nothing_to_remember_writes_no_manifest(world: World) -> None:
    fence = Fence(world.folder / "generations", OWNER)
    store = ManifestStore(world.folder / "manifests")
    stepper = Stepper(Counting(world, lambda _: None), store, fence, lambda *_: None)
    stepper.batch(SCHEMA.empty_table())
    assert store.latest() is None
    assert stepper.offsets == {}


def test_sequences_have_no_gaps_per_topic_and_go_on_after_a_restart(world: World) -> None:
    with pytest.raises(Crash):
        Driver(world, Countdown(25)).run()
    Driver(world, lambda _: None).run()
    sequences: dict[str, set[int]] = {"even": set(), "odd": set()}
    for record in world.log:
        fields = {item["key"]: item["value"] for item in record["headers"]}
        sequences[record["topic"]].add(int(fields["sequence"]))
    for found in sequences.values():
        assert found == set(range(1, len(found) + 1))


# Two drivers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", [1, 20])
def test_a_paused_driver_that_wakes_after_its_successor_ended_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """With one manifest kept, its step has been removed long ago when it wakes."""
    monkeypatch.setattr(manifests, "KEPT_MANIFESTS", kept)
    passed = moments(tmp_path / "calm")
    last_put = max(at for at, moment in enumerate(passed) if moment == "before the manifest")
    for at, moment in enumerate(passed):
        world = World(tmp_path / str(at), SOURCE)
        old = Sleeper(world, seed=0)
        for _ in range(at + 1):
            old.move()
        assert old.moment == moment
        Driver(world, lambda _: None, seed=at).run()
        world.assert_whole()
        old.live()
        assert old.fenced or old.error is None
        assert old.fenced or at > last_put
        world.assert_whole()


def test_a_step_that_an_old_driver_won_is_adopted_by_the_new_one(world: World) -> None:
    old, new = Sleeper(world, seed=0), Sleeper(world, seed=0)
    while old.moment != "before the manifest":
        old.move()
    while new.moment != "before the manifest":
        new.move()
    while old.moment != "after the manifest":
        old.move()
    new.live()
    assert new.error is None
    assert world.puts[0] == (1, 1)
    assert {generation for generation, _ in world.puts[1:]} == {2}
    old.live()
    assert old.fenced
    world.assert_whole()


def test_a_driver_that_was_replaced_is_told_so_rather_than_what_it_ran_into(world: World) -> None:
    """Its successor has collected staged files, so its apply fails: that is not the news."""
    fence = Fence(world.folder / "generations", OWNER)

    class Disturbed(Counting):
        def apply(self, manifest: Manifest) -> None:
            Fence(world.folder / "generations", {"host": "beta"})
            raise FileNotFoundError("staged rows")

    store = ManifestStore(world.folder / "manifests")
    stepper = Stepper(Disturbed(world, lambda _: None), store, fence, lambda *_: None)
    with pytest.raises(FrescoError, match=r"SERVICE_FENCED.*generation 1.*generation 2.*beta"):
        stepper.batch(records(("in", 0, 0)))


def test_a_driver_that_was_replaced_cannot_start_a_stage_again(world: World) -> None:
    fence = Fence(world.folder / "generations", OWNER)
    Fence(world.folder / "generations", OWNER)
    store = ManifestStore(world.folder / "manifests")
    with pytest.raises(FrescoError, match="SERVICE_FENCED"):
        Stepper(Counting(world, lambda _: None), store, fence, lambda *_: None)


# The fence --------------------------------------------------------------------------------------


def test_each_start_takes_the_next_generation(tmp_path: Path) -> None:
    fences = [Fence(tmp_path, {"host": f"host-{number}"}) for number in range(3)]
    assert [fence.generation for fence in fences] == [1, 2, 3]
    assert fences[0].holder() == {"host": "host-2"}


def test_the_newest_start_passes_its_check_and_the_others_learn_who_holds(tmp_path: Path) -> None:
    old = Fence(tmp_path, {"host": "alpha"})
    old.check()
    new = Fence(tmp_path, {"host": "beta"})
    new.check()
    with pytest.raises(FrescoError, match=r"SERVICE_FENCED.*'host': 'beta'.*stop it"):
        old.check()


def test_starts_at_one_moment_take_different_generations(tmp_path: Path) -> None:
    start, taken = threading.Barrier(6), []

    def take() -> None:
        start.wait()
        taken.append(Fence(tmp_path, OWNER).generation)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [1, 2, 3, 4, 5, 6]


# Records by offset ------------------------------------------------------------------------------


def records(*places: tuple[str, int, int]) -> pa.Table:
    rows = [
        {"topic": topic, "partition": partition, "offset": offset, "value": offset}
        for topic, partition, offset in places
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def places(table: pa.Table) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in table.to_pylist()]


def test_records_below_the_consumed_offset_are_dropped_per_partition() -> None:
    found, following = unseen(
        records(("a", 0, 4), ("a", 1, 4), ("b:x", 0, 0), ("a", 0, 5)),
        {"a:0": 5, "a:1": 3, "c:0": 9},
    )
    assert places(found) == [("a", 1, 4), ("b:x", 0, 0), ("a", 0, 5)]
    assert following == {"a:0": 6, "a:1": 5, "b:x:0": 1, "c:0": 9}


def test_a_batch_that_was_consumed_already_is_empty_and_moves_nothing() -> None:
    found, following = unseen(records(("a", 0, 1), ("a", 0, 2)), {"a:0": 3})
    assert found.num_rows == 0
    assert following == {"a:0": 3}


def test_offsets_that_the_topic_left_out_are_passed_over() -> None:
    """Markers of transactions and compaction leave offsets without records."""
    _, following = unseen(records(("a", 0, 7)), {"a:0": 3})
    assert following == {"a:0": 8}


def test_records_with_headers_keep_them() -> None:
    headers = [{"key": "sequence", "value": b"1"}]
    table = records(("a", 0, 1), ("a", 0, 0)).append_column("headers", pa.array([headers, None]))
    found, _ = unseen(table, {})
    assert found["headers"].to_pylist() == [headers, None]
