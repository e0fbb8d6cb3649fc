"""`--pure`: only the tests that need neither Spark nor Kafka nor a database (`tests.importgraph`).

The rule reads the code. Whether it has read rightly is seen as the tests run: importing such a library is
refused then.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest

from tests.importgraph import SERVERS, is_pure


class Refuse(MetaPathFinder):
    """Finds none of the libraries of servers."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        if fullname.partition(".")[0] in SERVERS:
            raise ImportError(f"a pure test imports {fullname}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--pure", action="store_true", help="no Spark, no Kafka, no database")


def pytest_configure(config: pytest.Config) -> None:
    """Tests leave little garbage in cycles; looking for it as often as usual takes a tenth."""
    gc.set_threshold(100_000, 20, 20)
    # Services are tried with these; under `nohup`, and in a shell's background, they would inherit that
    # they are ignored.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("--pure"):
        sys.meta_path.insert(0, Refuse())


def pytest_collection_finish() -> None:
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--pure"):
        return None
    judged = collection_path.is_dir() or collection_path.name.startswith("test_")
    return True if judged and not is_pure(collection_path) else None
