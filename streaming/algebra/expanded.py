"""A view over views as a view over base relations: its parents' trees in the place of their scans.

Both have the same rows in every state, because a scan of a parent stands for the parent's rows. A view
that joins a running pipeline is loaded and maintained so: what its parents held at a number is nowhere
recorded before they are committed, and their base relations are (`_updates`).
"""

from __future__ import annotations

from collections.abc import Mapping

from streaming.algebra.normal_form import normal
from streaming.algebra.tree import Scan, Tree, relations


def expanded(tree: Tree, views: Mapping[str, Tree]) -> Tree:
    """The tree over base relations alone, in normal form; itself where it scans no view.

    Args:
        views: the trees of the views by name; they may scan each other.

    Raises:
        FrescoError: SQL_TOO_LARGE, SQL_TOO_DEEP, each view in itself is not.
    """
    if not any(name in views for name in relations(tree)):
        return tree
    return normal(_replaced(tree, views, {}))


def _replaced(tree: Tree, views: Mapping[str, Tree], made: dict[str, Tree]) -> Tree:
    """The tree over base relations; `made` has that of each view, which its scans share."""
    if not isinstance(tree, Scan):
        return tree.over(*(_replaced(child, views, made) for child in tree.children))
    if tree.relation not in views:
        return tree
    if tree.relation not in made:
        made[tree.relation] = _replaced(views[tree.relation], views, made)
    return made[tree.relation]
