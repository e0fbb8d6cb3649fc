"""What a view reads of its relations, scan by scan: rows that pass, and columns (DESIGN 5).

The integrator spares work by it and a view manager decides by it whether a column that can no longer
be read concerns its view, so both judge alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from streaming.algebra.tree import Project, Scan, Select, Tree
from streaming.scalars.expression import Scalar, Schema, columns_used


@dataclass(frozen=True)
class ScanNeed:
    """What one scan of a view reads: rows where all `conditions` hold, and these columns of them."""

    relation: str
    conditions: tuple[Scalar, ...]
    columns: frozenset[int]
    schema: Schema


@lru_cache(maxsize=1024)
def scan_needs(tree: Tree) -> tuple[ScanNeed, ...]:
    """The scans of a tree with the selections and the projection directly above each."""
    columns: frozenset[int] | None = None
    node = tree
    if isinstance(node, Project):
        columns = frozenset().union(*(columns_used(e) for e in node.expressions))
        node = node.child
    conditions: list[Scalar] = []
    while isinstance(node, Select):
        conditions.append(node.condition)
        node = node.child
    if isinstance(node, Scan):
        everything = frozenset(range(len(node.schema)))
        used = everything if columns is None else columns
        used = used.union(*(columns_used(condition) for condition in conditions))
        return (ScanNeed(node.relation, tuple(conditions), used, node.schema),)
    found: list[ScanNeed] = []
    for child in tree.children:
        found += scan_needs(child)
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=1024)
def columns_read(tree: Tree) -> Mapping[str, frozenset[int]]:
    """By relation, the positions of all columns that any scan of it reads."""
    found: dict[str, frozenset[int]] = {}
    for need in scan_needs(tree):
        found[need.relation] = found.get(need.relation, frozenset()) | need.columns
    return found
