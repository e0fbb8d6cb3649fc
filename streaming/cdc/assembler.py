"""Source transactions put back together over Kafka topics (DESIGN 6).

A transaction is complete when its END is there and as many events of every captured collection as END
counts; END may come long before or after them, because topics have no order among themselves. The
source's order is the order of its END records, so only the longest prefix of complete transactions
goes on. The commit position in an END's id only grows, so an END at or below the last one seen is a
repeat. Everything is columns: a transaction's key becomes a small integer, and counting is `bincount`.
Only transactions in which something repeats take the slow path (`repeats`).

`add` looks and changes nothing; `take` says which transactions have been numbered and is the only
place where state changes, so an error in between leaves the assembler as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation, CapturedSource
from streaming.captured.source_origin import went_back
from streaming.captured.source_topics import several
from streaming.cdc.completeness import SourceStep, judge
from streaming.cdc.held_rows import HeldFiles, HeldRows
from streaming.cdc.records import BadRecord, Decoded
from streaming.cdc.row_query import row_schema
from streaming.cdc.transaction_log import LogState, each_event, gone_back, log_schema, read_log

TRANSACTIONS = pa.schema(
    [
        pa.field("number", pa.int64()),
        pa.field("source", pa.string()),
        pa.field("transaction", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("committed_ms", pa.int64()),
    ]
)
"""The map between numbers and source transactions."""

LOOKED_AT = ("partition", "offset", "transaction", "total_order")
"""What tying a row to its END, counting, and finding repeats and passes look at."""


@dataclass(frozen=True)
class Waiting:
    """The assembler's state: rows held per relation, and each source's log."""

    held: Mapping[str, HeldRows]
    sources: Mapping[str, LogState]


@dataclass(frozen=True)
class NumberedRows:
    """Rows of the numbered transactions.

    Attributes:
        rows: per relation, the rows as decoded with a first column `number`.
        transactions: number, source, transaction, position, committed_ms; by (number, source).
        tainted: numbers of transactions that lack undecodable records, and the relations.
    """

    rows: dict[str, pa.Table]
    transactions: pa.Table
    tainted: dict[int, tuple[str, ...]]


class Assembler:
    """Holds what is not complete or not numbered yet, over all sources.

    Attributes:
        state: everything it knows; may be put back after an error.
    """

    def __init__(
        self,
        relations: Sequence[CapturedRelation],
        sources: Mapping[str, CapturedSource],
        files: HeldFiles | None = None,
    ) -> None:
        self._sources = sources
        self._of = {name: [r for r in relations if r.source == name] for name in sources}
        self.state = Waiting(
            {r.relation.name: HeldRows(row_schema(r), LOOKED_AT, files) for r in relations},
            {name: LogState(HeldRows(log_schema(self._of[name]), None, files)) for name in sources},
        )

    @property
    def waiting(self) -> dict[str, int]:
        """Rows that wait, per relation."""
        return {name: held.rows for name, held in self.state.held.items() if held.rows}

    @property
    def unnumbered(self) -> dict[str, int]:
        """Source -> commit position of its first transaction that has ended and has no number."""
        logs = {name: state.log for name, state in self.state.sources.items() if state.log.rows}
        return {name: pc.min(log.table["position"]).as_py() for name, log in logs.items()}

    @property
    def incomplete(self) -> dict[str, str]:
        """Source -> its first transaction whose END has come, and whose rows have not all."""
        found = {}
        for source, state in self.state.sources.items():
            log = state.log.table
            lacking = log.filter(pc.greater(log["ordinal"], state.complete))
            if lacking.num_rows:
                found[source] = str(lacking["transaction"][0].as_py())
        return found

    def add(self, decoded: Decoded) -> dict[str, SourceStep]:
        """Tie a decoded batch (without snapshot rows) to what waits; changes nothing.

        Raises:
            FrescoError: KAFKA_PARTITIONS, a transaction topic that got more of them;
                SOURCE_POSITIONS_BACK, a log that goes on below where it was.
        """
        return {source: self._add(source, decoded) for source in self._sources}

    # Looking --------------------------------------------------------------------------------------

    def _add(self, source: str, decoded: Decoded) -> SourceStep:
        relations = self._of[source]
        names = [r.relation.name for r in relations]
        state = self.state.sources[source]
        held = {
            name: self.state.held[name].plus(decoded.rows[name])
            if name in decoded.rows
            else self.state.held[name]
            for name in names
        }
        bad = [(b.relation, b.transaction) for b in decoded.bad if _counts(b, source, names)]
        state = replace(
            state,
            bad=(*state.bad, *bad),  # type: ignore[arg-type]
            version=decoded.versions.get(source) or state.version,
        )
        if self._sources[source].transactions == "per-event":
            state = each_event(state, relations, decoded.rows)
        elif source in decoded.transactions:
            told = decoded.transactions[source]
            if (last := pc.max(told["partition"]).as_py()) is not None and last > 0:
                raise several(self._sources[source].transaction_topic, last + 1).error
            if (position := gone_back(state, told)) is not None:
                raise went_back(source, position, state.last_position)
            state = read_log(state, relations, told)
        log = state.log.table
        if not log.num_rows and not state.dead:
            entry = {name: np.full(held[name].rows, -1) for name in names}
            return SourceStep(state, log, held, entry, (1, 0))
        held, entry = self._tie(state, log, held)
        if not log.num_rows:
            return SourceStep(state, log, held, entry, (1, 0))
        return judge(state, log, held, entry)

    def _tie(
        self, state: LogState, log: pa.Table, held: dict[str, HeldRows]
    ) -> tuple[dict[str, HeldRows], dict[str, np.ndarray]]:
        """For each row the index of its END in the log; rows of dead transactions are dropped."""
        tables = {name: h.table for name, h in held.items()}
        columns = [log["transaction"], pa.chunked_array([pa.array(state.dead, pa.string())])]
        columns += [table["transaction"] for table in tables.values()]
        joined = pa.chunked_array([chunk for c in columns for chunk in c.chunks], pa.string())
        codes = pc.dictionary_encode(joined.combine_chunks())
        if isinstance(codes, pa.ChunkedArray):
            codes = codes.unify_dictionaries().combine_chunks()
        indices = codes.indices.to_numpy(zero_copy_only=False)
        lookup = np.full(len(codes.dictionary), -1, np.int64)
        dead = indices[log.num_rows : log.num_rows + len(state.dead)]
        lookup[dead] = -2
        lookup[indices[: log.num_rows]] = np.arange(log.num_rows)
        entry, start = {}, log.num_rows + len(state.dead)
        for name, table in tables.items():
            found = lookup[indices[start : start + table.num_rows]]
            start += table.num_rows
            alive = found != -2
            held[name] = held[name].keep(alive)
            entry[name] = found[alive]
        return held, entry

    # Taking ---------------------------------------------------------------------------------------

    def take(
        self, works: Mapping[str, SourceStep], numbers: Mapping[str, np.ndarray]
    ) -> NumberedRows:
        """Hand out the rows of numbered transactions and forget them.

        Args:
            works: what `add` returned.
            numbers: per source, the number of each entry of its log, -1 where it has none yet.
        """
        held, sources = dict(self.state.held), dict(self.state.sources)
        rows: dict[str, pa.Table] = {}
        transactions: list[pa.Table] = []
        tainted: dict[int, tuple[str, ...]] = {}
        for source, work in works.items():
            given = numbers[source]
            for name, waiting in work.rows.items():
                held[name], taken = _split(waiting, work.entry[name], given)
                if taken.num_rows:
                    rows[name] = taken
            sources[source] = work.state
            done = given >= 0
            if done.any():
                transactions.append(_transactions(source, work.log, given, done))
                left = _tainted(work, given, tainted)
                log = work.state.log.keep(~done)
                sources[source] = replace(work.state, log=log, tainted=left)
        table = pa.concat_tables([TRANSACTIONS.empty_table(), *transactions])
        if len(transactions) > 1:
            table = table.take(pa.array(np.argsort(table["number"].to_numpy(), kind="stable")))
        self.state = Waiting(held, sources)
        return NumberedRows(rows, table, tainted)

    # Snapshots ------------------------------------------------------------------------------------

    @property
    def held_files(self) -> Iterator[str]:
        """Those that its rows are in."""
        logs = (state.log for state in self.state.sources.values())
        for held in (*self.state.held.values(), *logs):
            yield from held.paths

    def snapshot(self) -> dict[str, Any]:
        """All state as JSON; large chunks are staged, each once."""
        held, held_notes, sources, notes = {}, {}, {}, {}
        for name, rows in self.state.held.items():
            held[name], held_notes[name] = rows.snapshot()
        for source, state in self.state.sources.items():
            log, log_notes = state.log.snapshot()
            sources[source] = replace(state, log=log)
            notes[source] = {
                "log": log_notes,
                "next_ordinal": state.next_ordinal,
                "complete": state.complete,
                "last_position": state.last_position,
                "begun": dict(state.begun),
                "dead": list(state.dead),
                "bad": [list(pair) for pair in state.bad],
                "tainted": [[ordinal, list(names)] for ordinal, names in state.tainted.items()],
                "version": state.version,
                "newest_ms": state.newest_ms,
            }
        self.state = Waiting(held, sources)
        return {"held": {n: note for n, note in held_notes.items() if note}, "sources": notes}

    def restore(self, data: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described."""
        held = {
            name: waiting.empty().restore(data["held"].get(name, []))
            for name, waiting in self.state.held.items()
        }
        sources = {}
        for source, before in self.state.sources.items():
            log = before.log.empty()
            values = dict(data["sources"].get(source, {}))
            if values:
                values["log"] = log.restore(values["log"])
                values["dead"] = tuple(values["dead"])
                values["bad"] = tuple((relation, key) for relation, key in values["bad"])
                values["tainted"] = {ordinal: tuple(names) for ordinal, names in values["tainted"]}
            sources[source] = LogState(**values) if values else LogState(log)
        self.state = Waiting(held, sources)


