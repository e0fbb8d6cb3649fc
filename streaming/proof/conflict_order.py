"""Whether what an epoch covers is a source state: closed under the conflict order (MVC 4, DESIGN 5).

Rows may overtake, so an epoch covers a set of numbers and not always a prefix. Two transactions that
touch one row of a relation (by its key; by the whole row where there is none) stand in the same order
in every schedule equivalent to the sources'; all others commute. So a covered set is a state of such a
schedule if and only if no transaction that it lacks, and that the views would show, stands before a
covered one in the transitive closure of that order. A truncate, and records that could not be decoded,
touch every row of their relation.

The merge keeps more order than this: it takes any two transactions over one relation to be in
conflict. Relations that no view reads count here too: they order transactions that views do show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from streaming.algebra.tree import Relation
from streaming.proof.recorded_levels import Overtaken
from streaming.scalars import written
from streaming.scalars.expression import NUMBER
from streaming.warehouse.epoch import Epoch, merge_runs
from streaming.warehouse.updates import UpdatesReader

Key = tuple[object, ...]
Touch = tuple[str, Key | None]
"""A relation and a key; no key: every row."""
Touched = Mapping[int, Collection[Touch]]
"""Number -> what its transaction touched."""


def touched_rows(
    reader: UpdatesReader, relations: Iterable[Relation], epochs: Iterable[Epoch]
) -> Touched:
    """What transactions touched, of the numbers that some epoch lacked for a while.

    Args:
        relations: all captured ones, whether a view reads them or not.
    """
    touched: dict[int, set[Touch]] = defaultdict(set)
    windows = merge_runs((e.frontier + 1, e.covered[-1][1]) for e in epochs if not e.is_prefix)
    if not windows:
        return touched
    for control in reader.controls(windows[0][0] - 1, windows[-1][1]):
        touched[control.number].add((control.relation, None))
    for relation in relations:
        if not reader.records(relation.name):
            continue
        positions = sorted(relation.key) or range(len(relation.schema))
        for first, last in windows:
            rows = reader.updates(relation.name, relation.schema, first - 1, last, positions)
            columns = map(written.values, rows.columns[2:])
            for number, *key in zip(rows.column(NUMBER).to_pylist(), *columns, strict=True):
                exact = tuple("NaN" if value != value else value for value in key)
                touched[number].add((relation.name, exact))
    return touched


def overtaken(epoch: Epoch, touched: Touched, shown: Collection[str]) -> Overtaken | None:
    """The newest transaction that the epoch lacks and that comes before one it covers.

    Args:
        shown: the relations that the epoch's views read.
    """
    if epoch.is_prefix:
        return None
    later = _Claims()
    for number in range(epoch.covered[-1][1], epoch.frontier, -1):
        rows = touched.get(number)
        if not rows:
            continue
        visible = any(relation in shown for relation, _ in rows)
        found = later.after(rows)
        if visible and any(first <= number <= last for first, last in epoch.covered):
            later.add(number, rows)
        elif found is not None:
            ahead, (relation, key) = found
            if visible:
                return Overtaken(epoch.epoch, number, ahead, relation, key)
            later.add(ahead, rows)
    return None


class _Claims:
    """Rows touched by transactions that are covered, or stand before a covered one."""

    def __init__(self) -> None:
        self._by: dict[str, dict[Key | None, int]] = defaultdict(dict)

    def add(self, covered: int, touched: Iterable[Touch]) -> None:
        """`covered` is the covered transaction on whose account these rows are claimed."""
        for relation, key in touched:
            self._by[relation][key] = covered

    def after(self, touched: Iterable[Touch]) -> tuple[int, Touch] | None:
        """A covered transaction that must not come before one that touches these rows."""
        for relation, key in sorted(touched, key=repr):
            claims: Mapping[Key | None, int] = self._by.get(relation, {})
            if not claims:
                continue
            if key is None:
                other = next(iter(claims))
                return claims[other], (relation, other)
            if key in claims:
                return claims[key], (relation, key)
            if None in claims:
                return claims[None], (relation, key)
        return None
