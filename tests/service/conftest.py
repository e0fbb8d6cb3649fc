"""One embedded stack for all service tests: the bank's databases, captured while people worked.

Every test makes a pipeline of its own over it, with another name and an empty warehouse, and reads
the shared topics from their beginning.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console
from services import Pipeline, Process, bank_pipeline, until
from writers import paced_by

from streaming.demo.bank_workload import Workload
from streaming.demo.demonstration import BankStack
from streaming.demo.embedded.parts import DATABASES
from streaming.demo.marker import Marker
from streaming.demo.pace import Pace

LONGEST = (
    *("view_changes", "kill", "source_outages", "views_over_views", "roles", "asking_modes"),
    *("demo", "spark_submit", "endings", "snapshots_again", "isolated_service", "altered_service"),
    *("start_refused", "altered_mariadb", "mixed_groups", "atomic_groups", "altered_postgres"),
)
"""Files that are begun first, so that neither of two stacks is left with a long one at the end."""
BEFORE_CAPTURE = 600
"""Transactions around the snapshots at most: nobody reads them yet."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        name = item.path.stem.removeprefix("test_")
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=place)


@dataclass(frozen=True)
class Bank:
    """The stack and its databases.

    Attributes:
        environment: what conf/bank.yaml's variables stand for; holds secrets, do not print it.
    """

    stack: BankStack
    environment: Mapping[str, str] = field(repr=False)

    @property
    def dsns(self) -> dict[str, str]:
        """Connection strings by database name: do not print them."""
        return {name: self.stack.stack.dsn(name) for name in DATABASES}

    @property
    def bootstrap(self) -> str:
        """Kafka's address."""
        return self.stack.stack.bootstrap

    @contextmanager
    def at_work(
        self, reader: Pipeline | Pace, rate: float = 20, seed: int = 4711
    ) -> Iterator[Workload]:
        """Local, global and crossing transfers, corrections, deletions, until the block ends.

        Args:
            reader: what must not fall behind for ever: those who work wait for it.
        """
        pace = reader if isinstance(reader, Pace) else paced_by(reader)
        workload = Workload(
            self.dsns, rate=rate, global_share=0.3, other_share=0.3, seed=seed, pace=pace
        ).start()
        try:
            yield workload
        finally:
            workload.stop()

    def rests(self, pipeline: Pipeline, service: Process, period: int = 0) -> None:
        """Return when the views reflect everything the databases hold now.

        Args:
            period: numbers between two refreshes; what no view reads brings them to the next.
        """
        marker = Marker.put(self.dsns)
        if period:
            until(partial(marker.recorded, pipeline.warehouse), "the marker", alive=service)
        for _ in range(period):
            Marker.put({"south": self.dsns["south"]})
        reached = pipeline.reflects(marker)
        until(reached, "the views to rest", alive=service)


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    """The stack, captured with transactions before, around and after the snapshots."""
    with ExitStack() as undo:
        with mock.patch.dict(os.environ):
            stack = BankStack(tmp_path_factory.mktemp("bank"), Console(stderr=True))
            undo.callback(stack.stop)
            stack.start()
        shared = Bank(stack, {k: v for k, v in stack.environment.items() if "WAREHOUSE" not in k})
        with shared.at_work(Pace(BEFORE_CAPTURE), rate=15) as workload:
            until(lambda: workload.counters.total() > 30, "work before capture")
            stack.stack.capture()
        yield shared


@pytest.fixture
def make_pipeline(bank: Bank, tmp_path: Path) -> Callable[[str], Pipeline]:
    """A pipeline over the bank by its name."""

    def make(name: str) -> Pipeline:
        return bank_pipeline(tmp_path / name, name, bank.environment)

    return make
