"""A source's log as its transaction topic tells it: BEGIN and END records in commit order (DESIGN 6).

The commit position in an END's id only grows, so an END at or below the last one seen is a repeat. A
producer without transactions has none; there every event is a transaction of its own, and an END is
made up for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation
from streaming.cdc.held_rows import HeldRows

DEAD = 10_000
"""Keys of repeated transactions that are remembered, so that their rows are dropped when they come."""


def log_schema(relations: Sequence[CapturedRelation]) -> pa.Schema:
    """Schema of a source's ENDs; `ordinal` counts its transactions from 1.

    e0, e1, ... are the events counted per captured relation, in the order given.
    """
    names = ["ordinal", "transaction", "position", "committed_ms", "begins"]
    fields = [pa.field(n, pa.string() if n == "transaction" else pa.int64()) for n in names]
    return pa.schema([*fields, *(pa.field(f"e{i}", pa.int64()) for i in range(len(relations)))])


@dataclass(frozen=True)
class LogState:
    """What the assembler remembers of one source.

    Attributes:
        log: ENDs not numbered yet, in order.
        next_ordinal: of the next END.
        complete: the last ordinal of the complete prefix.
        last_position: commit position of the newest END seen, or of the newest event.
        begun: BEGINs seen of transactions whose END has not come.
        dead: keys of transactions whose END was a repeat; their rows are dropped.
        bad: undecodable records not yet accounted for, as (relation, transaction or None).
        tainted: complete transactions not numbered yet that lack undecodable records.
        version: the connector's, as last seen; "" while no event has been seen.
        newest_ms: the latest commit time of an END seen; -1 while none is known.
    """

    log: HeldRows
    next_ordinal: int = 1
    complete: int = 0
    last_position: int = -1
    begun: Mapping[str, int] = field(default_factory=dict)
    dead: tuple[str, ...] = ()
    bad: tuple[tuple[str, str | None], ...] = ()
    tainted: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    version: str = ""
    newest_ms: int = -1


LATER_MS = 1000
"""An END below the last one is no repeat when it was committed so much later than any seen: commit times
may differ a little from the order of positions."""


def gone_back(state: LogState, table: pa.Table) -> int | None:
    """The position of an END that is below the last one and was committed later; None where none is.

    A repeat has the commit time that it had before, so it is no later than what has been seen.
    """
    ends = pc.equal(table["status"], "END").to_numpy()
    positions = table["position"].to_numpy()[ends]
    times = pc.fill_null(table["committed_ms"], -1).to_numpy()[ends]
    highest = np.maximum.accumulate(np.concatenate(([state.last_position], positions)))[:-1]
    newest = np.maximum.accumulate(np.concatenate(([state.newest_ms], times)))[:-1]
    back = (positions <= highest) & (newest >= 0) & (times > newest + LATER_MS)
    return int(positions[back][0]) if back.any() else None


def read_log(state: LogState, relations: Sequence[CapturedRelation], table: pa.Table) -> LogState:
    """The state after a batch of BEGIN and END records (`Decoded.transactions`)."""
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
        *(pa.array(c) for c in _counts(relations, fresh["counts"].combine_chunks())),
    ]
    dead = state.dead
    if not new.all():
        repeated = keys.filter(pa.array(ends)).filter(pa.array(~new)).to_pylist()
        waiting = set(state.log.table["transaction"].to_pylist())
        waiting |= set(fresh["transaction"].to_pylist())
        dead = (*dead, *(key for key in repeated if key not in waiting))[-DEAD:]
    return replace(
        state,
        log=state.log.plus(pa.table(columns, schema=log_schema(relations))),
        next_ordinal=state.next_ordinal + fresh.num_rows,
        last_position=int(before.max()),
        newest_ms=max(
            state.newest_ms, pc.max(table["committed_ms"].filter(pa.array(ends))).as_py() or -1
        ),
        begun=begun,
        dead=dead,
    )


def _counts(relations: Sequence[CapturedRelation], counts: pa.Array) -> list[np.ndarray]:
    """Events that each END counts per captured relation; other collections are left out."""
    result = [np.zeros(len(counts), np.int64) for _ in relations]
    flat = counts.flatten()
    if not len(flat):
        return result
    parents = pc.list_parent_indices(counts).to_numpy(zero_copy_only=False)
    events = flat.field("event_count").to_numpy(zero_copy_only=False)
    encoded = flat.field("data_collection").dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    known = {relation.counted_as: i for i, relation in enumerate(relations)}
    for code, name in enumerate(encoded.dictionary.to_pylist()):
        if name in known:
            chosen = codes == code
            np.add.at(result[known[name]], parents[chosen], events[chosen])
    return result


def _begins(
    state: LogState, keys: pa.Array, ends: np.ndarray, new: np.ndarray
) -> tuple[np.ndarray, dict[str, int]]:
    """BEGINs of each new END, and those of transactions that have not ended."""
    encoded = keys.dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    names = encoded.dictionary
    counts = np.bincount(codes[~ends], minlength=len(names))
    left = dict(state.begun)
    if state.begun:
        places = pc.index_in(pa.array(list(state.begun), pa.string()), names).to_pylist()
        for key, place in zip(state.begun, places, strict=True):
            if place is not None:
                counts[place] += left.pop(key)
    begins = counts[codes[ends][new]]
    counts[codes[ends]] = 0
    open_ = np.flatnonzero(counts)
    begun = zip(names.take(pa.array(open_)).to_pylist(), counts[open_].tolist(), strict=True)
    return begins, {**left, **dict(begun)}


def each_event(
    state: LogState, relations: Sequence[CapturedRelation], rows: Mapping[str, pa.Table]
) -> LogState:
    """The state after a batch of events without transactions: each is one, by position."""
    schema = log_schema(relations)
    parts = []
    for i, relation in enumerate(relations):
        events = rows.get(relation.relation.name)
        if events is not None and events.num_rows:
            ones = np.ones(events.num_rows, np.int64)
            counts = [pa.array(ones if j == i else ones * 0) for j in range(len(relations))]
            empty = pa.nulls(events.num_rows, pa.int64())
            known = [empty, events["transaction"], events["position"], empty, pa.array(ones)]
            parts.append(pa.table([*known, *counts], schema=schema))
    if not parts:
        return state
    table = pa.concat_tables(parts)
    table = table.take(pa.array(np.argsort(table["position"].to_numpy(), kind="stable")))
    ordinals = np.arange(state.next_ordinal, state.next_ordinal + table.num_rows)
    table = table.set_column(0, schema.field(0), pa.array(ordinals))
    return replace(
        state,
        log=state.log.plus(table),
        next_ordinal=state.next_ordinal + table.num_rows,
        last_position=max(state.last_position, pc.max(table["position"]).as_py()),
    )
