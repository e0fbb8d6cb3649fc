"""`fresco snapshots`: a source without a log, published from its successive snapshots (DESIGN 6).

Snapshots are numbered from 1, each brought into its form (`differential`) in a folder of its own below
`<warehouse>/_state/snapshots-<source>`. The first is published as an initial snapshot, every later one as
the transaction that leads to it from the one before, under its number.

**Exactly once.** How far the publication has come is committed to Kafka together with the events it
speaks of (`writer`): the last number that is published whole, and how many events of the next. A form
is made before anything of it is published, and does not change; what is published of it goes by the
tables as they were noted with it (`forms`), not as they are configured by then. So a monitor that is
killed at any moment goes on with the same events in the same order, after those that readers see. A
difference published again all the same, as after the loss of that record, has the number it had, by
which readers know it for a repeat.
"""

from __future__ import annotations

import fcntl
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.capture import differential
from streaming.capture.capturing import PASSING, WAITS
from streaming.capture.envelope import Envelope, Message
from streaming.capture.kafka_writer import Writer
from streaming.capture.position import PublishedPosition
from streaming.capture.snapshot_events import Stamp, events
from streaming.capture.snapshot_folders import Forms
from streaming.captured.captured_schema import CapturedRelation
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.source_schemas import source_relations

log = logging.getLogger("fresco")

COMMITTED = 100_000
"""Events of a Kafka transaction, about."""
_LOG = "snapshots.0"
"""Stands for the file in a progress, whose offset is a snapshot's number."""


