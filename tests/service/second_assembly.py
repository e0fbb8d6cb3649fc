"""A second, independent assembly of `_updates` from the raw topics, event by event.

It shares no code with `streaming.cdc` and is made to be read, not to be fast: JSON events into
transactions, transactions judged by the counts of their END records, repeats dropped by passes.
What it cannot know, the order between databases, it does not ask: the number map says which
transactions became which number, and then each number's rows, each source's order, and each global
transaction's togetherness must be what the topics say.

    found = assemble(read_topics(bootstrap, topics), captured)
    assert found.compare(updates, transactions) == []
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pyarrow as pa
from captured_rows import Captured, Row, row_of
from kafka import KafkaConsumer, TopicPartition

GLOBAL = "fresco_global"
Signed = Counter[Row]
Key = tuple[str, str]
"""(source, transaction id without the position)."""


@dataclass
class Transaction:
    """What the topics hold of one transaction."""

    key: Key
    passes: dict[str, list[Signed]] = field(default_factory=lambda: defaultdict(list))
    """Topic -> its events pass by pass; a connector that starts again begins a new pass."""
    last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Topic -> position and total_order of its last event."""
    counts: dict[str, int] | None = None
    position: int = 0

    def event(self, topic: str, lsn: int, order: int, event: Row) -> None:
        """One data event, in the order of its topic.

        A position that goes back, or a total_order that does not go on, begins a repeat.
        """
        before = self.last.get(topic)
        if before is None or lsn < before[0] or order <= before[1]:
            self.passes[topic].append(Counter())
        self.last[topic] = (lsn, order)
        self.passes[topic][-1][lsn, *event] += 1

    def events(self, topic: str) -> Signed:
        """Each event as often as the pass that has it most often."""
        result: Signed = Counter()
        for one in self.passes.get(topic, ()):
            result |= one
        return result


@dataclass
class Assembly:
    """All transactions that are whole, and the snapshots.

    Attributes:
        rows: transaction -> relation -> signed rows, empty relations left out.
        order: source -> its whole transactions in commit order.
        snapshot: relation -> rows of the initial snapshot.
        globals: global id -> its parts.
        truncated: transaction -> relations that it truncates.
        incomplete: transactions whose END has not come true.
    """

    captured: dict[str, Captured]
    rows: dict[Key, dict[str, Signed]]
    order: dict[str, list[Key]]
    snapshot: dict[str, Signed]
    globals: dict[str, list[Key]]
    truncated: dict[Key, set[str]]
    incomplete: list[Key]

    def compare(
        self,
        updates: Mapping[str, pa.Table],
        transactions: pa.Table,
        released: Iterable[str] = (),
        truncates: Iterable[tuple[int, str]] | None = None,
    ) -> list[str]:
        """What in `_updates` is not what the topics say; empty when nothing is.

        Args:
            updates: relation -> (_number, _multiplicity, columns...), as `Warehouse.updates`.
            transactions: the number map: number, source, transaction, position, committed_ms.
            released: global transactions that were released as local.
            truncates: (number, relation) of the recorded truncations; None to leave them out.
        """
        numbers: dict[Key, int] = {}
        wrong: list[str] = []
        for entry in transactions.to_pylist():
            key = (entry["source"], str(entry["transaction"]).partition(":")[0])
            if key not in self.rows:
                wrong.append(f"{key} is not in the topics, or not whole")
            elif key in numbers:
                wrong.append(f"{key} has numbers {numbers[key]} and {entry['number']}")
            else:
                numbers[key] = entry["number"]
        crossing = self._crossing()
        for source, keys in self.order.items():
            wrong += self._order(source, keys, numbers, crossing)
        for name, parts in self.globals.items():
            given = {numbers.get(part) for part in parts}
            if len(given) > 1 and name not in released:
                wrong.append(f"global transaction {name} has numbers {given}")
        if truncates is not None:
            told = {(numbers.get(key), r) for key, names in self.truncated.items() for r in names}
            if told != set(truncates):
                wrong.append(f"truncations {told} are recorded as {set(truncates)}")
        for relation in self.captured:
            wrong += self._rows(relation, updates[relation], numbers)
        return wrong

    def _crossing(self) -> bool:
        """Two global transactions committed in opposite orders at two sources."""
        at = {key: place for keys in self.order.values() for place, key in enumerate(keys)}
        places: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        for parts in self.globals.values():
            for one, other in combinations(sorted(parts), 2):
                places[one[0], other[0]].append((at[one], at[other]))
        return any(
            [later for _, later in sorted(pairs)] != sorted(later for _, later in pairs)
            for pairs in places.values()
        )

    def _order(
        self, source: str, keys: list[Key], numbers: Mapping[Key, int], crossing: bool
    ) -> list[str]:
        """Numbers follow the log; where globals cross, transactions that commute may change places.

        Those that touch a row in common do not commute (DESIGN 6).
        """
        wrong = []
        latest: dict[Any, tuple[int, Key]] = {}
        for key in keys:
            number = numbers.get(key)
            if number is None:
                if any(self.rows[key].values()):
                    wrong.append(f"{key} has no number")
                continue
            for touched in self._touched(key) if crossing else ("everything",):
                before, other = latest.get(touched, (-1, key))
                if number < before:
                    wrong.append(f"{source}: {key} is {number}, {other} before it is {before}")
                latest[touched] = max((before, other), (number, key))
        return wrong

    def _touched(self, key: Key) -> set[Any]:
        """The rows, by their keys, that a transaction touches."""
        found: set[Any] = set()
        for relation, rows in self.rows[key].items():
            table = self.captured[relation]
            at = [place for place, name in enumerate(table.columns) if name in table.key]
            found |= {(relation, tuple(row[i] for i in at) if at else row) for row in rows}
        return found

    def _rows(self, relation: str, table: pa.Table, numbers: Mapping[Key, int]) -> list[str]:
        expected: dict[int, Signed] = defaultdict(Counter)
        _add(expected[0], self.snapshot.get(relation, Counter()))
        for key, number in numbers.items():
            _add(expected[number], self.rows[key].get(relation, Counter()))
        found: dict[int, Signed] = defaultdict(Counter)
        values = [column.to_pylist() for column in table.columns]
        for number, multiplicity, *row in zip(*values, strict=True):
            found[number][tuple(row)] += multiplicity
        wrong = []
        for number in sorted(expected.keys() | found.keys()):
            difference = Counter(expected[number])
            difference.subtract(found[number])
            left = {row: n for row, n in difference.items() if n}
            if left:
                wrong.append(f"{relation} at {number}: expected minus found is {left}")
        return wrong


