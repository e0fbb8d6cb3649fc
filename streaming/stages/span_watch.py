"""Watches for transactions that span merge groups (MVC 6; DESIGN 5, Groups).

With `disjoint` groups every transaction is whole at its readers as long as it stays inside one group.
One that changes relations of two becomes visible in two commits, which breaks G3 for it and for nothing
else: each group is right by itself. So it is told from the rows, number by number, before anything of it
is published; `on_span` says whether that ends the integrator. `single` has one group for all, and in
`atomic` groups no more than each view's own consistency was asked for, so neither is watched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

import numpy as np
import pyarrow.compute as pc

from streaming.cdc.intake_result import IntakeResult
from streaming.errors import FrescoError
from streaming.scalars.expression import NUMBER

log = logging.getLogger("fresco")

SHOWN_TRANSACTIONS = 3
"""Of one number, that an error names."""


class SpanWatch:
    """Finds the transactions that change relations of more than one group.

    Args:
        halt: whether such a transaction is an error; else it is counted and told in the log.
        count: is given how many there were in a step.
    """

    def __init__(self, halt: bool, count: Callable[[int], object]) -> None:
        self._halt, self._count = halt, count

    def look(self, result: IntakeResult, relations_of: Mapping[str, Collection[str]]) -> int:
        """How many numbers of a step span groups.

        Args:
            relations_of: merge group -> the captured relations that its views use.

        Raises:
            FrescoError: GROUP_SPAN, there is one and it is an error.
        """
        found = []
        for relations in relations_of.values():
            numbers = [
                np.unique(result.updates[name][NUMBER].to_numpy())
                for name in relations
                if name in result.updates
            ]
            told = [one.number for one in result.controls if one.relation in relations]
            found.append(np.unique(np.concatenate([*numbers, np.array(told, np.int64)])))
        if not found:
            return 0
        numbers_, times = np.unique(np.concatenate(found), return_counts=True)
        # A snapshot taken again has a number, and is no transaction of the source.
        numbered = np.isin(numbers_, result.transactions["number"].to_numpy())
        spanning = numbers_[(times > 1) & (numbers_ > 0) & numbered]
        if not len(spanning):
            return 0
        error = _error(int(spanning[0]), result, relations_of)
        if self._halt:
            raise error
        log.warning("%d transactions span groups; the first: %s", len(spanning), error)
        self._count(len(spanning))
        return len(spanning)


def _error(
    number: int, result: IntakeResult, relations_of: Mapping[str, Collection[str]]
) -> FrescoError:
    changed = {
        name
        for name, rows in result.updates.items()
        if pc.any(pc.equal(rows[NUMBER], number)).as_py()
    }
    changed |= {one.relation for one in result.controls if one.number == number}
    parts = [
        f"{', '.join(sorted(changed.intersection(relations)))} (group {group})"
        for group, relations in relations_of.items()
        if changed.intersection(relations)
    ]
    map_ = result.transactions
    which = map_.filter(pc.equal(map_["number"], number)).to_pylist()[:SHOWN_TRANSACTIONS]
    return FrescoError(
        "GROUP_SPAN",
        f"a transaction spans merge groups: it changes {' and '.join(parts)}",
        where=", ".join(f"source {one['source']}, {one['transaction']}" for one in which),
        todo="set on_span: warn to publish such transactions group by group; or keep the "
        "relations together with transactions_span, or use grouping: single, in a new "
        "warehouse",
    )
