"""What plain per-view streaming reads would show: the bank's total, summed event by event.

Each table's topic is read as an ordinary streaming job reads it: events count when they arrive, and
nothing puts a transaction's events, or the two databases' topics, back together. The sum is exact at
every moment; it just belongs to no state the bank was ever in.
"""

from __future__ import annotations

import json
import threading
from decimal import Decimal

from kafka import KafkaConsumer, TopicPartition

from streaming.demo.embedded.parts import DATABASES

_POLL_MS = 100


class NaiveSum:
    """Follows the entry topics from their beginning until `stop`.

    Attributes:
        total: the sum of all amounts in the events read so far.
    """

    def __init__(self, bootstrap: str) -> None:
        self.total = Decimal(0)
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="naive-sum", daemon=True)

    def start(self) -> NaiveSum:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _follow(self) -> None:
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)
        try:
            partitions = [TopicPartition(f"{name}.public.entry", 0) for name in DATABASES]
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            while not self._stopping.is_set():
                for records in consumer.poll(timeout_ms=_POLL_MS).values():
                    for record in records:
                        self._take(record.value)
        finally:
            consumer.close()

    def _take(self, value: bytes | None) -> None:
        if value is None:
            return
        event = json.loads(value)
        before, after = event.get("before"), event.get("after")
        self.total += Decimal(after["amount"]) if after else 0
        self.total -= Decimal(before["amount"]) if before else 0
