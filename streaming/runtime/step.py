"""The exactly-once step of every stage, and the fence between starts (DESIGN 9).

The protocol: run, commit, then apply; apply may be repeated.

1. A step runs a stage's machine on the records of one micro-batch that its last manifest has not
   consumed yet.
2. It commits by writing manifest s+1 with put-if-absent: consumed offsets, machine snapshot, outgoing
   messages, and what to write to the warehouse (rows by reference to staged files).
3. It reads the manifest back and applies it: warehouse commits first (idempotent by application and
   sequence), then messages (dropped by consumers that have seen their sequence).

Why it is right. The manifests of a stage form one chain: s+1 can be written once, whoever writes it.
Records are told apart by offset against the chain, not by Spark's batch number, so Spark's checkpoint is
only a hint and may be lost. A crash before 2 leaves nothing; a crash after 2 is repaired by repeating 3
of the last manifest at the next start, and manifest s+2 is never written before 3 of s+1 is done. A
paused driver that wakes up either loses the race for s+1 and finds a manifest of a higher generation
(it stops), or it wins and its step is the truth that the new driver adopts.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field

from streaming.errors import FrescoError

KEPT_MANIFESTS = 20


class Outgoing(BaseModel):
    """One message to publish: the topic and the encoded body of a `messages.Message`."""

    model_config = ConfigDict(frozen=True)
    topic: str
    sequence: int
    first: int
    last: int
    kind: str
    body: str


class Manifest(BaseModel):
    """One committed step of a stage."""

    model_config = ConfigDict(frozen=True)
    stage: str
    step: int
    """From 1, without gaps."""
    generation: int
    offsets: dict[str, int]
    """"topic:partition" -> next offset to consume."""
    snapshot: dict[str, Any]
    messages: tuple[Outgoing, ...] = ()
    sequences: dict[str, int] = Field(default_factory=dict)
    """Topic -> sequence of the last message ever sent there by this stage."""
    writes: dict[str, Any] = Field(default_factory=dict)
    """What the stage's `apply` commits to the warehouse."""


class StepResult(BaseModel):
    """What a stage's run gives: all of it goes into the manifest."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)
    snapshot: dict[str, Any]
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


class ManifestExists(Exception):
    """Another driver has written this step."""


class ManifestStore:
    """The chain of manifests of one stage: `<folder>/<step, 12 digits>.json`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def latest(self) -> Manifest | None:
        """The manifest with the highest step, or None."""
        names = sorted(self.folder.glob("[0-9]*.json"))
        return self._read(names[-1]) if names else None

    def read(self, step: int) -> Manifest:
        """The manifest of a step, as it is stored."""
        return self._read(self._path(step))

    def put(self, manifest: Manifest) -> None:
        """Write a manifest if its step has none: the commit point.

        Raises:
            ManifestExists: this step, or a later one, is there already.
        """
        put_if_absent(self._path(manifest.step), manifest.model_dump_json().encode())
        if self._steps()[-1] > manifest.step:
            self._path(manifest.step).unlink(missing_ok=True)
            raise ManifestExists(manifest.step)
        for old in self._steps()[:-KEPT_MANIFESTS]:
            self._path(old).unlink(missing_ok=True)

    def _steps(self) -> list[int]:
        return sorted(int(file.stem) for file in self.folder.glob("[0-9]*.json"))

    def _path(self, step: int) -> Path:
        return self.folder / f"{step:012d}.json"

    def _read(self, file: Path) -> Manifest:
        try:
            return Manifest.model_validate_json(file.read_bytes())
        except ValueError as error:
            raise FrescoError(
                "STATE_DAMAGED", f"a manifest cannot be read: {error}", where=str(file),
                todo="restore the file from a backup of the warehouse's _state folder",
            ) from error