@dataclass(frozen=True)
class Published:
    """What became of one snapshot."""

    source: str
    number: int
    snapshot: str
    inserted: int
    updated: int
    deleted: int
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Monitor:
    """The monitor of one source.

    Args:
        tell: is given each snapshot once it is published.
        progress: is given (snapshot, events published, events in all).

    Raises:
        FrescoError: SNAPSHOT_SOURCE when the source has no `snapshots`; SNAPSHOT_RUNNING.
    """

    def __init__(
        self,
        config: Config,
        source: str,
        tell: Callable[[Published], None],
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        settings = config.sources[source].snapshots if source in config.sources else None
        if settings is None:
            raise FrescoError(
                "SNAPSHOT_SOURCE",
                f"source {source} is not read from snapshots",
                where=f"sources.{source}",
                todo=f"give sources.{source} a section `snapshots`",
            )
        self._config, self._source = config, source
        self._settings = settings
        self._tell, self._progress = tell, progress or (lambda *_: None)
        self._stop = threading.Event()
        self._envelope = Envelope(config.prefix(source), config.notifications(source))
        self._folder = config.warehouse / "_state" / f"snapshots-{source}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._forms = Forms(config, source, settings, self._folder)
        self._ran = False
        self._lock = (self._folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FrescoError(
                "SNAPSHOT_RUNNING",
                f"another `fresco snapshots --source {source}` is running",
                where=str(self._folder),
                todo="let it run, or stop it first",
            ) from error

    def request_stop(self) -> None:
        """End after the snapshot in hand; from any thread or a signal."""
        self._stop.set()

    def run(self, once: bool = False) -> None:
        """Publish what there is, then, unless `once`, whatever comes, until told to stop.

        Raises:
            FrescoError: SNAPSHOT_*, SOURCE_*, KAFKA_UNREACHABLE, CAPTURE_FENCED. Nothing of the
                snapshot at fault is published. A database or Kafka that is away is waited for,
                unless `once`, once the monitor has run.
        """
        attempts = 0
        try:
            while not self._stop.is_set():
                try:
                    self._run(once)
                    return
                except FrescoError as error:
                    if error.code not in PASSING or once or not self._ran:
                        raise
                    log.warning("source %s waits: %s", self._source, error)
                    self._stop.wait(WAITS[min(attempts, len(WAITS) - 1)])
                    attempts += 1
        finally:
            self._lock.close()

    def _run(self, once: bool) -> None:
        relations = source_relations(self._config, self._source)
        topics = [one.topic for one in relations]
        topics += [self._envelope.transaction_topic, self._envelope.notification_topic]
        writer = Writer(self._config, self._envelope.prefix, topics)
        self._ran = True
        engine = differential.open_engine(self._folder)
        try:
            while not self._stop.is_set():
                progress = writer.progress() or PublishedPosition(LogPlace(_LOG, 0))
                number = progress.at.offset
                self._forms.check(number)
                pending = self._forms.there(number + 1)
                if not pending and not self._forms.take(engine, relations, number):
                    if once:
                        return
                    self._stop.wait(self._settings.every_seconds)
                    continue
                self._publish(writer, engine, relations, progress)
                if once and not pending and self._settings.folder is None:
                    return  # the tables themselves are read, so there is always a further snapshot
        finally:
            writer.close()
            engine.close()

    # Publication ----------------------------------------------------------------------------------

    def _publish(
        self,
        writer: Writer,
        engine: Any,
        relations: Sequence[CapturedRelation],
        progress: PublishedPosition,
    ) -> None:
        """The next snapshot, as far as it is not published yet."""
        started, last = time.monotonic(), progress.at.offset
        about = self._forms.about(last + 1)
        relations = tuple(self._forms.as_taken(last + 1, relations))
        counts = {}
        for one in relations:
            old, new = self._forms.before(last + 1, one), self._forms.form(last + 1, one)
            counts[one.counted_as] = differential.counts(engine, one, old, new)
        total, done = sum(count.events for count in counts.values()), progress.events
        if total and last and not done:
            writer.send([self._envelope.begin(f"{last + 1}:{last + 1}", about["ms"])])
        before = waiting = 0
        for one in relations:
            count = counts[one.counted_as].events
            skip = min(count, max(0, done - before))
            stamp = Stamp(self._envelope.prefix, last + 1, before, about["ms"])
            for batch in self._batches(engine, one, last, stamp, skip):
                waiting += writer.send(batch)
                if waiting >= COMMITTED:
                    done, waiting = done + waiting, 0
                    writer.commit(PublishedPosition(LogPlace(_LOG, last), done))
                    self._progress(about["name"], done, total)
            before += count
        if total or not last:
            writer.send(self._end(last + 1, about["ms"], counts))
        writer.commit(PublishedPosition(LogPlace(_LOG, last + 1), snapshot="done"))
        self._progress(about["name"], total, total)
        each = counts.values()
        self._tell(
            Published(
                self._source,
                last + 1,
                about["name"],
                sum(one.inserted for one in each),
                sum(one.updated for one in each),
                sum(one.deleted for one in each),
                round(time.monotonic() - started, 3),
            )
        )

    def _batches(
        self, engine: Any, one: CapturedRelation, last: int, stamp: Stamp, skip: int
    ) -> Iterator[list[Message]]:
        old, new = self._forms.before(last + 1, one), self._forms.form(last + 1, one)
        for batch in events(engine, one, old, new, stamp, skip):
            keys, values = (column.to_pylist() for column in batch.columns)
            yield [
                (one.topic, None if key is None else key.encode(), value.encode())
                for key, value in zip(keys, values, strict=True)
            ]

    def _end(
        self, number: int, ms: int, counts: dict[str, differential.DifferenceCounts]
    ) -> Iterator[Message]:
        """What closes the first snapshot, or a difference."""
        if number > 1:
            each = {name: count.events for name, count in counts.items() if count.events}
            yield self._envelope.end(f"{number}:{number}", ms, each, LogPlace(_LOG, number))
            return
        for name, count in counts.items():
            yield self._envelope.notification(
                "first",
                "TABLE_SCAN_COMPLETED",
                ms,
                scanned_collection=name,
                total_rows_scanned=str(count.inserted),
                status="SUCCEEDED",
            )
        yield self._envelope.notification("first", "COMPLETED", ms)
