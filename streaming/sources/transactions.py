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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.sources.debezium import BadRecord, Decoded
from streaming.sources.held import Held, Load, Stage
from streaming.sources.repeats import first_occurrences, is_older, last_pass_complete
from streaming.sources.rowquery import row_schema
from streaming.sources.schema import CapturedRelation, CapturedSource

LOG = pa.schema(
    [
        pa.field("ordinal", pa.int64()),
        pa.field("transaction", pa.string()),
        pa.field("position", pa.int64()),
        pa.field("committed_ms", pa.int64()),
        pa.field("begins", pa.int64()),
    ]
)
"""An END: `ordinal` counts a source's transactions from 1; then e0.. events counted per relation."""
RESTARTING = "3.6.1"
"""Connectors before this version count from 1 again after a restart inside a transaction, and END
counts the last pass only (FACTS)."""


@dataclass(frozen=True)
class SourceState:
    """What the assembler remembers of one source.

    Attributes:
        log: ENDs not numbered yet, in order.
        next_ordinal: of the next END.
        complete: the last ordinal of the complete prefix.
        last_position: commit position of the newest END seen.
        begun: BEGINs seen of transactions whose END has not come.
        dead: keys of transactions whose END was a repeat; their rows are dropped.
        bad: undecodable records not yet accounted for, as (relation, transaction or None).
        tainted: complete transactions not numbered yet that lack undecodable records.
        version: the connector's, as last seen; "" while no event has been seen.
    """

    log: Held
    next_ordinal: int = 1
    complete: int = 0
    last_position: int = -1
    begun: Mapping[str, int] = field(default_factory=dict)
    dead: tuple[str, ...] = ()
    bad: tuple[tuple[str, str | None], ...] = ()
    tainted: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    version: str = ""


@dataclass(frozen=True)
class Work:
    """One source's held and new data during a step, with every row tied to its END.

    Attributes:
        state: the source's state after the batch.
        log: its ENDs as one table.
        rows: per relation, held and new rows.
        entry: per relation, the index into `log` of each row's END, -1 without one.
        fresh: (first, last) ordinals that became complete in this step, first > last when none.
    """

    state: SourceState
    log: pa.Table
    rows: dict[str, Held]
    entry: dict[str, np.ndarray]
    fresh: tuple[int, int]


