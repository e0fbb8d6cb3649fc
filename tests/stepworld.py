"""A small world around the exactly-once step: a source, a warehouse, a topic, drivers that crash.

The stage is real (it counts, sums, commits rows and publishes messages), the manifests and the
fence are the product's on a real file system; only the drivers are ours. Every place in which a
driver can die or be put to sleep calls `Driver.reach`, so a test can name the moment.

What must hold, whatever happens to the drivers (`World.assert_whole`): each source record is
counted once and in order, the warehouse holds each numbered row once, and a consumer that reads the
topics through `Inbox` gets each message once and in order.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from streaming.errors import FrescoError
from streaming.messages import Rel
from streaming.runtime.inbox import Inbox
from streaming.runtime.kafka import headers
from streaming.runtime.step import (
    Fence,
    Manifest,
    ManifestStore,
    Outgoing,
    Stepper,
    StepResult,
)

TOPICS = ("even", "odd")
SCHEMA = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", "int64")]
)

Reach = Callable[[str], None]


class Crash(BaseException):
    """The driver's process is gone: nothing catches this."""


@dataclass
class World:
    """What outlives a driver: the source, the chain of manifests, the warehouse and the topics."""

    folder: Path
    source: Mapping[int, tuple[int, ...]]
    """Partition -> values, by offset."""
    warehouse: list[tuple[int, list[list[int]]]] = field(default_factory=list)
    """(sequence, rows of [number, partition, value, sum])."""
    log: list[dict[str, Any]] = field(default_factory=list)
    """Published records of all topics, in the broker's order."""
    puts: list[tuple[int, int]] = field(default_factory=list)
    """(generation, step) of each manifest that was committed."""

    def commit(self, sequence: int, rows: list[list[int]]) -> None:
        """An idempotent commit: a repeated sequence changes nothing, a skipped one is a defect."""
        last = self.warehouse[-1][0] if self.warehouse else 0
        if sequence <= last:
            return
        assert sequence == last + 1, f"commit {sequence} follows {last}"
        self.warehouse.append((sequence, rows))

    def append(self, producer: str, generation: int, message: Outgoing) -> None:
        """One record, as the broker stores it."""
        fields = headers("pipeline", producer, generation, message)
        self.log.append(
            {
                "topic": message.topic,
                "partition": 0,
                "offset": len(self.log),
                "value": message.body.encode(),
                "headers": [{"key": key, "value": value} for key, value in fields],
            }
        )

    def rows(self) -> list[tuple[int, ...]]:
        """All rows of the warehouse."""
        return [tuple(row) for _, rows in self.warehouse for row in rows]

    def delivered(self, chunk: int = 3) -> dict[str, list[tuple[int, ...]]]:
        """Topic -> what a consumer takes, reading `chunk` records at a time, restarting between."""
        taken: dict[str, list[tuple[int, ...]]] = {topic: [] for topic in TOPICS}
        seen: Mapping[str, Any] | None = None
        for at in range(0, len(self.log), chunk):
            inbox = Inbox(seen)
            for message in inbox.take(pa.Table.from_pylist(self.log[at : at + chunk])):
                assert isinstance(message, Rel)
                content = tuple(int(part) for part in message.positions["row"].split())
                taken[message.group].append(content)
            seen = inbox.snapshot()
        return taken

    def assert_whole(self) -> None:
        """Nothing lost, doubled or reordered, in the warehouse and at the consumer."""
        rows = self.rows()
        assert [row[0] for row in rows] == list(range(1, len(rows) + 1))
        for partition, values in self.source.items():
            assert tuple(row[2] for row in rows if row[1] == partition) == values
        total = 0
        for row in rows:
            total += row[2]
            assert row[3] == total
        for topic, taken in self.delivered().items():
            assert taken == [row for row in rows if TOPICS[row[2] % 2] == topic]

    def batch(self, position: dict[int, int], sizes: random.Random) -> pa.Table:
        """The next records of each partition from `position` on, which moves."""
        records = []
        for partition, values in self.source.items():
            start = position.get(partition, 0)
            stop = min(len(values), start + sizes.randint(0, 3))
            position[partition] = max(start, stop)
            records += [
                {"topic": "in", "partition": partition, "offset": at, "value": values[at]}
                for at in range(start, stop)
            ]
        sizes.shuffle(records)
        return pa.Table.from_pylist(records, schema=SCHEMA)

    def at_end(self, position: Mapping[int, int]) -> bool:
        return all(position.get(part, 0) >= len(rows) for part, rows in self.source.items())


