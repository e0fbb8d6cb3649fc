"""Repeats inside a transaction: which of its rows are the same event delivered again (DESIGN 6).

An event is identified by (transaction, position, relation, op, row, occurrence at that position within
one pass), never by total_order alone: after a restart inside a transaction old connectors count from 1
again, and rows that are equal in every column may truly share a position (COPY into a table without
a key). A pass shows in a topic's partition as an order that does not grow.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from streaming.cdc.held_rows import HeldRows
from streaming.engines.duck_engine import duck_engine


def is_older(version: str, than: str) -> bool:
    """Whether a connector's version ("3.6.0.Final") is known and below another."""
    parts = [int(part) for part in re.findall(r"\d+", version)[:3]]
    limit = [int(part) for part in re.findall(r"\d+", than)[:3]]
    return bool(parts) and parts < limit


def first_occurrences(
    held: dict[str, HeldRows], entry: dict[str, np.ndarray], suspects: np.ndarray
) -> dict[str, np.ndarray]:
    """Per relation, a mask of the rows to keep: repeats are false, each event's first delivery true.

    Args:
        held: rows per relation.
        entry: index of each row's END, -1 without one.
        suspects: by END, whether its rows are looked at.
    """
    masks = {}
    for name, rows in held.items():
        tied = entry[name]
        looked = np.flatnonzero((tied >= 0) & suspects[np.maximum(tied, 0)])
        mask = np.ones(len(tied), bool)
        if len(looked):
            mask[looked] = False
            mask[_first(rows.read(~mask), tied[looked], looked)] = True
        masks[name] = mask
    return masks


def _first(rows: pa.Table, tied: np.ndarray, index: np.ndarray) -> np.ndarray:
    row = ", ".join(n for n in rows.column_names if n[0] in "ba" and n[1:].isdigit())
    looked = rows.append_column("tied", pa.array(tied)).append_column("index", pa.array(index))
    identity = f"tied, position, op, toast, {row}"
    with duck_engine() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("looked", looked)
        kept = duck.execute(
            f"""
            WITH delivered AS (
              SELECT * FROM looked
              QUALIFY row_number() OVER (
                PARTITION BY {identity}, total_order ORDER BY "partition", "offset") = 1
            ), resets AS (
              SELECT *, coalesce(total_order <= lag(total_order) OVER (
                PARTITION BY tied, "partition" ORDER BY "offset"), false)::INTEGER AS reset
              FROM delivered
            ), passes AS (
              SELECT *, sum(reset) OVER (
                PARTITION BY tied, "partition" ORDER BY "offset") AS pass FROM resets
            ), occurrences AS (
              SELECT *, row_number() OVER (
                PARTITION BY {identity}, pass ORDER BY "partition", "offset") AS occurrence
              FROM passes
            )
            SELECT "index" FROM occurrences
            QUALIFY row_number() OVER (
              PARTITION BY {identity}, occurrence ORDER BY pass, "partition", "offset") = 1
            """
        ).to_arrow_table()
    index_: np.ndarray = kept["index"].to_numpy()
    return index_


def last_pass_complete(
    held: dict[str, HeldRows],
    entry: dict[str, np.ndarray],
    expected: np.ndarray,
    begins: np.ndarray,
    again: np.ndarray,
) -> np.ndarray:
    """By END with a second BEGIN of an old connector: whether all its rows are there.

    END counts the last pass only, and rows of an earlier pass look no different. A relation's rows are
    all there when its topic shows every pass begin and the last has as many as counted, or when a
    later transaction's row has come, since a topic is in commit order.
    """
    done = np.zeros(len(again), bool)
    tables = {name: rows.table for name, rows in held.items()}
    for index in np.flatnonzero(again).tolist():
        done[index] = all(
            _all_there(tables[name], entry[name], index, int(expected[index, i]), begins[index])
            for i, name in enumerate(held)
        )
    return done


def _all_there(rows: pa.Table, entry: np.ndarray, index: int, expected: int, begins: int) -> bool:
    mine = np.flatnonzero(entry == index)
    partitions = rows["partition"].to_numpy()
    offsets = rows["offset"].to_numpy()
    if len(np.unique(partitions)) > 1:
        return False
    later = offsets[(entry == -1) | (entry > index)]
    if len(later) and (not len(mine) or later.max() > offsets[mine].max()):
        return True
    orders = rows["total_order"].to_numpy()[mine[np.argsort(offsets[mine], kind="stable")]]
    resets = np.flatnonzero(orders[1:] <= orders[:-1]) + 1
    return expected > 0 and len(resets) == begins - 1 and len(orders) - resets[-1] == expected
