"""Which plans give each (number, row) once by their form, so that their result needs no netting.

Netting costs a pass over all columns of a result. An aggregate's changes and recounted rows never need
it, nor does a union of such changes that some constant column tells apart (one view over two databases).
"""

from __future__ import annotations

from streaming.algebra.delta import Changes, Filter, Map, Plan, Recount, Sum
from streaming.algebra.tree import Project, Select, Tree
from streaming.scalars.expression import Col, Lit, Scalar


def is_net(plan: Plan) -> bool:
    """Whether no two of the plan's rows have the same number and values, provably.

    Netting a result costs a pass over all its columns; an aggregate's changes never need it.
    """
    match plan:
        case Changes() | Recount():
            return True
        case Filter():
            return is_net(plan.child)
        case Map():
            kept = {e.position for e in plan.expressions if isinstance(e, Col)}
            return is_net(plan.child) and kept >= set(range(_changes_width(plan.child)))
        case Sum():
            return all(is_net(part) for part in plan.parts) and _told_apart(plan.parts)
        case _:
            return False


def _changes_width(plan: Plan) -> int:
    match plan:
        case Changes():
            return len(plan.aggregate.schema)
        case Recount():
            return len(plan.tree.schema)
        case Filter():
            return _changes_width(plan.child)
        case Map():
            return len(plan.expressions)
        case Sum():
            return _changes_width(plan.parts[0])
        case _:
            raise AssertionError("not a plan of changes")


def _told_apart(parts: tuple[Plan, ...]) -> bool:
    """Some column is a different constant in each part."""
    constants = [_constants(part) for part in parts]
    width = _changes_width(parts[0])
    for position in range(width):
        values = [c.get(position) for c in constants]
        if all(isinstance(v, str | int) for v in values) and len(set(values)) == len(values):
            return True
    return False


def _constants(plan: Plan) -> dict[int, object]:
    """Position -> its value, of columns that have one value in all rows."""
    match plan:
        case Filter():
            return _constants(plan.child)
        case Map():
            return _mapped(plan.expressions, _constants(plan.child))
        case Changes():
            below = _tree_constants(plan.aggregate.child)
            keys = plan.aggregate.keys
            return {out: below[key] for out, key in enumerate(keys) if key in below}
        case _:
            return {}


def _tree_constants(tree: Tree) -> dict[int, object]:
    if isinstance(tree, Project):
        return _mapped(tree.expressions, _tree_constants(tree.child))
    return _tree_constants(tree.child) if isinstance(tree, Select) else {}


def _mapped(expressions: tuple[Scalar, ...], below: dict[int, object]) -> dict[int, object]:
    """The constants of a projection's columns, from those of its input."""
    found: dict[int, object] = {}
    for position, e in enumerate(expressions):
        if isinstance(e, Lit) and e.value is not None:
            found[position] = e.value
        elif isinstance(e, Col) and e.position in below:
            found[position] = below[e.position]
    return found
