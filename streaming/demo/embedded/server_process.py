"""One server process: started, watched until healthy, stopped, and never left behind.

Every process gets a session of its own, so Ctrl-C at the terminal reaches Fresco alone and Fresco
stops its servers in order. The kernel kills it when its parent dies (PR_SET_PDEATHSIG), whatever
killed the parent. That signal is tied to the *thread* that started the child, so each process has a
thread which starts it and then waits for it: the thread lives exactly as long as the child may.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from streaming.errors import FrescoError

_LAST_LINES = 20
_CHECK_EVERY_SECONDS = 0.05
_UNLESS_ORPHANED = '[ "$PPID" = "$0" ] && exec "$@"'


@dataclass(frozen=True)
class Account:
    """The system user a server runs as when Fresco runs as root, which PostgreSQL refuses."""

    name: str
    uid: int
    gid: int
    reads_all: bool = False
    """Keep the right to pass folders that are closed to the user, as /root and pytest's are."""


@dataclass(frozen=True)
class Command:
    """What to start. `env` replaces the environment when given; secrets never go into `words`."""

    name: str
    words: Sequence[str]
    env: Mapping[str, str] | None = None
    account: Account | None = None
    stop_signal: signal.Signals = field(default=signal.SIGTERM)


class ManagedProcess:
    """A started `Command`, with its output in `<folder>/logs/<name>.log` (appended)."""

    def __init__(self, command: Command, folder: Path) -> None:
        self.name = command.name
        self.log = log_path(folder, command.name)
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: OSError | None = None
        self._started = threading.Event()
        self._ended = threading.Event()
        self._reaping = threading.Lock()

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group. Raises before `start`."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True from `start` until the process has ended."""
        return self._process is not None and not self._ended.is_set()

    def start(self) -> ManagedProcess:
        """Start it and return at once. Raises FrescoError EMBEDDED_START_FAILED."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        threading.Thread(target=self._keep, name=f"process-{self.name}", daemon=True).start()
        self._started.wait()
        if self._failure is not None:
            raise FrescoError(
                "EMBEDDED_START_FAILED",
                f"{self.name} could not be started: {self._failure}",
                where=str(self.log),
                todo="install the missing program",
            ) from self._failure
        return self

    def _keep(self) -> None:
        """Body of the process's thread: start it, wait for its end."""
        try:
            with open(self.log, "ab") as output:
                self._process = subprocess.Popen(
                    guarded(self._command.words, self._command.account),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=self._command.env,
                    start_new_session=True,
                )
        except OSError as failure:
            self._failure = failure
            self._ended.set()
        self._started.set()
        if self._process is not None:
            self._await_end(self._process)

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end, and take what is left of the process group along.

        The group is killed before the process is reaped: until then its id belongs to nobody else.
        """
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            process.wait()
            self._ended.set()
            return
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._reaping:
            # macOS and Linux differ in the error for a group of zombies.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self._ended.set()

    def wait_healthy(self, healthy: Callable[[], bool], seconds: float) -> None:
        """`wait_until`, for a start: the process is stopped when it does not come up."""
        try:
            self.wait_until(healthy, seconds)
        except BaseException:
            self.stop()
            raise

    def wait_until(self, healthy: Callable[[], bool], seconds: float) -> None:
        """Return once `healthy()` is true; an exception in it, but FrescoError, means not yet.

        Raises FrescoError EMBEDDED_START_FAILED, with the end of the log, when the process ends
        first or `seconds` pass.
        """
        deadline = time.monotonic() + seconds
        last: Exception | None = None
        while not self._ended.is_set() and time.monotonic() < deadline:
            try:
                if healthy():
                    return
            except FrescoError:
                raise
            except Exception as not_yet:  # whatever a client raises while a server comes up
                last = not_yet
            self._ended.wait(_CHECK_EVERY_SECONDS)
        if self._ended.is_set():
            raise self._failed("ended before it was ready")
        why = f" ({last})" if last else ""
        raise self._failed(f"was not ready after {seconds:.0f} s{why}")

    def wait_done(self, seconds: float) -> None:
        """Wait for the end of a command that does one thing. Raises unless it ends with 0."""
        if not self._ended.wait(seconds):
            self.stop()
            raise self._failed(f"did not finish in {seconds:.0f} s")
        if self._process is None or self._process.returncode != 0:
            raise self._failed(f"ended with {self._process and self._process.returncode}")

    def stop(self, seconds: float = 20) -> None:
        """Ask it to end, wait, then kill its process group. Does nothing when it has ended."""
        if self._process is None:
            return
        self._signal(os.kill, self._command.stop_signal)
        if not self._ended.wait(seconds):
            self._signal(os.killpg, signal.SIGKILL)
            self._ended.wait()

    def _signal(self, send: Callable[[int, int], None], number: signal.Signals) -> None:
        """Send a signal, unless the process has been reaped and its id may be another's."""
        with self._reaping:
            if not self._ended.is_set():
                with suppress(ProcessLookupError):
                    send(self.pid, number)

    def _failed(self, why: str) -> FrescoError:
        lines = self.log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        tail = "\n  ".join(lines) if lines else "(nothing)"
        return FrescoError(
            "EMBEDDED_START_FAILED",
            f"{self.name} {why}; the last lines of its log:\n  {tail}\n",
            where=str(self.log),
            todo="read the log, remove the cause, start again",
        )


def log_path(folder: Path, name: str) -> Path:
    """The log of the process called `name` of the stack in `folder`."""
    return folder / "logs" / f"{name}.log"


def guarded(words: Sequence[str], account: Account | None = None) -> list[str]:
    """`words`, to be killed with its parent and, if `account` is given, run as that user.

    Linux's setpriv does both just before it becomes the command, so the process id stays and no
    Python runs between fork and exec. A parent that died before the signal was set is noticed by
    the shell that follows. Elsewhere there is no such signal, and no root to leave.
    """
    if not sys.platform.startswith("linux"):
        return list(words)
    prefix = [shutil.which("setpriv") or "setpriv", "--pdeathsig", "KILL"]
    if account is not None:
        prefix += [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"]
        if account.reads_all:
            prefix += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]
    return [*prefix, "--", "/bin/sh", "-c", _UNLESS_ORPHANED, str(os.getpid()), *words]
