"""Which plans give each (number, row) once by their form, so that their result needs no netting.

Netting costs a pass over all columns of a result. An aggregate's changes and recounted rows never need
it, nor does a union of such changes that some constant column tells apart (one view over two databases).
"""

from __future__ import annotations

from streaming.algebra.tree import (
    Aggregate,
    Before,
    Changes,
    Delta,
    Project,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.scalars.expression import Col, Lit, Scalar


def is_net(plan: Tree) -> bool:
    """Whether no two of the rows have the same number and values, provably; those scanned have not."""
    match plan:
        case Scan() | Changes():
            return True
        case Select():
            return is_net(plan.child)
        case Project():
            kept = {e.position for e in plan.expressions if isinstance(e, Col)}
            return is_net(plan.child) and kept >= set(range(len(plan.child.schema)))
        case Union():
            return all(is_net(part) for part in plan.children) and _told_apart(plan.children)
        case _:
            return False


def _told_apart(parts: tuple[Tree, ...]) -> bool:
    """Some column is a different constant in each part."""
    constants = [_constants(part) for part in parts]
    for position in range(len(parts[0].schema)):
        values = [c.get(position) for c in constants]
        if all(isinstance(v, str | int) for v in values) and len(set(values)) == len(values):
            return True
    return False


def _constants(tree: Tree) -> dict[int, object]:
    """Position -> its value, of columns that have one value in all rows."""
    match tree:
        case Select():
            return _constants(tree.child)
        case Project():
            return _mapped(tree.expressions, _constants(tree.child))
        case Aggregate():
            below = _constants(tree.child)
            return {out: below[key] for out, key in enumerate(tree.keys) if key in below}
        case Changes():
            return _constants(tree.operator)
        case Delta() | Before():
            return _constants(tree.leaf)
        case _:
            return {}


def _mapped(expressions: tuple[Scalar, ...], below: dict[int, object]) -> dict[int, object]:
    """The constants of a projection's columns, from those of its input."""
    found: dict[int, object] = {}
    for position, e in enumerate(expressions):
        if isinstance(e, Lit) and e.value is not None:
            found[position] = e.value
        elif isinstance(e, Col) and e.position in below:
            found[position] = below[e.position]
    return found
