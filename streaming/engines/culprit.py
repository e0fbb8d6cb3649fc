"""Which row it is that leaves a view's expressions without a value, for the error that tells of it.

The failing number is known. Of the rows that it brings in, halves are tried until one is left that fails
alone, with everything else as it was. Where only several together fail (a sum that its type cannot
hold), no row is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming.algebra.scans import columns_read
from streaming.algebra.tree import Scan, Tree
from streaming.engines.evaluator import Batch, Rows
from streaming.scalars import written
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Schema, column_name

_LONGEST = 200


def failing_row(tree: Tree, batch: Batch, fails: Callable[[Batch], bool], most: int) -> str:
    """The row of the batch's last number that fails alone, as "row of s.r: a = 1, b = 0"; "" if none.

    Args:
        fails: whether an expression has no value in a batch; the evaluator's state stays as it is.
        most: rows that are looked at; where there are more, none is named.
    """
    for relation, pieces in sorted(batch.relations.items()):
        coming, rest = _coming(pieces, batch.last)
        if not 0 < coming.num_rows <= most:
            continue

        def alone(rows: pa.Table, relation: str = relation, rest: pa.Table = rest) -> bool:
            return fails(replace(batch, relations={**batch.relations, relation: (*rest, rows)}))

        if alone(coming.slice(0, 0)) or not alone(coming):
            continue
        while coming.num_rows > 1:
            middle = coming.num_rows // 2
            halves = (coming.slice(0, middle), coming.slice(middle))
            found = next((half for half in halves if alone(half)), None)
            if found is None:
                break
            coming = found
        if coming.num_rows == 1:
            return _described(tree, relation, coming)
    return ""


def _coming(pieces: tuple[Rows, ...], number: int) -> tuple[pa.Table, tuple[pa.Table, ...]]:
    """The rows that a number brings in, in one table, and all others, piece by piece."""
    tables = [piece if isinstance(piece, pa.Table) else pq.read_table(piece) for piece in pieces]
    coming, rest = [], []
    for table in tables:
        comes = pc.and_(pc.equal(table[NUMBER], number), pc.greater(table[MULTIPLICITY], 0))
        coming.append(table.filter(comes))
        rest.append(table.filter(pc.invert(comes)))
    return pa.concat_tables(coming) if coming else pa.table({}), tuple(rest)


def _described(tree: Tree, relation: str, rows: pa.Table) -> str:
    schema = _schema(tree, relation)
    read = columns_read(tree).get(relation, frozenset(range(len(schema))))
    values = ", ".join(
        f"{schema[at].name} = {written.value(rows.column(column_name(at))[0])}"
        for at in sorted(read)
    )
    return f"row of {relation}: {values}"[:_LONGEST]


def _schema(tree: Tree, relation: str) -> Schema:
    if isinstance(tree, Scan):
        return tree.schema if tree.relation == relation else ()
    return next((found for child in tree.children if (found := _schema(child, relation))), ())
