"""Which transactions are complete: all events that END counts are there, each once (DESIGN 6)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.cdc.held_rows import HeldRows
from streaming.cdc.repeats import first_occurrences, is_older, last_pass_complete
from streaming.cdc.transaction_log import LogState

RESTARTING = "3.6.1"
"""Connectors before this version count from 1 again after a restart inside a transaction, and END
counts the last pass only (FACTS)."""


@dataclass(frozen=True)
class SourceStep:
    """One source's held and new data during a step, with every row tied to its END.

    Attributes:
        state: the source's state after the batch.
        log: its ENDs as one table.
        rows: per relation, held and new rows.
        entry: per relation, the index into `log` of each row's END, -1 without one.
        fresh: (first, last) ordinals that became complete in this step, first > last when none.
    """

    state: LogState
    log: pa.Table
    rows: dict[str, HeldRows]
    entry: dict[str, np.ndarray]
    fresh: tuple[int, int]


def judge(
    state: LogState,
    log: pa.Table,
    held: dict[str, HeldRows],
    entry: dict[str, np.ndarray],
) -> SourceStep:
    """Find the complete prefix; repeats inside a transaction are dropped on the way."""
    ordinals = log["ordinal"].to_numpy()
    names = list(held)
    expected = np.stack([log[f"e{i}"].to_numpy() for i in range(len(names))], axis=1)
    suspects = _suspects(log, held, entry, expected)
    done = again = np.zeros(log.num_rows, bool)
    if suspects.any():
        if not state.version or is_older(state.version, RESTARTING):
            begins = log["begins"].to_numpy()
            again = begins > 1
            done = last_pass_complete(held, entry, expected, begins, again)
        # What shows where a pass began must stay until the last one is there.
        dropped = first_occurrences(held, entry, suspects & (done | ~again))
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
    return SourceStep(replace(state, complete=int(last)), log, held, entry, fresh)


def _suspects(
    log: pa.Table,
    held: dict[str, HeldRows],
    entry: dict[str, np.ndarray],
    expected: np.ndarray,
) -> np.ndarray:
    """ENDs among whose rows something repeats: too many, an order used twice, BEGIN twice."""
    suspects: np.ndarray = log["begins"].to_numpy() > 1
    suspects |= (_arrived(list(held), entry, log.num_rows) > expected).any(axis=1)
    parts = []
    for name, h in held.items():
        orders = pc.fill_null(h.table["total_order"], 0).to_numpy()
        tied = entry[name] >= 0
        parts.append((entry[name][tied] << 32) | orders[tied])
    keys = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
    twice = keys[1:][keys[1:] == keys[:-1]]
    suspects[np.unique(twice >> 32)] = True
    return suspects


def _arrived(names: list[str], entry: dict[str, np.ndarray], length: int) -> np.ndarray:
    columns = [np.bincount(entry[n][entry[n] >= 0], minlength=length) for n in names]
    return np.stack(columns, axis=1)


def _forgive(
    state: LogState, log: pa.Table, names: list[str], whole: np.ndarray, short: np.ndarray
) -> LogState:
    """Let pass, as tainted, an END that falls short by exactly the undecodable records.

    Rows of a topic lie in commit order, so the undecodable records of a relation belong to the first
    transactions that fall short in it. `whole` is updated in place.
    """
    if not state.bad:
        return state
    left, tainted = Counter(state.bad), dict(state.tainted)
    keys, ordinals = log["transaction"].to_pylist(), log["ordinal"].to_pylist()
    for index in np.flatnonzero(~whole).tolist():
        key = keys[index]
        lacking = {name: n for name, n in zip(names, short[index].tolist(), strict=True) if n}
        if not lacking or any(
            missing > left[name, key] + left[name, None] for name, missing in lacking.items()
        ):
            break
        for name, missing in lacking.items():
            own = min(missing, left[name, key])
            left[name, key] -= own
            left[name, None] -= missing - own
        tainted[ordinals[index]] = tuple(sorted(lacking))
        whole[index] = True
    return replace(state, bad=tuple(left.elements()), tainted=tainted)
