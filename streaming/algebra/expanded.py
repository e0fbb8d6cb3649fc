"""A view over views as a view over base relations: its parents' trees in the place of their scans.

Both have the same rows in every state, because a scan of a parent stands for the parent's rows. A view
that joins a running pipeline is loaded and maintained so: what its parents held at a number is nowhere
recorded before they are committed, and their base relations are (`_updates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streaming.algebra.normal import normal
from streaming.algebra.tree import Join, Monus, Scan, Tree, Union, relations


def expanded(tree: Tree, views: Mapping[str, Tree]) -> Tree:
    """The tree over base relations alone, in normal form; itself where it scans no view.

    Args:
        views: the trees of the views by name; they may scan each other.
    """
    if not any(name in views for name in relations(tree)):
        return tree
    return normal(_replaced(tree, views))


def _replaced(tree: Tree, views: Mapping[str, Tree]) -> Tree:
    match tree:
        case Scan():
            return _replaced(views[tree.relation], views) if tree.relation in views else tree
        case Join() | Monus():
            return replace(
                tree, left=_replaced(tree.left, views), right=_replaced(tree.right, views)
            )
        case Union():
            return replace(tree, children=tuple(_replaced(one, views) for one in tree.children))
        case _:
            return replace(tree, child=_replaced(tree.child, views))