def _split(waiting: HeldRows, entry: np.ndarray, given: np.ndarray) -> tuple[HeldRows, pa.Table]:
    """What still waits, and the rows whose transaction has a number, with it in front."""
    number = np.full(len(entry), -1)
    tied = entry >= 0
    number[tied] = given[entry[tied]]
    taken = number >= 0
    rows = waiting.read(taken)
    return waiting.keep(~taken), rows.add_column(0, "number", pa.array(number[taken]))


def _tainted(
    work: SourceStep, given: np.ndarray, tainted: dict[int, tuple[str, ...]]
) -> dict[int, tuple[str, ...]]:
    """Put the tainted transactions that have a number into `tainted`; returns the others."""
    left = {}
    if work.state.tainted:
        numbers = dict(zip(work.log["ordinal"].to_pylist(), given.tolist(), strict=True))
        for ordinal, relations in work.state.tainted.items():
            number = numbers.get(ordinal, -1)
            if number < 0:
                left[ordinal] = relations
            else:
                tainted[number] = tuple(sorted({*tainted.get(number, ()), *relations}))
    return left


def _counts(bad: BadRecord, source: str, names: list[str]) -> bool:
    return bad.source == source and bad.relation in names


def _transactions(source: str, log: pa.Table, given: np.ndarray, done: np.ndarray) -> pa.Table:
    chosen = log.select(["transaction", "position", "committed_ms"]).filter(pa.array(done))
    sources = pa.repeat(pa.scalar(source, pa.string()), chosen.num_rows)
    table = pa.table([pa.array(given[done]), sources, *chosen.columns], schema=TRANSACTIONS)
    return table.sort_by("number")
