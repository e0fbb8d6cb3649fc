"""Trees as indented text, for golden pairs that a person can read."""

from __future__ import annotations

from streaming.algebra.tree import Aggregate, Join, Project, Scan, Select, Tree, Union
from streaming.scalars.expression import Call, Col, Lit, Scalar


def tree_text(tree: Tree) -> str:
    """One line for each node, children two spaces in."""
    lines = [_node(tree)]
    for child in tree.children:
        lines += ["  " + line for line in tree_text(child).split("\n")]
    return "\n".join(lines)


def _node(tree: Tree) -> str:
    match tree:
        case Scan():
            return f"scan {tree.relation}"
        case Select():
            return f"select {scalar_text(tree.condition)}"
        case Project():
            outputs = zip(tree.expressions, tree.schema, strict=True)
            return "project " + ", ".join(f"{scalar_text(e)} {c.name}" for e, c in outputs)
        case Join():
            on = ", ".join(f"l{i} = r{j}" for i, j in tree.on) or "nothing"
            also = "" if tree.condition is None else f" and {scalar_text(tree.condition)}"
            return f"join on {on}{also}"
        case Union():
            return "union"
        case Aggregate():
            keys = ", ".join(f"c{k}" for k in tree.keys) or "nothing"
            results = ", ".join(
                f"{a.function}({'' if a.argument is None else f'c{a.argument}'}):{a.type}"
                for a in tree.aggregations
            )
            return f"aggregate by {keys}: {results}"


def scalar_text(scalar: Scalar) -> str:
    """c0:type for columns, value:type for literals, function(...):type for calls."""
    match scalar:
        case Col():
            return f"c{scalar.position}:{scalar.type}"
        case Lit():
            value = scalar.value if scalar.type != "string" else repr(scalar.value)
            return f"{value}:{scalar.type}"
        case Call():
            args = ", ".join(scalar_text(arg) for arg in scalar.args)
            return f"{scalar.function}({args}):{scalar.type}"
