"""Forms a pipeline's merge groups and watches transactions that span them (MVC 6; DESIGN 5, Groups).

With `disjoint` groups every transaction is whole at its readers as long as it stays inside one group.
One that changes relations of two becomes visible in two commits, which breaks G3 for it and for nothing
else: each group is right by itself. So it is told from the rows, number by number, before anything of it
is published; `on_span` says whether that ends the integrator. `single` has one group for all, and in
`atomic` groups no more than each view's own consistency was asked for, so neither is watched.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

import numpy as np
import pyarrow.compute as pc

from streaming.algebra.tree import NUMBER
from streaming.config import Config
from streaming.errors import FrescoError
from streaming.integrator.groups import Group, groups_apart, merge_groups
from streaming.runtime.choosing import Choice
from streaming.sources.result import IntakeResult
from streaming.viewmanagers.modes import MODES
from streaming.views import ViewSpec

log = logging.getLogger("fresco")

SHOWN_TRANSACTIONS = 3
"""Of one number, that an error names."""


def form_groups(
    config: Config,
    views: Sequence[ViewSpec],
    choices: Mapping[str, Choice],
    relations: Collection[str],
    grouping: Literal["single", "disjoint", "atomic"] | None = None,
) -> tuple[Group, ...]:
    """The merge groups that a configuration asks for.

    Args:
        relations: the captured ones.
        grouping: in place of the configured one.

    Raises:
        FrescoError: CONFIG_VALUE, `transactions_span` names what is not captured.
    """
    for relation in (one for span in config.transactions_span for one in span):
        if relation not in relations:
            near = difflib.get_close_matches(relation, relations, n=1)
            raise FrescoError(
                "CONFIG_VALUE",
                f"'{relation}' is no captured relation",
                where="transactions_span",
                todo=f"did you mean '{near[0]}'?" if near else "write <source>.<table name>",
            )
    bases = {view.name: choices[view.name].bases for view in views}
    apart = {
        view: bases[view]
        for view in bases
        if config.convergent == "apart" and choices[view].manager.sends == "convergent"
    }
    if len(apart) == len(bases) == 1:
        apart = {}
    together = {view: used for view, used in bases.items() if view not in apart}
    scans = {view.name: view.relations for view in views if view.name in together}
    spans, name = config.transactions_span, config.pipeline
    groups = merge_groups(together, grouping or config.grouping, spans, name, scans)
    return (*(group for group in groups if group.views), *groups_apart(apart, name))


def block_size(views: Sequence[ViewSpec], children: Callable[[str], Collection[str]]) -> int | None:
    """N of a group whose views all are complete every N, by the same N, so that its rows are blocks.

    Views over views are told number by number, so neither a parent nor a child is in such a group.
    """
    sizes = {view.every if MODES[view.mode].by_blocks else None for view in views}
    if len(sizes) != 1 or any(children(view.name) for view in views):
        return None
    size = sizes.pop()
    return size if size is not None and size > 1 else None


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
