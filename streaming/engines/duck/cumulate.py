"""Running totals by one sort: what DuckDB's window would compute, three times as fast.

For large batches DuckDB spends most of a view's time on grouping and cumulating by (group, number). Here
both are one numpy sort and a few passes over 64-bit integers; decimals are their unscaled units. When a
total might not fit into 64 bits nothing is done, and the SQL steps `g` and `w` of `totals` run as always.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming.algebra.tree import Aggregate
from streaming.engines.totals import arguments, total_columns
from streaming.scalars.expression import NUMBER

Integers = npt.NDArray[np.int64]
SAFE = 2**62


def cumulate(aggregate: Aggregate, rows: pa.Table) -> pa.Table | None:
    """The step `w`: per (group, number) what it adds to each total, and the additions so far.

    Args:
        rows: `_number`, `id`, `_multiplicity` and the arguments' columns c*, in any order.

    Returns:
        `_number`, `id`, the totals' columns and the same with `r_` before; None when 64 bits might
        not suffice.
    """
    number, group = _integers(rows, NUMBER), _integers(rows, "id")
    terms = _terms(aggregate, rows) if len(number) else None
    if terms is None:
        return None
    order = np.lexsort((number, group))
    number, group = number[order], group[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (number[1:] != number[:-1]) | (group[1:] != group[:-1])
    starts = np.flatnonzero(begins)
    number, group = number[starts], group[starts]
    first = np.ones(len(starts), dtype=bool)
    first[1:] = group[1:] != group[:-1]
    of_group = np.cumsum(first) - 1
    types = dict(total_columns(aggregate, "duckdb"))
    columns: dict[str, pa.Array] = {NUMBER: pa.array(number), "id": pa.array(group)}
    so_far: dict[str, pa.Array] = {}
    for name, term in terms.items():
        added = np.add.reduceat(term[order], starts)
        running = np.cumsum(added)
        base = (running - added)[first]
        columns[name] = _typed(added, types[name])
        so_far[f"r_{name}"] = _typed(running - base[of_group], types[name])
    return pa.table(columns | so_far)


def _terms(aggregate: Aggregate, rows: pa.Table) -> dict[str, Integers] | None:
    """Each total's term per row; None when their sum might not fit."""
    m = _integers(rows, "_multiplicity")
    terms = {"n": m}
    for position, summed in arguments(aggregate):
        column = rows.column(f"c{position}").combine_chunks()
        there = np.ones(len(m), dtype=bool)
        if column.null_count:
            there = column.is_valid().to_numpy(zero_copy_only=False)
        terms[f"n{position}"] = np.where(there, m, 0)
        if summed:
            values = _units(column)
            if values is None:
                return None
            values = np.where(there, values, 0)
            largest = max(abs(int(values.max())), abs(int(values.min())))
            if largest * int(np.abs(m).max()) * len(m) >= SAFE:
                return None
            terms[f"s{position}"] = values * m
    return terms


def _integers(rows: pa.Table, name: str) -> Integers:
    values: Integers = rows.column(name).to_numpy().astype(np.int64, copy=False)
    return values


def _units(column: pa.Array) -> Integers | None:
    """Unscaled 64-bit units, garbage where NULL; None when one needs more than 64 bits."""
    if not pa.types.is_decimal(column.type):
        plain: Integers = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return plain
    column = column.fill_null(0)
    words = np.frombuffer(column.buffers()[1], dtype=np.int64)
    words = words[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    return low if bool((high == low >> 63).all()) else None


def _typed(values: Integers, type_: str) -> pa.Array:
    """The totals' column: DECIMAL(38,s) from units, else a 64-bit integer."""
    if not type_.startswith("DECIMAL"):
        return pa.array(values)
    scale = int(type_[:-1].split(",")[1])
    words = np.empty((len(values), 2), dtype=np.int64)
    words[:, 0], words[:, 1] = values, values >> 63
    buffers = [None, pa.py_buffer(words)]
    return pa.Array.from_buffers(pa.decimal128(38, scale), len(values), buffers)