class Counting:
    """A stage that numbers values and sums them; its memory is ahead of the chain between steps."""

    name = "counting"

    def __init__(self, world: World, reach: Reach) -> None:
        self._world, self._reach = world, reach
        self.count = self.total = self.sequence = 0

    def restore(self, snapshot: Mapping[str, Any] | None) -> None:
        state = snapshot or {}
        self.count, self.total = state.get("count", 0), state.get("total", 0)
        self.sequence = state.get("sequence", 0)
        self._reach("restored")

    def run(self, records: pa.Table) -> StepResult | None:
        if records.num_rows == 0:
            return None
        messages, rows = [], []
        self.sequence += 1
        by_place = [(name, "ascending") for name in ("topic", "partition", "offset")]
        for record in records.sort_by(by_place).to_pylist():
            self.count += 1
            self.total += record["value"]
            row = [self.count, record["partition"], record["value"], self.total]
            rows.append(row)
            topic = TOPICS[record["value"] % 2]
            position = {"row": " ".join(map(str, row))}
            messages.append(
                (topic, Rel(group=topic, first=row[0], last=row[0], runs=(), positions=position))
            )
            self._reach("running")
        return StepResult(
            snapshot={"count": self.count, "total": self.total, "sequence": self.sequence},
            messages=tuple(messages),
            writes={"sequence": self.sequence, "rows": rows},
        )

    def apply(self, manifest: Manifest) -> None:
        self._reach("before the warehouse write")
        self._world.commit(manifest.writes["sequence"], manifest.writes["rows"])
        self._reach("after the warehouse write")

    def applied(self, manifest: Manifest) -> None:
        self._reach("applied")


class WatchedStore(ManifestStore):
    """The product's store, with a moment around and inside each operation."""

    def __init__(self, world: World, reach: Reach) -> None:
        super().__init__(world.folder / "manifests")
        self._world, self._reach = world, reach

    def put(self, manifest: Manifest) -> None:
        self._reach("before the manifest")
        super().put(manifest)
        self._world.puts.append((manifest.generation, manifest.step))
        self._reach("after the manifest")

    def read(self, step: int) -> Manifest:
        self._reach("before reading a manifest")
        return super().read(step)

    def _steps(self) -> list[int]:
        found = super()._steps()
        self._reach("manifests listed")
        return found


class Driver:
    """One start of the service: takes a generation and steps to the end of the source.

    Args:
        reach: called with the name of each moment; may raise to crash or fail the driver there.
        seed: of its batch sizes.
        tick: whether an empty batch goes between two others, as the service's ticker does.
    """

    def __init__(self, world: World, reach: Reach, seed: int = 0, tick: bool = False) -> None:
        self.world, self.reach, self._tick = world, reach, tick
        self._sizes = random.Random(seed)
        self.generation = 0
        self.stepper: Stepper | None = None

    def run(self) -> None:
        """Raises whatever stops it; FrescoError SERVICE_FENCED when another has taken over."""
        fence = Fence(self.world.folder / "generations", {"process": "a test"})
        self.generation = fence.generation
        self.reach("fence taken")
        stage = Counting(self.world, self.reach)
        stepper = Stepper(stage, WatchedStore(self.world, self.reach), fence, self._publish)
        self.stepper = stepper
        position = _position(stepper)
        while not self.world.at_end(position):
            records = self.world.batch(position, self._sizes)
            self.reach("batch")
            try:
                stepper.batch(records)
            except OSError:
                # As the service: the ticker may come before the query has been started again.
                if self._tick:
                    stepper.batch(SCHEMA.empty_table())
                position = _position(stepper)
        self.reach("end")

    def _publish(self, producer: str, generation: int, messages: tuple[Outgoing, ...]) -> None:
        for message in messages:
            self.reach("publishing")
            self.world.append(producer, generation, message)
        self.reach("published")


def _position(stepper: Stepper) -> dict[int, int]:
    return {int(key.rpartition(":")[2]): at for key, at in stepper.offsets.items()}


class Countdown:
    """Lets a driver pass `moments` moments and raises `error` at the next one."""

    def __init__(self, moments: int, error: type[BaseException] = Crash) -> None:
        self.left, self._error = moments, error
        self.passed: list[str] = []

    def __call__(self, moment: str) -> None:
        self.passed.append(moment)
        self.left -= 1
        if self.left == -1:
            raise self._error(moment)


class Sleeper:
    """A driver in a thread of its own that moves only when it is told to, from moment to moment."""

    def __init__(self, world: World, seed: int) -> None:
        self.driver = Driver(world, self._reach, seed)
        self.error: BaseException | None = None
        self.ended = False
        self.moment = ""
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._killed = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._thread.start()

    def move(self) -> bool:
        """Go to the next moment; False at the end of the driver's life."""
        if not self.ended:
            self._go.release()
            self._stopped.acquire()
        return not self.ended

    def kill(self) -> None:
        """The end of its process, at the moment it is in."""
        self._killed = True
        while self.move():
            pass
        self._thread.join()

    def live(self) -> None:
        """On to the end."""
        while self.move():
            pass
        self._thread.join()

    @property
    def fenced(self) -> bool:
        """Whether it ended because another holds the pipeline."""
        return isinstance(self.error, FrescoError) and self.error.code == "SERVICE_FENCED"

    def _live(self) -> None:
        self._go.acquire()
        try:
            self.driver.run()
        except BaseException as error:
            self.error = error
        self.ended = True
        self._stopped.release()

    def _reach(self, moment: str) -> None:
        self.moment = moment
        self._stopped.release()
        self._go.acquire()
        if self._killed:
            raise Crash(moment)
