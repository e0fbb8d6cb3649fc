"""What a service says to the person who started it, and the file that gets everything else.

A driver is full of libraries that write as they like: Kafka's clients, Spark's JVM, Rust. So while one
runs, standard output and standard error are its log file, for everybody who writes to them by their
number, children included; only what Fresco itself says goes to where they led before. Without a log file
(under spark-submit, which has its own) the streams are left as they are.
"""

from __future__ import annotations

import logging
import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from rich.logging import RichHandler

from streaming.plain import PlainFormatter
from streaming.service.screen import Screen

LOGS = "_log"
"""Folder of a warehouse."""
KEPT = 10
"""Log files of earlier starts that are kept."""
LARGEST = 20_000_000
"""Bytes after which a log file begins anew; the one before is kept beside it."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Terminal:
    """Where a driver's own lines go.

    Attributes:
        console: writes to what standard error was.
        log: the file of all else; None where there is none.
    """

    def __init__(self, stream: TextIO, log: Path | None = None) -> None:
        self.log = log
        self.console = _Console(file=stream, stderr=True)

    @property
    def gone(self) -> bool:
        """Whether nobody can read it any more: the reader of its pipe, or its window, is closed."""
        if self.console.broken:
            return True
        poll = select.poll()
        try:
            poll.register(self.console.file.fileno(), select.POLLERR | select.POLLHUP)
        except (OSError, ValueError):
            return False  # no descriptor, as in a test
        return any(what & (select.POLLERR | select.POLLHUP) for _, what in poll.poll(0))


class _Console(Screen):
    """A console whose reader may leave; a service does not fail of that, it ends."""

    broken = False

    def on_broken_pipe(self) -> None:
        self.broken = self.quiet = True


class _Said(RichHandler):
    """Fresco's own lines; the trace of an error is in the log file."""

    def emit(self, record: logging.LogRecord) -> None:
        plain = logging.makeLogRecord(record.__dict__ | {"exc_info": None, "exc_text": None})
        try:
            super().emit(plain)
        except OSError:  # a window that is closed
            assert isinstance(self.console, _Console)
            self.console.broken = True

    def handleError(self, record: logging.LogRecord) -> None:
        """Called for what `emit` has run into."""
        if isinstance(sys.exc_info()[1], OSError):
            raise
        super().handleError(record)


class _LogFile(logging.StreamHandler[TextIO]):
    """Everything, in the file that is also standard output and standard error."""

    def __init__(self, path: Path) -> None:
        super().__init__(sys.stderr)
        self._path = path
        self._open()
        self.setFormatter(PlainFormatter(_FORMAT))

    def _open(self) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        sys.stdout.flush()
        for standard in (1, 2):
            os.dup2(file, standard)
        os.close(file)

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        with suppress(OSError):
            if os.fstat(2).st_size > LARGEST:
                os.replace(self._path, self._path.with_suffix(".before.log"))
                self._open()


@contextmanager
def terminal(log: Path | None) -> Iterator[Terminal]:
    """A driver's terminal, while it runs in this process.

    Args:
        log: the file of all that Fresco does not say itself; None leaves the streams alone.
    """
    root, own = logging.getLogger(), logging.getLogger("fresco")
    before = own.level, own.propagate, own.handlers
    own.handlers = []
    kept = [os.dup(standard) for standard in (1, 2)]
    shown = Terminal(os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace"), log)
    said = _Said(console=shown.console, show_path=False, markup=False)
    said.setFormatter(PlainFormatter("%(message)s"))
    handlers: list[tuple[logging.Logger, logging.Handler]] = [(own, said)]
    own.setLevel(logging.INFO)
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        handlers.append((root, _LogFile(log)))
        root.setLevel(logging.WARNING)
    else:
        own.propagate = False
    logging.captureWarnings(True)
    for logger, handler in handlers:
        logger.addHandler(handler)
    try:
        yield shown
    finally:
        for logger, handler in handlers:
            logger.removeHandler(handler)
        own.level, own.propagate, own.handlers = before
        logging.captureWarnings(False)
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        for standard, was in zip((1, 2), kept, strict=True):
            if not shown.gone:
                os.dup2(was, standard)
            os.close(was)
        with suppress(OSError):
            shown.console.file.close()


def log_libraries(warehouse: Path) -> None:
    """What libraries log goes into a file of this start, which is made when there is something to say."""
    log = log_of_start(warehouse)
    log.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(log, delay=True)
    handler.setFormatter(PlainFormatter(_FORMAT))
    logging.getLogger().addHandler(handler)


def log_of_start(warehouse: Path) -> Path:
    """A log file of its own for this start; those of long past ones go."""
    folder = warehouse / LOGS
    with suppress(OSError):
        old = sorted(folder.glob("*.log"), key=lambda one: one.stat().st_mtime)
        for file in old[: max(0, len(old) - KEPT)]:
            file.unlink()
    return folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.log"