@dataclass(frozen=True)
class Taken:
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
    """Holds what is not complete or not numbered yet, over all sources."""

    def __init__(
        self, relations: Sequence[CapturedRelation], sources: Mapping[str, CapturedSource]
    ) -> None:
        self._captured = {r.relation.name: r for r in relations}
        self._of = {
            name: [r for r in relations if r.source == name and r.relation.name] for name in sources
        }
        self._sources = sources
        self._schemas = {r.relation.name: row_schema(r) for r in relations}
        self._held = {name: Held(schema) for name, schema in self._schemas.items()}
        self._states = {name: SourceState(Held(self._log_schema(name))) for name in sources}

    def _log_schema(self, source: str) -> pa.Schema:
        counts = [pa.field(f"e{i}", pa.int64()) for i in range(len(self._of[source]))]
        return pa.schema([*LOG, *counts])

    @property
    def waiting(self) -> dict[str, int]:
        """Rows that wait, per relation."""
        return {name: held.rows for name, held in self._held.items() if held.rows}

    def add(self, decoded: Decoded) -> dict[str, Work]:
        """Tie a decoded batch (without snapshot rows) to what waits; changes nothing."""
        return {source: self._add(source, decoded) for source in self._sources}

    # Looking --------------------------------------------------------------------------------------

    def _add(self, source: str, decoded: Decoded) -> Work:
        relations = self._of[source]
        names = [r.relation.name for r in relations]
        state = self._states[source]
        held = {
            name: self._held[name].plus(decoded.rows[name])
            if name in decoded.rows
            else self._held[name]
            for name in names
        }
        bad = [(b.relation, b.transaction) for b in decoded.bad if _counts(b, source, names)]
        state = replace(
            state,
            bad=(*state.bad, *bad),  # type: ignore[arg-type]
            version=decoded.versions.get(source) or state.version,
        )
        if self._sources[source].transactions == "per-event":
            state = self._each_event(source, state, decoded)
        elif source in decoded.transactions:
            state = self._read_log(source, state, decoded.transactions[source])
        log = state.log.table
        if not log.num_rows and not state.dead:
            entry = {name: np.full(held[name].rows, -1) for name in names}
            return Work(state, log, held, entry, (1, 0))
        held, entry = self._tie(state, log, held)
        if not log.num_rows:
            return Work(state, log, held, entry, (1, 0))
        return self._judge(source, state, log, held, entry)

    def _read_log(self, source: str, state: SourceState, table: pa.Table) -> SourceState:
        ends = pc.equal(table["status"], "END").to_numpy()
        positions = table["position"].to_numpy()[ends]
        before = np.concatenate(([state.last_position], positions))
        new = positions > np.maximum.accumulate(before)[:-1]
        keys = table["transaction"].combine_chunks()
        fresh = table.filter(pa.array(ends)).filter(pa.array(new))
        begins, begun = _begins(state, keys, ends, new)
        columns = [
            pa.array(np.arange(state.next_ordinal, state.next_ordinal + fresh.num_rows)),
            fresh["transaction"],
            fresh["position"],
            fresh["committed_ms"],
            pa.array(begins),
            *(pa.array(c) for c in self._counts(source, fresh["counts"].combine_chunks())),
        ]
        dead = state.dead
        if not new.all():
            repeated = keys.filter(pa.array(ends)).filter(pa.array(~new)).to_pylist()
            waiting = set(state.log.table["transaction"].to_pylist())
            waiting |= set(fresh["transaction"].to_pylist())
            dead = (*dead, *(key for key in repeated if key not in waiting))[-10_000:]
        return replace(
            state,
            log=state.log.plus(pa.table(columns, schema=self._log_schema(source))),
            next_ordinal=state.next_ordinal + fresh.num_rows,
            last_position=int(max(before.max(), state.last_position)),
            begun=begun,
            dead=dead,
        )

    def _counts(self, source: str, counts: pa.Array) -> list[np.ndarray]:
        """Events that each END counts per captured relation; other collections are left out."""
        length = len(counts)
        result = [np.zeros(length, np.int64) for _ in self._of[source]]
        if isinstance(counts, pa.ChunkedArray):
            counts = pa.concat_arrays(counts.chunks)
        flat = counts.flatten()
        if not len(flat):
            return result
        parents = pc.list_parent_indices(counts).to_numpy(zero_copy_only=False)
        events = flat.field("event_count").to_numpy(zero_copy_only=False)
        encoded = flat.field("data_collection").dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        known = {r.counted_as: i for i, r in enumerate(self._of[source])}
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            if name in known:
                chosen = codes == code
                np.add.at(result[known[name]], parents[chosen], events[chosen])
        return result

    def _each_event(self, source: str, state: SourceState, decoded: Decoded) -> SourceState:
        """Every event is a transaction of its own: an END is made up for each."""
        parts = []
        for i, relation in enumerate(self._of[source]):
            rows = decoded.rows.get(relation.relation.name)
            if rows is not None and rows.num_rows:
                ones = np.ones(rows.num_rows, np.int64)
                counts = [ones if j == i else ones * 0 for j in range(len(self._of[source]))]
                empty = pa.nulls(rows.num_rows, pa.int64())
                columns = [empty, rows["transaction"], rows["position"], empty, pa.array(ones)]
                arrays = [*columns, *(pa.array(c) for c in counts)]
                parts.append(pa.table(arrays, schema=self._log_schema(source)))
        if not parts:
            return state
        table = pa.concat_tables(parts)
        ordinals = np.arange(state.next_ordinal, state.next_ordinal + table.num_rows)
        order = pa.array(np.argsort(table["position"].to_numpy(), kind="stable"))
        table = table.take(order).set_column(0, "ordinal", pa.array(ordinals))
        table = table.cast(self._log_schema(source))
        return replace(
            state, log=state.log.plus(table), next_ordinal=state.next_ordinal + table.num_rows
        )

    def _tie(
        self, state: SourceState, log: pa.Table, held: dict[str, Held]
    ) -> tuple[dict[str, Held], dict[str, np.ndarray]]:
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

    def _judge(
        self,
        source: str,
        state: SourceState,
        log: pa.Table,
        held: dict[str, Held],
        entry: dict[str, np.ndarray],
    ) -> Work:
        """Find the complete prefix; repeats inside a transaction are dropped on the way."""
        ordinals = log["ordinal"].to_numpy()
        names = list(held)
        expected = np.stack([log[f"e{i}"].to_numpy() for i in range(len(names))], axis=1)
        suspects = self._suspects(log, held, entry, expected)
        done = again = np.zeros(log.num_rows, bool)
        if suspects.any():
            if not state.version or is_older(state.version, RESTARTING):
                begins = log["begins"].to_numpy()
                again = begins > 1
                done = last_pass_complete(held, entry, expected, begins, again)
            dropped = first_occurrences(held, entry, suspects)
            for name, mask in dropped.items():
                held[name], entry[name] = held[name].keep(mask), entry[name][mask]
        arrived = _arrived(names, entry, log.num_rows)
        short = np.where(again[:, None], 0, np.maximum(expected - arrived, 0))
        whole = ~short.any(axis=1) & (done | ~again)
        whole[ordinals <= state.complete] = True
        state = _forgive(state, log, names, whole, short)
        last = ordinals[whole.argmin() - 1] if not whole.all() else ordinals[-1]
        if not whole.all() and whole.argmin() == 0:
            last = state.complete
        fresh = (state.complete + 1, int(last))
        return Work(replace(state, complete=int(last)), log, held, entry, fresh)

    def _suspects(
        self,
        log: pa.Table,
        held: dict[str, Held],
        entry: dict[str, np.ndarray],
        expected: np.ndarray,
    ) -> np.ndarray:
        """ENDs among whose rows something repeats: too many, an order used twice, BEGIN twice."""
        suspects = log["begins"].to_numpy() > 1
        suspects |= (_arrived(list(held), entry, log.num_rows) > expected).any(axis=1)
        parts = []
        for name, h in held.items():
            orders = pc.fill_null(h.table["total_order"], 0).to_numpy()
            tied = entry[name] >= 0
            parts.append((entry[name][tied] << 32) | orders[tied])
        keys = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
        twice = keys[1:][keys[1:] == keys[:-1]]
        if self._has_orders(log):
            suspects[np.unique(twice >> 32)] = True
        return suspects

    def _has_orders(self, log: pa.Table) -> bool:
        return log["committed_ms"].null_count < log.num_rows

    # Taking ---------------------------------------------------------------------------------------

    def take(self, works: dict[str, Work], numbers: Mapping[str, np.ndarray]) -> Taken:
        """Hand out the rows of numbered transactions and forget them.

        Args:
            works: what `add` returned.
            numbers: per source, the number of each entry of its log, -1 where it has none yet.
        """
        rows: dict[str, pa.Table] = {}
        transactions: list[pa.Table] = []
        tainted: dict[int, tuple[str, ...]] = {}
        for source, work in works.items():
            given = numbers.get(source)
            if given is None:
                given = np.full(work.log.num_rows, -1)
            for name, held in work.rows.items():
                entry = work.entry[name]
                number = given[entry] if len(given) else np.full(len(entry), -1)
                number = np.where(entry < 0, -1, number)
                taken = number >= 0
                if taken.any():
                    chosen = held.table if taken.all() else held.table.filter(pa.array(taken))
                    rows[name] = chosen.add_column(0, "number", pa.array(number[taken]))
                self._held[name] = held.keep(~taken)
            state = work.state
            done = given >= 0
            if done.any():
                transactions.append(_transactions(source, work.log, given, done))
                by_ordinal = dict(
                    zip(work.log["ordinal"].to_pylist(), given.tolist(), strict=True)
                ) if state.tainted else {}
                left = {}
                for ordinal, relations in state.tainted.items():
                    number_ = by_ordinal.get(ordinal, -1)
                    if number_ < 0:
                        left[ordinal] = relations
                    else:
                        both = {*tainted.get(number_, ()), *relations}
                        tainted[number_] = tuple(sorted(both))
                state = replace(state, log=state.log.keep(~done), tainted=left)
            self._states[source] = state
        table = pa.concat_tables([TRANSACTIONS.empty_table(), *transactions])
        order = np.lexsort((table["source"].to_numpy(zero_copy_only=False), table["number"]))
        if len(transactions) > 1:
            table = table.take(pa.array(order))
        return Taken(rows, table, tainted)

    # Snapshots ------------------------------------------------------------------------------------

    def snapshot(self, stage: Stage | None = None) -> dict[str, Any]:
        """All state as JSON; large chunks are staged through `stage`, each once."""
        held, states = {}, {}
        for name, rows in self._held.items():
            self._held[name], held[name] = rows.snapshot(stage)
        for source, state in self._states.items():
            log, notes = state.log.snapshot(stage)
            self._states[source] = replace(state, log=log)
            states[source] = {
                "log": notes,
                "next_ordinal": state.next_ordinal,
                "complete": state.complete,
                "last_position": state.last_position,
                "begun": dict(state.begun),
                "dead": list(state.dead),
                "bad": [list(pair) for pair in state.bad],
                "tainted": [[ordinal, list(names)] for ordinal, names in state.tainted.items()],
                "version": state.version,
            }
        return {"held": {n: h for n, h in held.items() if h}, "sources": states}

    def restore(self, data: Mapping[str, Any], load: Load) -> None:
        """Back to the state that `snapshot` described."""
        for name, schema in self._schemas.items():
            self._held[name] = Held(schema).restore(data["held"].get(name, []), load)
        for source in self._sources:
            schema = self._log_schema(source)
            values = dict(data["sources"].get(source, {}))
            if not values:
                self._states[source] = SourceState(Held(schema))
                continue
            values["log"] = Held(schema).restore(values["log"], load)
            values["dead"] = tuple(values["dead"])
            values["bad"] = tuple((relation, key) for relation, key in values["bad"])
            values["tainted"] = {ordinal: tuple(names) for ordinal, names in values["tainted"]}
            self._states[source] = SourceState(**values)


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


