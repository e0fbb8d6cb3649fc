"""However a driver is told to end, it ends: soon, with one line that says why, and the right status.

Each case is a process of its own, with a real terminal or pipe and a log file; only the stages are not
real: a service that starts, runs and stops as the case wants. The processes are forked from one that has
imported the program.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import multiprocessing
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
BOUND = 60.0
"""Seconds in which even a machine that is busy brings a process to its end."""


@pytest.fixture(scope="module")
def imported() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["streaming.app", "streaming.service.terminal", "streaming.service.ending"]
    )
    return context


class Fake:
    """A service without stages: `holds` says where it waits for ever."""

    def __init__(self, warehouse: Path, holds: str) -> None:
        self.config: Any = SimpleNamespace(warehouse=warehouse)
        self.starting, self.stopping, self._holds = True, threading.Event(), holds
        if holds == "make":
            logging.getLogger("fresco").info("up as %d", os.getpid())
            threading.Event().wait()

    def run(self) -> None:
        logging.getLogger("fresco").info("up as %d", os.getpid())
        if self._holds == "start":
            threading.Event().wait()
        if self._holds == "defect":
            raise RuntimeError("a defect\nwith a second line")
        self.starting = False
        noise()
        logging.getLogger("fresco").info("running")
        self.stopping.wait()
        if self._holds == "stop":
            threading.Event().wait()

    def request_stop(self) -> None:
        self.stopping.set()


def noise() -> None:
    """What libraries do: their loggers, the interpreter's warnings, Python's and C's standard streams,
    and children that inherit these."""
    logging.getLogger("kafka.conn").error("NOISE ECONNREFUSED")
    logging.getLogger("sqlglot").warning("NOISE of sqlglot")
    warnings.warn("NOISE of a warning", stacklevel=1)
    print("NOISE on standard output", flush=True)
    print("NOISE on standard error", file=sys.stderr, flush=True)
    ctypes.CDLL(None).perror(b"NOISE of C")
    subprocess.run([sys.executable, "-c", "print('NOISE of a child')"], check=True)


def drive(warehouse: Path, holds: str, output: Any, seconds: float, ignored: bool) -> None:
    """The driver's process."""
    from streaming import app
    from streaming.service import ending
    from streaming.service.terminal import terminal

    os.setsid()
    # Tests that run under `nohup` have inherited that it is ignored.
    signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    ending.STOP_SECONDS = seconds
    written = output.detach()
    for standard in (1, 2):
        os.dup2(written, standard)
    os.close(written)
    with terminal(warehouse / "all.log") as shown, ending.Ending(shown).watched() as end:
        status = app._until_it_ends(end, lambda: Fake(warehouse, holds), warehouse)  # type: ignore[arg-type, return-value]
    os._exit(status)


class Driver:
    """A driver in a process of its own, whose output this test reads."""

    def __init__(
        self,
        context: ForkServerContext,
        folder: Path,
        holds: str,
        seconds: float,
        ignored: bool,
        tty: bool,
    ) -> None:
        from multiprocessing.reduction import DupFd

        self.read, write = pty.openpty() if tty else os.pipe()
        self._process = context.Process(
            target=drive, args=(folder, holds, DupFd(write), seconds, ignored), daemon=True
        )
        self._process.start()
        os.close(write)
        self.log = folder / "all.log"
        self.said = ""
        self.until("up as")
        self.pid = int(re.findall(r"up as (\d+)", self.said)[0])

    def until(self, what: str) -> None:
        """Read on until it has said something, or has ended."""
        while what not in self.said and (more := self._more()):
            self.said += more

    def ends(self) -> int | None:
        """All that it has said is read; its exit status."""
        while more := self._more():
            self.said += more
        self._process.join(BOUND)
        return self._process.exitcode

    def _more(self) -> str:
        try:
            return COLOURS.sub("", os.read(self.read, 1 << 16).decode())
        except OSError as closed:
            assert closed.errno == errno.EIO
            return ""

    def leave(self) -> int | None:
        """Nobody reads any more."""
        os.close(self.read)
        self._process.join(BOUND)
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


Start = Callable[..., Driver]


@pytest.fixture
def start(imported: ForkServerContext, tmp_path: Path) -> Iterator[Start]:
    started = []

    def run(
        holds: str = "", seconds: float = 600, ignored: bool = False, tty: bool = False
    ) -> Driver:
        started.append(Driver(imported, tmp_path, holds, seconds, ignored, tty))
        return started[-1]

    yield run
    for one in started:
        one.kill()


