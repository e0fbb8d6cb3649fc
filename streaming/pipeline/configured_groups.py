"""The merge groups that a configuration asks for its views (MVC 6; DESIGN 5, Groups)."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal

from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.choosing import Choice
from streaming.pipeline.merge_groups import Group, groups_apart, merge_groups
from streaming.pipeline.view_specs import ViewSpec
from streaming.viewmanagers.modes import MODES


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