def read_topics(bootstrap: str, topics: Iterable[str]) -> list[dict[str, Any]]:
    """All committed records of single-partition topics up to their ends as of now."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    partitions = [TopicPartition(topic, 0) for topic in topics]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    consumer.seek_to_beginning(*partitions)
    records = []
    while any(consumer.position(one) < ends[one] for one in partitions):
        for batch in consumer.poll(timeout_ms=200, max_records=20_000).values():
            records += [
                {"topic": m.topic, "offset": m.offset, "value": m.value}
                for m in batch
                if m.offset < ends[TopicPartition(m.topic, 0)]
            ]
    consumer.close()
    return records


def assemble(records: Iterable[Mapping[str, Any]], captured: Iterable[Captured]) -> Assembly:
    """Puts the transactions together.

    Args:
        records: topic, offset and value (JSON text or bytes, None for a tombstone); each topic in
            the order of its offsets, topics in any order among themselves.
    """
    tables = {one.topic: one for one in captured}
    prefixes = {one.topic.partition(".")[0]: one.source for one in tables.values()}
    transactions: dict[Key, Transaction] = {}
    snapshot: dict[str, Signed] = defaultdict(Counter)

    def transaction(source: str, identity: str) -> Transaction:
        key = (source, identity.partition(":")[0])
        return transactions.setdefault(key, Transaction(key))

    for record in records:
        if record["value"] is None:
            continue
        value = json.loads(record["value"])
        value = value.get("payload", value) if "schema" in value else value
        prefix, _, rest = record["topic"].partition(".")
        if rest == "transaction" and value["status"] == "END":
            one = transaction(prefixes[prefix], value["id"])
            counts = value.get("data_collections") or []
            one.counts = {each["data_collection"]: each["event_count"] for each in counts}
            one.position = int(value["id"].partition(":")[2])
        elif record["topic"] in tables:
            table = tables[record["topic"]]
            if value["op"] == "r":
                snapshot[table.relation][row_of(table, value["after"])] += 1
            else:
                one = transaction(table.source, value["transaction"]["id"])
                before, after = (row_of(table, value[side]) for side in ("before", "after"))
                lsn, order = int(value["source"]["lsn"]), int(value["transaction"]["total_order"])
                one.event(record["topic"], lsn, order, (value["op"], before, after))
    return _finish(list(tables.values()), transactions, snapshot)


def _finish(
    tables: list[Captured], transactions: Mapping[Key, Transaction], snapshot: dict[str, Signed]
) -> Assembly:
    result = Assembly(
        {one.relation: one for one in tables}, {}, defaultdict(list), snapshot,
        defaultdict(list), defaultdict(set), [],
    )  # fmt: skip
    for one in sorted(transactions.values(), key=lambda each: (each.key[0], each.position)):
        own = [table for table in tables if table.source == one.key[0]]
        whole = one.counts is not None and all(
            one.events(table.topic).total() == one.counts.get(table.collection, 0) for table in own
        )
        if not whole:
            result.incomplete.append(one.key)
            continue
        rows = {}
        for table in own:
            signed: Signed = Counter()
            for (_, op, before, after), n in one.events(table.topic).items():
                if op == "t":
                    result.truncated[one.key].add(table.relation)
                if op in ("u", "d"):
                    signed[before] -= n
                if op in ("c", "u"):
                    signed[after] += n
            rows[table.relation] = Counter({row: n for row, n in signed.items() if n})
        result.rows[one.key] = {name: each for name, each in rows.items() if each}
        result.order[one.key[0]].append(one.key)
    for table in (table for table in tables if table.relation.endswith(f".{GLOBAL}")):
        at = list(table.columns).index("id")
        for key, rows in result.rows.items():
            for row in (row for row, n in rows.get(table.relation, Counter()).items() if n > 0):
                result.globals[row[at]].append(key)
    return result


def _add(total: Signed, more: Signed) -> None:
    for row, n in more.items():
        total[row] += n
