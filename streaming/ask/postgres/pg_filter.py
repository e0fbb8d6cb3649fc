"""A view's conditions in PostgreSQL's SQL, weakened where the two engines might not agree.

A relation is filtered at the source so that less is sent; the view's operators apply the condition again
(`reduction`). So a conjunct that cannot be said there is left out, and what is said must let through at
least the rows that Spark lets through. Comparisons of columns and constants of one type are the same in
both, NULL, NaN and infinities included. Texts are compared for equality only, since their order is the
database's collation, and never under NOT, since its equality may be coarser (char(n), collations that
ignore case).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streaming.ask.postgres.pg_values import PgColumn
from streaming.scalars.expression import Call, Col, Lit, Scalar
from streaming.scalars.types import is_decimal

_ORDERED = ("=", "<", "<=", ">", ">=")
_ORDERED_TYPES = ("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "date")
_NAMES = {
    "tinyint": "int2",
    "smallint": "int2",
    "int": "int4",
    "bigint": "int8",
    "float": "float4",
    "double": "float8",
    "boolean": "bool",
    "date": "date",
}


def weaker(
    filters: Iterable[Scalar], columns: Sequence[PgColumn], refs: Sequence[str]
) -> list[str]:
    """Conditions that hold of every row of which all `filters` hold.

    Args:
        columns: the relation's; `refs`: SQL of each.
    """
    found = [_weak(one, columns, refs) for one in filters]
    return [text for text in found if text is not None]


def _weak(scalar: Scalar, columns: Sequence[PgColumn], refs: Sequence[str]) -> str | None:
    """The scalar, weakened; None when nothing can be said."""
    if isinstance(scalar, Call) and scalar.function in ("and", "or"):
        parts = [_weak(arg, columns, refs) for arg in scalar.args]
        said = [part for part in parts if part is not None]
        if scalar.function == "or" and len(said) < len(parts):
            return None
        return f"({f' {scalar.function.upper()} '.join(said)})" if said else None
    exact = _same(scalar, columns, refs)
    return exact if exact is not None else _text_equality(scalar, columns, refs)


def _same(scalar: Scalar, columns: Sequence[PgColumn], refs: Sequence[str]) -> str | None:
    """The boolean scalar where both engines give it the same value, NULL included."""
    match scalar:
        case Col(type="boolean"):
            return refs[scalar.position]
        case Call(function="isnull", args=(Col() as one,)):
            return f"({refs[one.position]} IS NULL)"
        case Call(function="not", args=(arg,)):
            inner = _same(arg, columns, refs)
            return None if inner is None else f"(NOT {inner})"
        case Call(function="and" | "or"):
            parts = [_same(arg, columns, refs) for arg in scalar.args]
            if None in parts:
                return None
            return f"({f' {scalar.function.upper()} '.join(str(part) for part in parts)})"
        case Call(function=name, args=args) if name in (*_ORDERED, "<=>", "in"):
            values = [_value(arg, refs) for arg in args]
            if None in values or not _one_kind(args):
                return None
            texts = [str(value) for value in values]
            if name == "in":
                return f"({texts[0]} IN ({', '.join(texts[1:])}))"
            operator = "IS NOT DISTINCT FROM" if name == "<=>" else name
            return f"({texts[0]} {operator} {texts[1]})"
    return None


def _one_kind(args: Sequence[Scalar]) -> bool:
    return len({"decimal" if is_decimal(arg.type) else arg.type for arg in args}) == 1


def _value(scalar: Scalar, refs: Sequence[str]) -> str | None:
    """A column or a constant whose comparisons are the same in both engines."""
    if not (scalar.type in _ORDERED_TYPES or is_decimal(scalar.type)):
        return None
    match scalar:
        case Col():
            return refs[scalar.position]
        case Lit(value=None):
            return f"CAST(NULL AS {_NAMES.get(scalar.type, 'numeric')})"
        case Lit():
            return f"'{scalar.value}'::{_NAMES.get(scalar.type, 'numeric')}"
    return None


def _text_equality(scalar: Scalar, columns: Sequence[PgColumn], refs: Sequence[str]) -> str | None:
    """A text column equal to a constant, or to one of some."""
    match scalar:
        case Call(function="=" | "<=>" | "in", args=(Col(type="string") as one, *others)):
            pass
        case Call(function="=" | "<=>", args=(Lit() as lit, Col(type="string") as one)):
            others = [lit]
        case _:
            return None
    key = columns[one.position].key
    if key is None or key[0] == "uuid":
        return None
    texts = []
    for other in others:
        if not isinstance(other, Lit) or not isinstance(other.value, str) or "\0" in other.value:
            return None
        quoted = other.value.replace("'", "''")
        texts.append(f"'{quoted}'::{key[0]}")
    return f"({refs[one.position]} IN ({', '.join(texts)}))"
