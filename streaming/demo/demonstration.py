"""The main job on an embedded stack, for a first look and for the tests of the whole (DESIGN 14).

Kafka, PostgreSQL and Debezium run as child processes, the service too, just as it would in production;
this process only reads. It moves money between accounts, shows what each view says at each published
state, and at the end lets `verify` judge: nothing here is computed on the side.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from streaming.configuration.pipeline_config import load_config
from streaming.demo.bank import create_bank
from streaming.demo.bank_workload import Workload
from streaming.demo.embedded.parts import DATABASES
from streaming.demo.embedded.server_process import Command, ManagedProcess
from streaming.demo.embedded.stack import Stack
from streaming.demo.live_board import LiveBoard
from streaming.demo.marker import Marker
from streaming.demo.naive_sum import NaiveSum
from streaming.demo.pace import Pace
from streaming.errors import FrescoError
from streaming.proof.databases import databases
from streaming.proof.verdicts import Verdict, verify_pipeline, verify_sources
from streaming.spark.java import SHORT_LIVED
from streaming.spark.spark_session import STACK

BANK = Path(__file__).resolve().parents[2] / "conf" / "bank.yaml"
FIRST_EPOCH_SECONDS = 180.0
REST_SECONDS = 120.0
DRIVER_JAVA = " ".join((STACK, *SHORT_LIVED))
"""Options of a driver's JVM that lives for a minute."""
BEHIND_SECONDS = 60.0
"""So many seconds' transfers the views may be behind before those who make them wait for the views."""
SAMPLE = 100
"""Numbers that the final `verify` recomputes at most."""
BY_SPARK = 8
"""Of them, those at which Spark runs the views' text."""


@dataclass(frozen=True)
class DemoVerdict:
    """What the demo found: both proofs, and whether the sum ever moved."""

    recorded: Verdict
    source: Verdict
    states: int
    moved: int
    folder: Path

    @property
    def holds(self) -> bool:
        """Both proofs at the level asked, and no published state in which the sum had moved."""
        return self.recorded.holds and self.source.holds and self.moved == 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "holds": self.holds,
            "states": self.states,
            "moved": self.moved,
            "verify": self.recorded.as_dict(),
            "verify_source": self.source.as_dict(),
            "warehouse": str(self.folder / "warehouse"),
        }


class BankStack:
    """The embedded stack with the bank's databases and a service over them.

    Attributes:
        environment: what conf/bank.yaml's variables stand for; holds secrets, do not print it.
    """

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder = folder
        self.warehouse = folder / "warehouse"
        self.stack = Stack(folder / "stack", progress=lambda line: console.print(Text(line, "dim")))
        self.environment: dict[str, str] = {}
        self.service: ManagedProcess | None = None

    def start(self) -> None:
        """Start Kafka and PostgreSQL and create the bank."""
        self.stack.start()
        for database in DATABASES:
            create_bank(self.stack.dsn(database))
        self.environment = {
            "FRESCO_KAFKA": self.stack.bootstrap,
            "FRESCO_CONNECT": self.stack.connect_url,
            "FRESCO_NORTH": self.stack.dsn("north"),
            "FRESCO_SOUTH": self.stack.dsn("south"),
            "FRESCO_WAREHOUSE": str(self.warehouse),
            "FRESCO_METRICS_PORT": "0",
        }
        os.environ.update(self.environment)

    def start_service(self, name: str = "fresco") -> ManagedProcess:
        """Start `fresco run` as a process of its own."""
        words = [sys.executable, "-m", "streaming", "run", "--config", str(BANK)]
        command = Command(
            name,
            words,
            env={**os.environ, **self.environment, "COLUMNS": "160", "FRESCO_JAVA": DRIVER_JAVA},
            stop_signal=signal.SIGTERM,
        )
        self.service = ManagedProcess(command, self.stack.folder).start()
        return self.service

    def stop(self) -> None:
        """Stop the service first, then the stack."""
        if self.service is not None:
            self.service.stop()
        self.stack.stop()


