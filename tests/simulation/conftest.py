"""One pool of processes for all simulation tests, which are ordered so that no core waits for another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.viewmanagers.levels import Level
from tests.simulation.cells import CELLS, HISTORIES, Runner, forget

WAITING = "fence"
"""The fixture of the tests that only wait for the pool."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order them; a test may wait for the histories of others, and `--timeout=0` as long as it takes."""
    if config.getoption("timeout") is None:
        here = Path(__file__).parent
        for item in (one for one in items if one.path.is_relative_to(here)):
            item.add_marker(pytest.mark.timeout(1800))
    items.sort(key=lambda item: WAITING in getattr(item, "fixturenames", ()))


@pytest.fixture
def broken_rules(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """To break a rule for one test: what was worked out without and with it is forgotten."""
    forget()
    yield monkeypatch
    monkeypatch.undo()
    forget()


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    plugins = request.config.pluginmanager
    terminal, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")

    def tell(line: str) -> None:
        with capture.global_and_fixture_disabled():
            terminal.write_line(line, flush=True)

    one = Runner(tell)
    yield one
    one.close()


@pytest.fixture(scope="session", autouse=True)
def begun(request: pytest.FixtureRequest) -> None:
    """All cells of the fence under way from the beginning, if they are asked for."""
    if any(WAITING in getattr(item, "fixturenames", ()) for item in request.session.items):
        runner: Runner = request.getfixturevalue("runner")
        cells = [(cell.case, cell.level) for cell in CELLS if cell.level > Level.NONE]
        runner.ask(cells, HISTORIES)


@pytest.fixture(scope="session")
def fence(runner: Runner) -> Runner:
    """The pool with all cells under way."""
    return runner
