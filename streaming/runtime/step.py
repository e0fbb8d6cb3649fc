"""The exactly-once step of every stage (DESIGN 9).

The protocol: run, commit, then apply; apply may be repeated.

1. A step runs a stage's machine on the records of one micro-batch that its last manifest has not
   consumed yet.
2. It commits by writing manifest s+1 with put-if-absent: consumed offsets, machine snapshot,
   outgoing messages, and what to write to the warehouse (rows by reference to staged files).
3. It reads the manifest back and applies it: warehouse commits first (idempotent by application and
   sequence), then messages (dropped by consumers that have seen their sequence).

Why it is right. The manifests of a stage form one chain: s+1 can be written once, whoever writes
it. Records are told apart by offset against the chain, not by Spark's batch number, so Spark's
checkpoint is only a hint and may be lost. A crash before 2 leaves nothing; a crash after 2 is
repaired by repeating 3 of the last manifest at the next start, and manifest s+2 is never written
before 3 of s+1 is done. An error between 1 and 3 leaves the stage torn: its state is ahead of the
chain, so the next step first takes the chain's. A paused driver that wakes up either loses the race
for s+1 and finds a manifest of a higher generation (it stops), or it wins and its step is the truth
that the new driver adopts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from streaming.durable import Durable
from streaming.runtime.fence import Fence
from streaming.runtime.manifests import Manifest, ManifestExists, ManifestStore, Outgoing

__all__ = [
    "Fence",
    "Manifest",
    "ManifestStore",
    "Outgoing",
    "Stage",
    "StepResult",
    "Stepper",
    "unseen",
]


class StepResult(BaseModel):
    """What a stage's run gives: all of it goes into the manifest."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)
    snapshot: Durable | dict[str, Any]
    messages: tuple[tuple[str, Any], ...] = ()
    """(topic, message), in order."""
    writes: dict[str, Any] = Field(default_factory=dict)


class Stage(Protocol):
    """What a stage gives to the step protocol."""

    name: str

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        """Take the state of a manifest (None: the very first start)."""

    def run(self, records: pa.Table) -> StepResult | None:
        """Run on records not consumed before; None leaves everything as it is, offsets included."""

    def apply(self, manifest: Manifest) -> None:
        """Commit `manifest.writes` to the warehouse; repeatable."""

    def applied(self, manifest: Manifest) -> None:
        """Called after the manifest's messages are published (working state may advance)."""


@runtime_checkable
class Halting(Protocol):
    """A stage whose step may wait for something outside; it does not once `halt` is called."""

    def halt(self) -> None:
        """From any thread; `restore` lets it wait again."""


