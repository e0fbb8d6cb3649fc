"""That a driver lives, and what its stages wait for: said every few seconds beside the fence.

Manifests say how far stages have come, and nothing of one that takes no step. So each driver says that it
is there, and what it sees that no manifest tells: a stage that waits for its restart, transactions whose
rows do not come, a broker that is away. `_state/heartbeats/<generation>.json` is replaced each
time; when the driver ends it says why. Nothing is decided by it: it is for people (`stalls`).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from streaming.errors import FrescoError

log = logging.getLogger("fresco")

FOLDER = "heartbeats"
BEAT_SECONDS = 2.0
SILENT_SECONDS = 30.0
"""After so long without a word a driver is taken for one that has ended."""
LOOK_SECONDS, REST = 5.0, 50
"""Between two looks at the whole warehouse: seconds at least, and so many times what one takes."""
AWAY_SECONDS = 5.0
"""For so long no broker could be reached before that is told of."""
_CONNECT_SECONDS = 1.0


class Stall(BaseModel):
    """Something that cannot go on.

    Attributes:
        what: `pipeline`, or `source NAME`, `relation NAME`, `stage NAME`, `group NAME`, `view NAME`.
        code, says, where, todo: as of a `FrescoError`.
    """

    model_config = ConfigDict(frozen=True)
    what: str
    code: str
    says: str
    where: str = ""
    todo: str = ""

    @classmethod
    def of(cls, what: str, error: FrescoError) -> Stall:
        """What an error holds up."""
        return cls(what=what, code=error.code, says=error.what, where=error.where, todo=error.todo)

    @property
    def error(self) -> dict[str, str]:
        """As `FrescoError.as_dict`."""
        return {"code": self.code, "what": self.says, "where": self.where, "todo": self.todo}


class Beat(BaseModel):
    """What a driver said last.

    Attributes:
        at_ms: when, milliseconds since 1970.
        roles: the stages it runs; () for all.
        stalls: what it sees to be held up.
        ended: why it has ended; "" while it runs.
        place, process: where process ids mean what they mean here (`here`), and its own.
    """

    model_config = ConfigDict(frozen=True)
    version: int = 1
    generation: int
    at_ms: int
    roles: tuple[str, ...] = ()
    stalls: tuple[Stall, ...] = ()
    ended: str = ""
    place: str = ""
    process: int = 0

    def lives(self, now_ms: int) -> bool:
        """Whether it has said something lately, and not that it ends."""
        return not (self.ended or self.killed) and now_ms - self.at_ms < 1000 * SILENT_SECONDS

    @property
    def killed(self) -> bool:
        """Whether it ran where this process does, and is there no more."""
        if not self.place or self.place != here():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass  # another user's
        return False


def here() -> str:
    """The machine and its space of process ids; "" where that cannot be told."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def say(warehouse: Path, beat: Beat) -> None:
    """Replace what the driver said before; it is a hint, so a disk that is full is no error here."""
    folder = warehouse / "_state" / FOLDER
    draft = folder / f".{beat.generation}.{os.getpid()}"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        draft.write_text(beat.model_dump_json())
        os.replace(draft, folder / f"{beat.generation:08d}.json")


def heard(warehouse: Path, generation: int) -> Beat | None:
    """What the driver of a generation said last; None where it said nothing."""
    try:
        file = warehouse / "_state" / FOLDER / f"{generation:08d}.json"
        return Beat.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return None


class Heartbeat:
    """One driver's, in a thread of its own: the service's watch may be held up by what it starts.

    Args:
        stalls: what the driver sees now.
        said: called after a beat, now and then.
    """

    def __init__(
        self,
        warehouse: Path,
        generation: int,
        roles: Sequence[str],
        stalls: Callable[[], Sequence[Stall]],
        said: Callable[[], object] = lambda: None,
    ) -> None:
        self._warehouse, self._generation, self._roles = warehouse, generation, tuple(roles)
        self._stalls, self._said = stalls, said
        self._stopping = threading.Event()
        self.beat()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def beat(self, ended: str = "") -> None:
        """Say it now."""
        stalls = () if ended else tuple(self._stalls())
        beat = Beat(
            generation=self._generation,
            at_ms=int(time.time() * 1000),
            roles=self._roles,
            stalls=stalls,
            ended=ended,
            place=here(),
            process=os.getpid(),
        )
        say(self._warehouse, beat)

    def stop(self, reason: str) -> None:
        """The driver ends."""
        self._stopping.set()
        self._thread.join(timeout=BEAT_SECONDS)
        self.beat(reason)

    def _run(self) -> None:
        due = 0.0
        while not self._stopping.wait(BEAT_SECONDS):
            try:
                self.beat()
                if (began := time.monotonic()) >= due:
                    self._said()
                    due = time.monotonic() + max(LOOK_SECONDS, REST * (time.monotonic() - began))
            except Exception as error:  # what it looks at changes under its hands: it looks again
                log.debug("a heartbeat has been missed", exc_info=error)


class BrokerWatch:
    """Whether any of a cluster's brokers can be connected to: its clients retry for ever, silently."""

    def __init__(self, bootstrap: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._bootstrap, self._clock = bootstrap, clock
        self._since: float | None = None
        self._told = False

    def stalls(self) -> list[Stall]:
        """That of what is numbered, once no broker has answered for a while."""
        if any(map(_connects, self._bootstrap.split(","))):
            if self._told:
                log.warning("Kafka can be connected to again")
            self._since, self._told = None, False
            return []
        self._since = self._clock() if self._since is None else self._since
        if (gone := self._clock() - self._since) < AWAY_SECONDS:
            return []
        error = FrescoError(
            "KAFKA_UNREACHABLE",
            f"no broker can be connected to for {gone:.0f} s",
            where=self._bootstrap,
            todo="start Kafka; the stages wait for it, or fail and start again",
        )
        if not self._told:
            self._told = True
            log.warning("%s", error)
        return [Stall.of("stage integrator", error)]


def _connects(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS):
            return True
    except (OSError, ValueError):
        return False