def words(said: str) -> str:
    return re.sub(r"\s+", " ", said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("holds", ["", "start", "make"])
def test_a_signal_ends_it_while_it_runs_and_while_it_starts(
    start: Start, number: signal.Signals, holds: str
) -> None:
    driver = start(holds)
    if not holds:
        driver.until("running")
    os.killpg(driver.pid, number)
    assert driver.ends() == 0
    assert f"stopped by {number.name}; nothing is published yet" in words(driver.said)
    assert "Traceback" not in driver.said + driver.log.read_text()


def test_only_its_own_lines_are_shown_and_everything_is_in_the_log(start: Start) -> None:
    driver = start()
    driver.until("running")
    os.kill(driver.pid, signal.SIGTERM)
    assert driver.ends() == 0
    assert "NOISE" not in driver.said and "running" in driver.said
    log = driver.log.read_text()
    for noise_ in ("ECONNREFUSED", "of sqlglot", "of a warning", "on standard output"):
        assert f"NOISE {noise_}" in log
    for noise_ in ("on standard error", "of C", "of a child"):
        assert f"NOISE {noise_}" in log
    assert "fresco: running" in log and "fresco: stopped by SIGTERM" in log


@pytest.mark.parametrize("holds", ["", "start"])
@pytest.mark.parametrize("tty", [False, True])
def test_it_ends_when_nobody_reads_what_it_says(start: Start, holds: str, tty: bool) -> None:
    """`| head`, or a window that is closed: the line is in the log."""
    driver = start(holds, tty=tty)
    if not holds:
        driver.until("running")
    assert driver.leave() == 141
    assert "stopped by the end of whoever read its output" in driver.log.read_text()


def test_what_does_not_stop_is_ended_by_force(start: Start) -> None:
    driver = start("stop", seconds=0.5)
    driver.until("running")
    os.kill(driver.pid, signal.SIGTERM)
    assert driver.ends() == 0
    said = words(driver.said)
    assert (
        "stopped by SIGTERM, by force" in said
        and "nothing is published yet; nothing is lost" in said
    )


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    driver = start("stop")
    driver.until("running")
    os.kill(driver.pid, signal.SIGINT)
    deadline = time.monotonic() + BOUND
    while driver._process.is_alive() and time.monotonic() < deadline:
        os.kill(driver.pid, signal.SIGTERM)  # the first may not have been taken yet
        driver._process.join(0.1)
    assert driver.ends() in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert "stopped at once" in driver.said


def test_hung_up_under_nohup_it_goes_on(start: Start) -> None:
    driver = start(ignored=True)
    driver.until("running")
    os.kill(driver.pid, signal.SIGHUP)
    os.kill(driver.pid, signal.SIGTERM)
    assert driver.ends() == 0 and "stopped by SIGTERM" in driver.said


def test_a_defect_is_one_line_and_its_trace_is_in_the_log(start: Start) -> None:
    driver = start("defect")
    assert driver.ends() == 1
    assert (
        "stopped by a defect" in driver.said and "Traceback" not in driver.said.split("Process ")[0]
    )
    log = driver.log.read_text()
    assert "Traceback" in log and "with a second line" in log


def test_logs_of_long_past_starts_go(tmp_path: Path) -> None:
    from streaming.service.terminal import KEPT, LOGS, log_of_start

    for number in range(2 * KEPT):
        log_of_start(tmp_path).parent.mkdir(exist_ok=True)
        (tmp_path / LOGS / f"{number:02}.log").write_text("")
        os.utime(tmp_path / LOGS / f"{number:02}.log", (number, number))
    log_of_start(tmp_path)
    assert sorted(one.name for one in (tmp_path / LOGS).iterdir())[0] == f"{KEPT:02}.log"


def test_a_large_log_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
import logging, os, sys
from pathlib import Path
from streaming.service import terminal
terminal.LARGEST = 2000
with terminal.terminal(Path(sys.argv[1])):
    for n in range(60):
        logging.getLogger("noisy").warning("line %d of many", n)
    os.write(2, b"at the end")
"""
    log = tmp_path / "all.log"
    subprocess.run([sys.executable, "-c", script, str(log)], check=True, timeout=BOUND)
    assert log.stat().st_size < 2100 and log.read_text().endswith("at the end")
    assert 2000 < (tmp_path / "all.before.log").stat().st_size < 2100
