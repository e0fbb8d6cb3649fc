"""Duplicate elimination and monus as SQL: affected rows anew, at each number at which they change.

How often a row occurs after number n depends on how often it occurs in the sides then, and on nothing
else: once if it occurs at all (Distinct), or max(0, left - right) times (Monus). So the rows a batch
touches are counted in their sides before the batch, what the batch adds is summed number by number, and
the difference of neighbours is the change.
"""

from __future__ import annotations

from streaming.algebra.tree import Distinct, Monus
from streaming.engines.recomputed_groups import BEFORE
from streaming.scalars.expression import column_name

SIDES = ("l", "r")
"""Names of a row's counts in the left (or only) and the right side."""


def counts_sql(tree: Distinct | Monus, sides: list[str]) -> str:
    """The bag from SQL of its sides' bags."""
    cells = _cells(tree)
    rows = _union([_entry(tree, i, sql, None) for i, sql in enumerate(sides)])
    nets = f"SELECT {cells}, {_sums()} FROM ({rows}) e GROUP BY {cells}"
    counted = f"SELECT {_occurs(tree, 'n')} AS _multiplicity, {cells} FROM ({nets}) n"
    return f"SELECT * FROM ({counted}) o WHERE o._multiplicity > 0"


def affected_sql(tree: Distinct | Monus, changes: list[str]) -> str:
    """The rows that the sides' changes (tables) touch, each once."""
    cells = _cells(tree)
    return f"SELECT DISTINCT * FROM ({_union([f'SELECT {cells} FROM {t}' for t in changes])}) u"


def recount_sql(tree: Distinct | Monus, changes: list[str | None], olds: list[str]) -> str:
    """The changes under each number.

    Args:
        changes: by side, the table with its delta, None for no change.
        olds: by side, SQL of its bag before the batch, at least of the affected rows; () for an
            empty one.
    """
    cells = _cells(tree)
    entries = [_entry(tree, i, t, "_number") for i, t in enumerate(changes) if t is not None]
    entries += [_entry(tree, i, sql, str(BEFORE)) for i, sql in enumerate(olds)]
    nets = (
        f"SELECT _number, {cells}, {_sums()} FROM ({_union(entries)}) e GROUP BY _number, {cells}"
    )
    window = f"(PARTITION BY {cells} ORDER BY _number)"
    running = ", ".join(f"SUM({side}) OVER {window} AS {side}" for side in SIDES)
    standing = f"SELECT _number, {cells}, {running} FROM ({nets}) n"
    counted = f"SELECT _number, {cells}, {_occurs(tree, 's')} AS n FROM ({standing}) s"
    change = f"n - COALESCE(LAG(n) OVER {window}, 0) AS _multiplicity"
    changed = f"SELECT _number, {change}, {cells} FROM ({counted}) c"
    return f"SELECT * FROM ({changed}) o WHERE o._number > {BEFORE} AND o._multiplicity <> 0"


def _occurs(tree: Distinct | Monus, alias: str) -> str:
    """How often a row occurs, from the counts in its sides."""
    left, right = (f"{alias}.{side}" for side in SIDES)
    count = f"CASE WHEN {left} > 0 THEN 1 ELSE 0 END"
    if isinstance(tree, Monus):
        count = f"greatest({left} - {right}, 0)"
    return f"CAST({count} AS BIGINT)"


def _entry(tree: Distinct | Monus, side: int, rows: str, number: str | None) -> str:
    marks = [] if number is None else [f"CAST({number} AS BIGINT) AS _number"]
    counts = [f"{'_multiplicity' if i == side else '0'} AS {name}" for i, name in enumerate(SIDES)]
    source = rows if rows.isidentifier() else f"({rows})"
    return f"SELECT {', '.join([*marks, *counts, _cells(tree)])} FROM {source} x"


def _union(parts: list[str]) -> str:
    return " UNION ALL ".join(parts)


def _sums() -> str:
    return ", ".join(f"CAST(SUM({side}) AS BIGINT) AS {side}" for side in SIDES)


def _cells(tree: Distinct | Monus) -> str:
    return ", ".join(column_name(i) for i in range(len(tree.schema)))
