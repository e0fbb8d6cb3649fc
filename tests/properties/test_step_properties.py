"""Drivers that crash, fail and sleep in any order: the outcome is that of a calm run (DESIGN 9).

A seed makes one history; a failing one is printed as `seed=...` and comes back with it.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from hypothesis import given, note, settings
from hypothesis import strategies as st

from streaming.runtime import manifests
from tests.stepworld import Countdown, Crash, Driver, Sleeper, World

seeds = st.integers(min_value=0, max_value=2**40)
many = settings(max_examples=120, deadline=None, print_blob=True)


@contextmanager
def world_of(chance: random.Random) -> Iterator[World]:
    """A source of one or two partitions, few manifests kept, no waiting for the disk."""
    source = {
        partition: tuple(chance.randint(0, 99) for _ in range(chance.randint(1, 9)))
        for partition in range(chance.randint(1, 2))
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(manifests, "KEPT_MANIFESTS", chance.choice((1, 2, 20))),
        mock.patch.object(os, "fsync"),
    ):
        world = World(Path(folder), source)
        yield world
        note(f"manifests by (generation, step): {world.puts}")


@many
@given(seed=seeds)
def test_any_number_of_crashes_and_errors_changes_nothing(seed: int) -> None:
    chance = random.Random(seed)
    with world_of(chance) as world:
        for _ in range(chance.randint(1, 8)):
            error = chance.choice((Crash, OSError))
            reach = Countdown(chance.randint(0, 60), error)
            try:
                Driver(world, reach, seed=chance.getrandbits(30), tick=chance.random() < 0.5).run()
            except (Crash, OSError) as raised:
                note(f"{error.__name__} at '{raised}'")
        Driver(world, lambda _: None, seed=chance.getrandbits(30)).run()
        world.assert_whole()


@many
@given(seed=seeds)
def test_drivers_that_sleep_and_wake_at_any_moment_do_no_harm(seed: int) -> None:
    """Two or three drivers at once, the older ones replaced without knowing it."""
    chance = random.Random(seed)
    with world_of(chance) as world:
        awake: list[Sleeper] = []
        everyone: list[Sleeper] = []
        for _ in range(chance.randint(2, 3)):
            newcomer = Sleeper(world, seed=chance.getrandbits(30))
            newcomer.move()  # its fence is taken: it is the newest
            awake.append(newcomer)
            everyone.append(newcomer)
            _interleave(awake, chance.randint(0, 80), chance)
        _interleave(awake, 100_000, chance)
        _assert_told(everyone)
        _assert_at_most_one_more_step(world)
        world.assert_whole()


@many
@given(seed=seeds)
def test_a_sleeper_that_wakes_after_many_crashes_of_its_successors_does_no_harm(seed: int) -> None:
    chance = random.Random(seed)
    with world_of(chance) as world:
        old = Sleeper(world, seed=chance.getrandbits(30))
        for _ in range(chance.randint(1, 60)):
            old.move()
        note(f"the old driver sleeps at '{old.moment}'")
        for _ in range(chance.randint(0, 4)):
            successor = Sleeper(world, seed=chance.getrandbits(30))
            _interleave([successor], chance.randint(1, 60), chance)
            successor.kill()
        last = Sleeper(world, seed=chance.getrandbits(30))
        _interleave([last, old] if chance.random() < 0.5 else [last], 100_000, chance)
        old.live()
        _assert_told([old, last])
        world.assert_whole()


def _interleave(awake: list[Sleeper], moves: int, chance: random.Random) -> None:
    """Move drivers in turns of random length; those that end leave the list."""
    while moves > 0 and awake:
        driver = chance.choice(awake)
        for _ in range(chance.choice((1, 1, 2, 5, 20))):
            moves -= 1
            if not driver.move():
                awake.remove(driver)
                break


def _assert_told(drivers: list[Sleeper]) -> None:
    """The newest came to its end; an older one too, or it was told who holds the pipeline."""
    newest = max(drivers, key=lambda one: one.driver.generation)
    for driver in drivers:
        assert driver.ended
        assert driver.error is None or (driver.fenced and driver is not newest), driver.error


def _assert_at_most_one_more_step(world: World) -> None:
    """Steps are never put twice, and generations only rise, but for the one step an old one won."""
    steps = [step for _, step in world.puts]
    assert len(steps) == len(set(steps))
    by_step = [generation for generation, _ in sorted(world.puts, key=lambda put: put[1])]
    for generation in set(by_step):
        first_newer = next((at for at, one in enumerate(by_step) if one > generation), len(by_step))
        assert by_step[first_newer:].count(generation) <= 1
