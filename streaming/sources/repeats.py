"""Repeats inside a transaction: which of its rows are the same event delivered again (DESIGN 6).

An event is identified by (transaction, position, relation, op, row, occurrence at that position within
one pass), never by total_order alone: after a restart inside a transaction old connectors count from 1
again, and rows that are equal in every column may truly share a position (COPY into a table without
a key). A pass shows in a topic's partition as an order that does not grow.
"""

from __future__ import annotations

import re

import duckdb
import numpy as np
import pyarrow as pa

from streaming.sources.held import Held


def is_older(version: str, than: str) -> bool:
    """Whether a connector's version ("3.6.0.Final") is known and below another."""
    parts = [int(part) for part in re.findall(r"\d+", version)[:3]]
    limit = [int(part) for part in re.findall(r"\d+", than)[:3]]
    return bool(parts) and parts < limit


def first_occurrences(
    held: dict[str, Held], entry: dict[str, np.ndarray], suspects: np.ndarray
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
            mask[_first(rows.table.take(pa.array(looked)), tied[looked], looked)] = True
        masks[name] = mask
    return masks


def _first(rows: pa.Table, tied: np.ndarray, index: np.ndarray) -> np.ndarray:
    row = ", ".join(n for n in rows.column_names if n[0] in "ba" and n[1:].isdigit())
    looked = rows.append_column("tied", pa.array(tied)).append_column("index", pa.array(index))
    identity = f'tied, position, op, toast, {row}'
    with duckdb.connect() as duck:
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
    return kept["index"].to_numpy()


def last_pass_complete(
    held: dict[str, Held], entry: dict[str, np.ndarray], expected: np.ndarray, again: np.ndarray
) -> np.ndarray:
    """By END with a second BEGIN of an old connector: whether its last pass is all there.

    END counts the last pass only. Of the rows that share an order the one at the highest position is
    the last pass's; a row of an earlier pass that no later one replaced cannot be told from one of the
    last, so some order must have been used twice, or a later row of the relation must have come.
    """
    done = np.zeros(len(again), bool)
    for index in np.flatnonzero(again).tolist():
        orders, positions, relations = [], [], []
        passed = True
        for number, (name, rows) in enumerate(held.items()):
            mine = np.flatnonzero(entry[name] == index)
            table = rows.table
            orders.append(table["total_order"].to_numpy()[mine])
            positions.append(table["position"].to_numpy()[mine])
            relations.append(np.full(len(mine), number))
            offsets = table["offset"].to_numpy()
            if expected[index, number] and len(mine):
                passed &= bool(offsets.max() > offsets[mine].max())
        order = np.concatenate(orders)
        if not len(order):
            continue
        position, relation = np.concatenate(positions), np.concatenate(relations)
        sequence = np.lexsort((position, order))
        last = np.append(order[sequence][1:] != order[sequence][:-1], True)
        # Several rows may share order and position only as repeats, which are gone by now.
        counted = np.bincount(relation[sequence][last], minlength=expected.shape[1])
        twice = not last.all()
        done[index] = (twice or passed) and bool((counted == expected[index]).all())
    return done