def _counts(bad: BadRecord, source: str, names: list[str]) -> bool:
    return bad.source == source and bad.relation in names


def _begins(
    state: SourceState, keys: pa.Array, ends: np.ndarray, new: np.ndarray
) -> tuple[np.ndarray, dict[str, int]]:
    """BEGINs of each new END, and those of transactions that have not ended."""
    encoded = keys.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    counts = np.bincount(codes[~ends], minlength=len(encoded.dictionary))
    if state.begun:
        known = pc.index_in(pa.array(list(state.begun), pa.string()), encoded.dictionary)
        for key, place in zip(state.begun, known.to_pylist(), strict=True):
            if place is not None:
                counts[place] += state.begun[key]
    begins = counts[codes[ends][new]]
    counts[codes[ends]] = 0
    places = np.flatnonzero(counts)
    open_ = dict(
        zip(encoded.dictionary.take(pa.array(places)).to_pylist(), counts[places].tolist(), strict=True)
    )
    seen = set(encoded.dictionary.to_pylist()) if state.begun else set()
    return begins, {**{k: n for k, n in state.begun.items() if k not in seen}, **open_}


def _arrived(names: list[str], entry: dict[str, np.ndarray], length: int) -> np.ndarray:
    columns = [np.bincount(entry[n][entry[n] >= 0], minlength=length) for n in names]
    return np.stack(columns, axis=1)