def put_if_absent(path: Path, content: bytes) -> None:
    """Write a file whole, durably, and only if it does not exist (link, not rename).

    Raises:
        ManifestExists: the file exists.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(temporary, path)
    except FileExistsError as error:
        raise ManifestExists(path.name) from error
    finally:
        temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Fence:
    """The generation of this start; a later start fences this one out."""

    def __init__(self, folder: Path, owner: Mapping[str, Any]) -> None:
        """Take the next generation.

        Args:
            folder: shared by all drivers of the pipeline.
            owner: who holds it (host, process, start time), told to those fenced out.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            self.generation = self.current() + 1
            try:
                put_if_absent(self._path(self.generation), json.dumps(dict(owner)).encode())
                return
            except ManifestExists:
                continue

    def current(self) -> int:
        """The highest generation taken so far (0: none)."""
        return max((int(file.stem) for file in self.folder.glob("[0-9]*.json")), default=0)

    def holder(self) -> dict[str, Any]:
        """Who holds the pipeline now."""
        found: dict[str, Any] = json.loads(self._path(self.current()).read_text())
        return found

    def check(self) -> None:
        """Stop a driver that another has replaced.

        Raises:
            FrescoError: SERVICE_FENCED, naming the holder.
        """
        if self.current() > self.generation:
            raise self.fenced()

    def fenced(self) -> FrescoError:
        """The error that says which start holds the pipeline."""
        return FrescoError(
            "SERVICE_FENCED",
            f"generation {self.generation} was replaced by generation {self.current()}",
            where=f"held by {self.holder()}",
            todo="let the other service run, or stop it before starting this one again",
        )

    def _path(self, generation: int) -> Path:
        return self.folder / f"{generation:08d}.json"


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
        """
        self.stage, self.store, self.fence, self._publish = stage, store, fence, publish
        self.lock = threading.RLock()
        self.seconds: dict[str, float] = {}
        self.last = store.latest()
        stage.restore(self.last.snapshot if self.last else None)
        if self.last:
            self._apply(self.last)

    @property
    def offsets(self) -> dict[str, int]:
        """"topic:partition" -> next offset to consume."""
        return dict(self.last.offsets) if self.last else {}

    def batch(self, records: pa.Table) -> None:
        """One step over (topic, partition, offset, ...) records.

        Raises:
            FrescoError: SERVICE_FENCED when another start holds the pipeline; the stage's errors.
        """
        with self.lock:
            self.fence.check()
            fresh, offsets = unseen(records, self.offsets)
            started = time.perf_counter()
            result = self.stage.run(fresh)
            if result is None:
                return
            manifest = self._manifest(result, offsets)
            ran = time.perf_counter()
            try:
                self.store.put(manifest)
            except ManifestExists:
                self._adopt()
                self.batch(records)
                return
            put = time.perf_counter()
            self._apply(self.store.read(manifest.step))
            self.seconds = {"run": ran - started, "manifest": put - ran,
                            "apply": time.perf_counter() - put}

    def _manifest(self, result: StepResult, offsets: dict[str, int]) -> Manifest:
        sequences = dict(self.last.sequences) if self.last else {}
        outgoing = []
        for topic, message in result.messages:
            sequences[topic] = sequences.get(topic, 0) + 1
            first = getattr(message, "first", getattr(message, "after", 0))
            outgoing.append(Outgoing(
                topic=topic, sequence=sequences[topic], first=first,
                last=getattr(message, "last", first), kind=message.type,
                body=message.model_dump_json(),
            ))
        return Manifest(
            stage=self.stage.name, step=(self.last.step if self.last else 0) + 1,
            generation=self.fence.generation, offsets=offsets, snapshot=result.snapshot,
            messages=tuple(outgoing), sequences=sequences, writes=result.writes,
        )

    def _adopt(self) -> None:
        """Another driver wrote this step: stop if it is newer, else its step is the truth."""
        latest = self.store.latest()
        if latest is None or latest.generation > self.fence.generation:
            raise self.fence.fenced()
        self.stage.restore(latest.snapshot)
        self._apply(latest)

    def _apply(self, manifest: Manifest) -> None:
        self.stage.apply(manifest)
        if manifest.messages:
            self._publish(self.stage.name, self.fence.generation, manifest.messages)
        self.last = manifest
        self.stage.applied(manifest)


def unseen(records: pa.Table, offsets: Mapping[str, int]) -> tuple[pa.Table, dict[str, int]]:
    """Records at or above the consumed offsets, and the offsets after them.

    Records come back ordered by (topic, partition, offset).
    """
    following = dict(offsets)
    if records.num_rows == 0:
        return records, following
    groups = records.group_by(["topic", "partition"]).aggregate(
        [("offset", "min"), ("offset", "max")]
    )
    stale = False
    for topic, partition, low, high in zip(*(
        groups.column(name).to_pylist()
        for name in ("topic", "partition", "offset_min", "offset_max")
    ), strict=True):
        key = f"{topic}:{partition}"
        stale = stale or low < following.get(key, 0)
        following[key] = max(following.get(key, 0), high + 1)
    if stale:
        records = records.filter(_fresh(records, offsets))
    return records.sort_by([("topic", "ascending"), ("partition", "ascending"),
                            ("offset", "ascending")]), following


def _fresh(records: pa.Table, offsets: Mapping[str, int]) -> pa.Array:
    """Mask of the records not consumed yet."""
    fresh = pa.chunked_array([pa.array([True] * records.num_rows)])
    for key, following in offsets.items():
        topic, _, partition = key.rpartition(":")
        here = pc.and_(pc.equal(records["topic"], topic),
                       pc.equal(records["partition"], int(partition)))
        fresh = pc.and_(fresh, pc.or_(pc.invert(here), pc.less_equal(following, records["offset"])))
    return fresh