def run_demo(
    console: Console,
    folder: Path | None,
    show: Callable[[Verdict], RenderableType],
    *,
    seconds: int,
    rate: float,
    seed: int,
) -> DemoVerdict:
    """Run the whole demo; ends after `seconds`, or at Ctrl-C with the same proofs.

    Args:
        folder: of the stack and the tables; a new one below ./demo when None.
        show: makes of a verdict what is printed.
        rate: transfers a second.

    Raises:
        FrescoError: a part did not start, or the service ended early.
    """
    folder = (folder or Path("demo") / time.strftime("%Y%m%d-%H%M%S")).resolve()
    console.print(Text.assemble(("Fresco demo", "bold"), f" in {folder}"))
    bank = BankStack(folder, console)
    with ExitStack() as undo:
        undo.callback(bank.stop)
        with console.status("starting Kafka and PostgreSQL"):
            bank.start()
        dsns = {database: bank.stack.dsn(database) for database in DATABASES}
        board = LiveBoard(bank.warehouse, naive := NaiveSum(bank.stack.bootstrap))
        workload = Workload(
            dsns,
            rate=rate,
            seed=seed,
            pace=Pace(int(BEHIND_SECONDS * rate) + 1, lambda pace: pace.until(board.committed_ms)),
            say=lambda line: console.print(Text(line, "dim")),
        ).start()
        undo.callback(workload.stop)
        with console.status("transfers run; starting Debezium, then the service"):
            bank.start_service()
            bank.stack.capture()
        naive.start()
        undo.callback(naive.stop)
        with _interruptible() as interrupted:
            _await_first_epoch(bank, board, console, interrupted)
            _show(console, board, workload, seconds, bank, interrupted)
        console.print(f"transfers end: {dict(workload.stop())}")
        with console.status("letting the views catch up"):
            wait_at_rest(bank, Marker.put(dsns))
            board.refresh()
        with console.status("verify: recomputing every view from the recorded updates"):
            recorded = verify_pipeline(bank.warehouse, SAMPLE, seed, by_spark=BY_SPARK)
        with console.status("verify --source: asking the databases"):
            source = verify_sources(bank.warehouse, databases(load_config(BANK)))
        verdict = DemoVerdict(recorded, source, board.states, board.moved, folder)
    _report(console, verdict, board, show)
    return verdict


def wait_at_rest(bank: BankStack, marker: Marker, seconds: float = REST_SECONDS) -> None:
    """Return when the views reflect everything the databases held when the marker was put.

    Raises:
        FrescoError: DEMO_NOT_AT_REST, or the service ended.
    """
    late = FrescoError(
        "DEMO_NOT_AT_REST",
        f"the views did not catch up within {seconds:.0f} s",
        where=str(bank.warehouse),
        todo=f"see {bank.stack.logs}",
    )
    _await(bank, lambda: marker.reflected(bank.warehouse), seconds, late, threading.Event())


def _await_first_epoch(
    bank: BankStack, board: LiveBoard, console: Console, interrupted: threading.Event
) -> None:
    late = FrescoError(
        "DEMO_NO_EPOCH",
        f"nothing was published in {FIRST_EPOCH_SECONDS:.0f} s",
        where=str(bank.warehouse),
        todo=f"see {bank.stack.logs}",
    )
    with console.status("waiting for the snapshots and the first epoch"):
        _await(bank, board.refresh, FIRST_EPOCH_SECONDS, late, interrupted)


def _await(
    bank: BankStack,
    reached: Callable[[], object],
    seconds: float,
    late: FrescoError,
    interrupted: threading.Event,
) -> None:
    """Return when it is reached or the user interrupts; raise `late` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not reached() and not interrupted.is_set():
        _check_service(bank)
        if time.monotonic() > deadline:
            raise late
        interrupted.wait(0.25)


def _show(
    console: Console,
    board: LiveBoard,
    workload: Workload,
    seconds: int,
    bank: BankStack,
    interrupted: threading.Event,
) -> None:
    deadline = time.monotonic() + seconds
    with Live(
        board.render(seconds, workload.counters), console=console, auto_refresh=False
    ) as live:
        while (left := deadline - time.monotonic()) > 0 and not interrupted.is_set():
            _check_service(bank)
            board.refresh()
            live.update(board.render(left, workload.counters), refresh=True)
            interrupted.wait(0.2)


def _check_service(bank: BankStack) -> None:
    if bank.service is not None and not bank.service.running:
        lines = bank.service.log.read_text(errors="replace").splitlines()[-8:]
        raise FrescoError(
            "DEMO_SERVICE_ENDED",
            "\n".join(["the service ended by itself; the last that it said:", *lines]),
            where=str(bank.service.log),
            todo="mend what the log names and run the demo again",
        )


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C ends the show, not the proofs."""
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _report(
    console: Console,
    verdict: DemoVerdict,
    board: LiveBoard,
    show: Callable[[Verdict], RenderableType],
) -> None:
    console.print(board.render(0, None))
    console.print(show(verdict.recorded))
    console.print(show(verdict.source))
    warehouse = verdict.folder / "warehouse"
    console.print(f"the tables are in {warehouse}")
    console.print(f'ask them: fresco sql "SELECT * FROM total" --warehouse {warehouse}')
    mark = ("holds", "bold green") if verdict.holds else ("does not hold", "bold red")
    moved = f"{verdict.states} published states, the sum moved in {verdict.moved}: "
    console.print(Text.assemble(moved, mark))
