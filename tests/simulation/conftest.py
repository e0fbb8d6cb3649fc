"""One pool of processes for all simulation tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.cells import Runner


@pytest.fixture(scope="session")
def runner() -> Iterator[Runner]:
    one = Runner()
    yield one
    one.close()
