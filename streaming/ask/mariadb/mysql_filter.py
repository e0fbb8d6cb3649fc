"""A view's conditions in MariaDB's SQL, weakened where the two engines might not agree.

As `pgfilter` does for PostgreSQL: what is said must let through at least the rows that Spark lets
through, and the view's operators apply the condition again. The condition is built as sqlglot's
expression and written in its mysql dialect, which knows how names and constants are quoted there. FLOAT
is left out, since its constants are not what is stored, and texts are compared for equality only, never
under NOT: a collation may take different texts for equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from sqlglot import exp

from streaming.ask.mariadb.mysql_values import is_exact
from streaming.scalars.expression import Call, Col, Lit, Scalar
from streaming.scalars.types import is_decimal

DIALECT = "mysql"
_COMPARISONS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
    "<=>": exp.NullSafeEQ,
}
_CASTS = {"double": "DOUBLE", "date": "DATE"}


def weaker(filters: Iterable[Scalar], names: Sequence[str]) -> list[str]:
    """Conditions that hold of every row of which all `filters` hold; `names` are the columns'."""
    found = [_weak(one, names) for one in filters]
    return [one.sql(dialect=DIALECT) for one in found if one is not None]


def _weak(scalar: Scalar, names: Sequence[str]) -> exp.Expression | None:
    """The scalar, weakened; None when nothing can be said."""
    if isinstance(scalar, Call) and scalar.function in ("and", "or"):
        parts = [_weak(arg, names) for arg in scalar.args]
        said = [part for part in parts if part is not None]
        if not said or (scalar.function == "or" and len(said) < len(parts)):
            return None
        return exp.paren(exp.and_(*said) if scalar.function == "and" else exp.or_(*said))
    exact = _same(scalar, names)
    return exact if exact is not None else _text_equality(scalar, names)


def _same(scalar: Scalar, names: Sequence[str]) -> exp.Expression | None:
    """The boolean scalar where both engines give it the same value, NULL included."""
    match scalar:
        case Col(type="boolean"):
            return _column(names[scalar.position])
        case Call(function="isnull", args=(Col() as one,)):
            return exp.paren(exp.Is(this=_column(names[one.position]), expression=exp.Null()))
        case Call(function="not", args=(arg,)):
            inner = _same(arg, names)
            return None if inner is None else exp.paren(exp.Not(this=exp.paren(inner)))
        case Call(function="and" | "or", args=args):
            parts = [_same(arg, names) for arg in args]
            found = [part for part in parts if part is not None]
            if len(found) < len(parts):
                return None
            return exp.paren(exp.and_(*found) if scalar.function == "and" else exp.or_(*found))
        case Call(function=name, args=args) if name in (*_COMPARISONS, "in"):
            values = [_value(arg, names) for arg in args]
            known = [value for value in values if value is not None]
            if len(known) < len(values) or not _one_kind(args):
                return None
            if name == "in":
                return exp.paren(exp.In(this=known[0], expressions=known[1:]))
            return exp.paren(_COMPARISONS[name](this=known[0], expression=known[1]))
    return None


def _one_kind(args: Sequence[Scalar]) -> bool:
    return len({"decimal" if is_decimal(arg.type) else arg.type for arg in args}) == 1


def _value(scalar: Scalar, names: Sequence[str]) -> exp.Expression | None:
    """A column or a constant whose comparisons are the same in both engines."""
    if not is_exact(scalar.type):
        return None
    match scalar:
        case Col():
            return _column(names[scalar.position])
        case Lit(value=None):
            return exp.Null()
        case Lit(value=Decimal() as number):
            return exp.Literal.number(f"{number:f}")  # with an exponent it would be a DOUBLE
        case Lit(value=bool() as flag):
            return exp.Literal.number(int(flag))
        case Lit() if scalar.type in _CASTS:
            return exp.cast(exp.Literal.string(str(scalar.value)), _CASTS[scalar.type])
        case Lit():
            return exp.Literal.number(str(scalar.value))
    return None


def _text_equality(scalar: Scalar, names: Sequence[str]) -> exp.Expression | None:
    """A text column equal to a constant, or to one of some."""
    match scalar:
        case Call(function="=" | "<=>" | "in", args=(Col(type="string") as one, *others)):
            pass
        case Call(function="=" | "<=>", args=(Lit() as lit, Col(type="string") as one)):
            others = [lit]
        case _:
            return None
    texts = [other.value for other in others if isinstance(other, Lit)]
    if len(texts) < len(others) or not all(isinstance(t, str) and "\0" not in t for t in texts):
        return None
    literals = [exp.Literal.string(str(text)) for text in texts]
    return exp.paren(exp.In(this=_column(names[one.position]), expressions=literals))


def _column(name: str) -> exp.Expression:
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier("r"))
