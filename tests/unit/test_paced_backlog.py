"""What waits for a later state of its source holds up what comes after it (DESIGN 7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streaming.ask.postgres.pg_state import PgState
from tests.unit.test_asking_stage import Driver, Source, World, states, world

__all__ = ["world"]


def test_a_message_that_waits_for_nothing_stays_behind_one_that_does(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot may miss a transaction for the length of a flush although the log has it (FACTS)."""
    world.pins = True
    early = {name: dict(rows) for name, rows in world.rows.items()}

    def pin(self: Source) -> PgState:
        self.pinned = early, PgState(0, 701, 701)
        return self.pinned[1]

    monkeypatch.setattr(Source, "pin", pin)
    sent: dict[int, Any] = {}
    driver = Driver(tmp_path, "sweep", sent)
    driver.take(world.messages[0])
    driver.take(world.commit("north.entry", (1, (2, 2, None))))
    world.number += 1  # a number of another source's
    world.messages.append(world._message({}, ()))
    driver.take(world.messages[-1])
    assert [number for number, _ in states(sent)] == [0], "both wait"
    driver.take(world.commit("north.entry", (1, (3, 1, None))))
    for _ in range(2):
        driver.rest()
    assert list(states(sent))[-1] == (3, [(1, "ann"), (2, "bob"), (3, "ann")])