def _forgive(
    state: SourceState, log: pa.Table, names: list[str], whole: np.ndarray, short: np.ndarray
) -> SourceState:
    """Let pass, as tainted, an END that falls short by exactly the undecodable records.

    Rows of a topic lie in commit order, so the undecodable records of a relation belong to the first
    transactions that fall short in it. `whole` is updated in place.
    """
    bad = list(state.bad)
    if not bad:
        return state
    tainted = dict(state.tainted)
    for index in np.flatnonzero(~whole).tolist():
        key = log["transaction"][index].as_py()
        used: list[tuple[str, str | None]] = []
        if not short[index].any():
            break
        for name, missing in zip(names, short[index].tolist(), strict=True):
            mine = [pair for pair in bad if pair == (name, key)]
            unknown = [pair for pair in bad if pair == (name, None)]
            used += (mine + unknown)[:missing]
            if missing > len(mine) + len(unknown):
                return replace(state, bad=tuple(bad), tainted=tainted)
        for pair in used:
            bad.remove(pair)
        tainted[log["ordinal"][index].as_py()] = tuple(sorted({name for name, _ in used}))
        whole[index] = True
    return replace(state, bad=tuple(bad), tainted=tainted)


def _transactions(source: str, log: pa.Table, given: np.ndarray, done: np.ndarray) -> pa.Table:
    chosen = log.select(["transaction", "position", "committed_ms"]).filter(pa.array(done))
    names = pa.array([source]).dictionary_encode()
    sources = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(int(done.sum()), np.int32)), names.dictionary
    ).cast(pa.string())
    return pa.table(
        [pa.array(given[done]), sources, *chosen.columns], schema=TRANSACTIONS
    ).sort_by("number")
