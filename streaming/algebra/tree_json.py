"""Expression trees as JSON values, for statements that a snapshot must be able to send again.

A node is its class's name and its fields in order; tuples are lists, constants carry their Python type
where JSON has none. Nothing but the classes of `algebra.tree` and `scalars.expression` can come back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from streaming.algebra import tree as trees
from streaming.algebra.tree import Tree
from streaming.scalars import expression
from streaming.scalars.expression import Lit


def tree_note(tree: Tree) -> Any:
    """A tree as JSON values."""
    return _note(tree)


def tree_back(note: Any) -> Tree:
    """The tree that `tree_note` described."""
    return _back(note)  # type: ignore[no-any-return]


def _note(value: Any) -> Any:
    if isinstance(value, Lit):
        return {"Lit": [type(value.value).__name__, _constant(value.value), value.type]}
    if isinstance(value, tuple):
        return [_note(each) for each in value]
    if value is None or isinstance(value, int | str):
        return value
    return {type(value).__name__: [_note(getattr(value, f.name)) for f in fields(value)]}


def _constant(value: object) -> object:
    """Floats in their shortest exact form, since JSON has no NaN; moments in ISO's."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float | Decimal):
        return str(value)
    raise TypeError(f"no constant of a tree: {value!r}")


CONSTANTS: dict[str, Callable[[Any], object]] = {
    "NoneType": lambda note: None,
    "bool": bool,
    "int": int,
    "str": str,
    "float": float,
    "Decimal": Decimal,
    "date": date.fromisoformat,
    "datetime": datetime.fromisoformat,
}
"""What makes a constant from its form in JSON, by the name of its Python type."""


def _back(note: Any) -> Any:
    if isinstance(note, list):
        return tuple(_back(each) for each in note)
    if not isinstance(note, dict):
        return note
    ((name, parts),) = note.items()
    if name == "Lit":
        kind, constant, type_ = parts
        return Lit(CONSTANTS[kind](constant), type_)
    made = getattr(trees, name, None) or getattr(expression, name)
    return made(*(_back(part) for part in parts))