class Stepper:
    """Runs one stage by the protocol; called from Spark's foreachBatch and from the ticker."""

    def __init__(
        self,
        stage: Stage,
        store: ManifestStore,
        fence: Fence,
        publish: Callable[[str, int, tuple[Outgoing, ...]], None],
    ) -> None:
        """Restore the stage from its last manifest and repeat that manifest's apply.

        Args:
            publish: sends (producer, generation, messages) and returns when they are acknowledged.

        Raises:
            FrescoError: SERVICE_FENCED when another start holds the pipeline; the stage's errors.
        """
        self.stage, self.store, self.fence, self._publish = stage, store, fence, publish
        self.lock = threading.RLock()
        self.seconds: dict[str, float] = {}
        self.last: Manifest | None = None
        self.at_work: BaseException | None = None
        """What the stage itself has raised last, and not what surrounds it: manifests, Kafka, Spark."""
        self._torn = True
        with self._fenced_first():
            self._resume()

    @property
    def offsets(self) -> dict[str, int]:
        """Next offset to consume, by "topic:partition"."""
        return dict(self.last.offsets) if self.last else {}

    def halt(self) -> None:
        """Let a step under way end early where its stage can; from any thread."""
        if isinstance(self.stage, Halting):
            self.stage.halt()

    def batch(self, records: pa.Table) -> None:
        """One step over (topic, partition, offset, ...) records.

        Raises:
            FrescoError: SERVICE_FENCED when another start holds the pipeline; the stage's errors.
        """
        with self.lock, self._fenced_first():
            while not self._step(records):
                self._resume()

    def _step(self, records: pa.Table) -> bool:
        """Run and commit; False when another driver had written this step."""
        if self._torn:
            self._resume()
        fresh, offsets = unseen(records, self.offsets)
        started = time.perf_counter()
        self._torn = True
        try:
            result = self.stage.run(fresh)
        except Exception as error:
            self.at_work = error
            raise
        if result is None:
            self._torn = False
            return True
        ran = time.perf_counter()
        manifest = self._manifest(result, offsets, ran - started)
        try:
            self.store.put(manifest)
            stored = self.store.read(manifest.step)
        except ManifestExists:
            return False
        put = time.perf_counter()
        self._apply(stored)
        self._torn = False
        self.seconds = {
            "run": ran - started,
            "manifest": put - ran,
            "apply": time.perf_counter() - put,
        }
        return True

    def _resume(self) -> None:
        """Take the state of the last manifest, whoever wrote it, and repeat its apply."""
        self.fence.check()
        self._torn = True
        latest = self.store.latest()
        self.stage.restore(latest.snapshot if latest else None)
        if latest:
            self._apply(latest)
        self._torn = False

    @contextmanager
    def _fenced_first(self) -> Iterator[None]:
        """A driver that was replaced learns that, not what it ran into because of it."""
        self.fence.check()
        try:
            yield
        except Exception:
            self.fence.check()
            raise

    def _manifest(self, result: StepResult, offsets: dict[str, int], seconds: float) -> Manifest:
        sequences = dict(self.last.sequences) if self.last else {}
        saved, outgoing = result.snapshot, []
        for topic, message in result.messages:
            sequences[topic] = sequences.get(topic, 0) + 1
            first = getattr(message, "first", getattr(message, "after", 0))
            outgoing.append(
                Outgoing(
                    topic=topic,
                    sequence=sequences[topic],
                    first=first,
                    last=getattr(message, "last", first),
                    kind=message.type,
                    body=message.model_dump_json(),
                )
            )
        return Manifest(
            stage=self.stage.name,
            step=(self.last.step if self.last else 0) + 1,
            generation=self.fence.generation,
            offsets=offsets,
            snapshot=saved.dumped() if isinstance(saved, Durable) else saved,
            messages=tuple(outgoing),
            sequences=sequences,
            writes=result.writes,
            seconds=round(seconds, 4),
        )

    def _apply(self, manifest: Manifest) -> None:
        self.stage.apply(manifest)
        if manifest.messages:
            self._publish(self.stage.name, self.fence.generation, manifest.messages)
        self.last = manifest
        self.stage.applied(manifest)


def unseen(records: pa.Table, offsets: Mapping[str, int]) -> tuple[pa.Table, dict[str, int]]:
    """Records at or above the consumed offsets, in the order they came, and the offsets after them."""
    following = dict(offsets)
    if records.num_rows == 0:
        return records, following
    groups = records.group_by(["topic", "partition"]).aggregate(
        [("offset", "min"), ("offset", "max")]
    )
    stale = False
    for topic, partition, low, high in zip(
        *(
            groups.column(name).to_pylist()
            for name in ("topic", "partition", "offset_min", "offset_max")
        ),
        strict=True,
    ):
        key = f"{topic}:{partition}"
        stale = stale or low < following.get(key, 0)
        following[key] = max(following.get(key, 0), high + 1)
    if stale:
        records = records.filter(_fresh(records, offsets))
    return records, following


def _fresh(records: pa.Table, offsets: Mapping[str, int]) -> pa.Array:
    """Mask of the records not consumed yet."""
    fresh = pa.chunked_array([pa.array([True] * records.num_rows)])
    for key, following in offsets.items():
        topic, _, partition = key.rpartition(":")
        here = pc.and_(
            pc.equal(records["topic"], topic), pc.equal(records["partition"], int(partition))
        )
        fresh = pc.and_(fresh, pc.or_(pc.invert(here), pc.less_equal(following, records["offset"])))
    return fresh
