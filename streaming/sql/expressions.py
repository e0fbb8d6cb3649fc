"""Scalar SQL to typed scalars: sqlglot's expressions to `functions.call`, with Spark's literals.

Whatever has no line here is refused by name. A caller may hand in `intercept`, which sees every
node first: that is how an aggregate query replaces grouped expressions and aggregates by columns.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Sequence
from decimal import Decimal

from sqlglot import exp

from streaming.errors import FrescoError
from streaming.scalars.casts import cast, single
from streaming.scalars.expression import Call, Col, Lit, Scalar
from streaming.scalars.functions import AGGREGATES, CALLS, call, unsupported
from streaming.scalars.limits import checked_scalar
from streaming.scalars.substitution import chained
from streaming.scalars.types import (
    BITS,
    INTEGRALS,
    MAX_PRECISION,
    NULL,
    decimal,
    is_number,
    simple_type,
)
from streaming.sql.forbidden import forbidden
from streaming.sql.scope import Scope, Text

SUPPORTED = (
    "integers, decimals of up to 38 digits, floats, booleans, texts, bytes, dates, timestamps, uuid and"
    " json"
)
"""Types at a source, in words: each database has its own names for them."""

Intercept = Callable[[exp.Expr], Scalar | None]

_BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "<=>",
    exp.NullSafeNEQ: "isdistinct",
    exp.And: "and",
    exp.Or: "or",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.DPipe: "concat",
}
_LONG: dict[type[exp.Expr], str] = {
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
}
_NUMBER = re.compile(
    r"(?P<digits>-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?P<exponent>[eE][+-]?[0-9]+)?)(?P<suffix>[lLsSyYdDfF]|[bB][dD]|)"
)
_INTEGRAL_SUFFIXES = {"L": "bigint", "S": "smallint", "Y": "tinyint"}
_SCALAR = (
    "an aggregate without GROUP BY gives one row, so write it in FROM, "
    "CROSS JOIN (SELECT SUM(x) AS s FROM ...) AS q, and use q.s; "
    "compute others where the view is read"
)
_MORE = "compute it where the view is read"


class Expressions:
    """Builds scalars over one scope.

    Args:
        text: the SQL, for places.
        scope: the columns in scope.
        intercept: looked at before each node; what it returns stands for the node.
        outputs: names of the select list in lower case, which are no columns here.
    """

    def __init__(
        self,
        text: Text,
        scope: Scope,
        intercept: Intercept | None = None,
        outputs: Container[str] = (),
    ) -> None:
        self._text = text
        self._scope = scope
        self._intercept = intercept
        self._outputs = outputs

    def build(self, node: exp.Expr) -> Scalar:
        """The typed scalar of a node.

        Raises:
            FrescoError: SQL_UNSUPPORTED, SQL_FUNCTION_UNSUPPORTED, SQL_FUNCTION_FORBIDDEN,
                SQL_TYPES,
                SQL_LITERAL, SQL_UNKNOWN_COLUMN, SQL_AMBIGUOUS_COLUMN, each with line and column.
        """
        try:
            found = self._intercept(node) if self._intercept else None
            built = found if found is not None else checked_scalar(self._build(node))
            if node.meta.get("plus") and not is_number(built.type):
                raise FrescoError(
                    "SQL_TYPES",
                    f"+ before {built.type}",
                    todo="leave the + out",
                )
            return built
        except FrescoError as error:
            raise self._text.placed(error, node) from error

    def column(self, node: exp.Column) -> Col:
        """The column a name means."""
        parts = [part.name for part in node.parts]
        found = self._scope.resolve(parts)
        if len(found) == 1:
            return found[0].column
        written = ".".join(parts)
        if found:
            choices = " or ".join(".".join((*n.qualifier, n.name or "")) for n in found)
            raise self._text.refusal(
                "SQL_AMBIGUOUS_COLUMN",
                f"column {written} could be {choices}",
                node,
                "qualify it with the table's alias",
            )
        if written.lower() in self._outputs:
            raise self._text.refusal(
                "SQL_UNKNOWN_COLUMN",
                f"{written} is a name that this select list gives, and no column of its FROM clause",
                node,
                "write the expression again, or name it in a subquery: "
                f"SELECT {written} FROM (SELECT ... AS {written} FROM ...) AS q",
            )
        if (type_ := self._scope.unsupported(parts)) is not None:
            raise self._text.refusal(
                "SQL_COLUMN_TYPE",
                f"column {written} is left out: its type at the source, {type_}, is not supported",
                node,
                f"supported are {SUPPORTED}; keep what the view needs of it in a column of such a type, "
                "by a trigger for example (generated columns are not in every log)",
            )
        raise self._text.refusal(
            "SQL_UNKNOWN_COLUMN",
            f"no column {written} in the FROM clause",
            node,
            self._scope.nearest(parts[-1]) or "look at the relations' columns",
        )

    def _build(self, node: exp.Expr) -> Scalar:
        kind = type(node)
        if isinstance(node, exp.And | exp.Or):
            return self._logical(node)
        if kind in _BINARY:
            return self._binary(_BINARY[kind], node)
        match node:
            case exp.Column():
                return self.column(node)
            case exp.Paren():
                return self.build(node.this)
            case exp.Literal() | exp.Boolean() | exp.Null():
                return constant(node)
            case exp.Not():
                return call("not", self.build(node.this))
            case exp.Neg():
                return self._negative(node)
            case exp.Cast():
                return self._cast(node)
            case exp.Is():
                return self._is(node)
            case exp.Like():
                like = call("like", self.build(node.this), self.build(node.expression))
                return call("not", like) if node.args.get("negate") else like
            case exp.In() if node.expressions:
                return call("in", *map(self.build, (node.this, *node.expressions)))
            case exp.Between():
                parts = (node.this, node.args["low"], node.args["high"])
                return call("between", *map(self.build, parts))
            case exp.Case():
                return self._case(node)
            case exp.Trim():
                return self._called("trim", [node.this])
            case exp.Substring():
                bounds = [node.args[k] for k in ("start", "length") if node.args.get(k)]
                return self._called("substring", [node.this, *bounds])
            case exp.Anonymous():
                return self._called(node.name, node.expressions)
        raise self._refused(node)

    def _logical(self, node: exp.Connector) -> Scalar:
        """AND or OR of all the terms that stand beside each other."""
        kind, name, terms = type(node), _BINARY[type(node)], [self.build(node.expression)]
        left: exp.Expr = node.this
        known = self._intercept(left) if self._intercept else None
        while known is None and type(left) is kind:
            terms.append(self.build(left.expression))
            left = left.this
            known = self._intercept(left) if self._intercept else None
        terms.append(self.build(left) if known is None else known)
        return chained(lambda one, other: call(name, one, other), terms[::-1])

    def _binary(self, name: str, node: exp.Expr) -> Scalar:
        """An operator; where its operands do not go together it is told as it is written."""
        sides = self.build(node.this), self.build(node.expression)
        try:
            return call(name, *sides)
        except FrescoError as error:
            if error.code != "SQL_TYPES":
                raise
            word = _LONG.get(type(node), "") if "operator" in node.meta else ""
            word = word or self._text.word(node).upper()
            what = f"operator {word}: {error.what.split(': ', 1)[1]}"
            raise FrescoError(error.code, what, todo=error.todo) from error

    def _called(self, word: str, arguments: Sequence[exp.Expr]) -> Scalar:
        """A function by the name that is written, with as many arguments as Spark wants."""
        if word.lower() in AGGREGATES:
            raise FrescoError(
                "SQL_UNSUPPORTED",
                f"the aggregate {word.upper()} is not supported here",
                todo="aggregates stand in the select list and in HAVING",
            )
        if word.lower() not in CALLS:
            raise forbidden(word) or unsupported(word)
        name, least, most = CALLS[word.lower()]
        if not least <= len(arguments) <= most:
            few = str(least) if least == most else f"{least} to {most}"
            raise FrescoError(
                "SQL_FUNCTION_UNSUPPORTED",
                f"function {word.upper()} of {len(arguments)} arguments is not supported",
                todo=f"give it {few}",
            )
        return call(name, *map(self.build, arguments))

    def _negative(self, node: exp.Neg) -> Scalar:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return constant(node.this, "-")
        arg = self.build(node.this)
        if isinstance(arg, Lit) and isinstance(arg.value, Decimal):
            return Lit(arg.value.copy_negate(), arg.type)
        if isinstance(arg, Lit) and isinstance(arg.value, float):
            return Lit(-arg.value, arg.type)
        if (
            isinstance(arg, Lit)
            and arg.type in INTEGRALS
            and _fits(f"{-int(str(arg.value))}", arg.type)
        ):
            return Lit(-int(str(arg.value)), arg.type)
        return call("neg", arg)

    def _cast(self, node: exp.Cast) -> Scalar:
        """A cast of an integer stays a Call: beside a decimal, Spark types it unlike a literal."""
        type_ = simple_type(node.to.meta["written"])
        value = cast(self.build(node.this), type_)
        if isinstance(value, Lit) and type_ in INTEGRALS:
            return Call("cast", (value,), type_)
        return value

    def _is(self, node: exp.Is) -> Scalar:
        value = self.build(node.this)
        if isinstance(node.expression, exp.Null):
            return call("isnull", value)
        return call("<=>", value, self.build(node.expression))

    def _case(self, node: exp.Case) -> Scalar:
        parts: list[Scalar] = []
        operand = None if node.this is None else self.build(node.this)
        for branch in node.args["ifs"]:
            condition = self.build(branch.this)
            if operand is not None:
                condition = call("=", operand, condition)
            parts += [condition, self.build(branch.args["true"])]
        default = node.args.get("default")
        parts.append(self.build(default) if default else Lit(None, NULL))
        return call("case", *parts)

    def _refused(self, node: exp.Expr) -> FrescoError:
        if isinstance(node, exp.Query):
            what, todo = "a subquery inside an expression", _SCALAR
        else:
            what, todo = f"{self._text.word(node).upper()} in an expression", _MORE
        at = self._text.own(node)
        return self._text.refusal("SQL_UNSUPPORTED", f"{what} is not supported", node, todo, at)


def constant(node: exp.Expr, sign: str = "") -> Lit:
    """A literal with Spark's type: 1 int, 3000000000 bigint, 1.50 decimal(3,2), 1e3 double."""
    if isinstance(node, exp.Null):
        return Lit(None, NULL)
    if isinstance(node, exp.Boolean):
        return Lit(bool(node.this), "boolean")
    if node.is_string:
        return Lit(str(node.this), "string")
    return number(sign + str(node.this))


def number(written: str) -> Lit:
    """A number as Spark reads it: 1 int, 1L bigint, 1.50 decimal(3,2), 1e3 and 1D double.

    Raises:
        FrescoError: SQL_LITERAL for one that its type does not hold, or not exactly.
    """
    match = _NUMBER.fullmatch(written)
    if match is None:
        raise _no_literal(written, "any number")
    digits, suffix = match["digits"], match["suffix"].upper()
    if suffix in _INTEGRAL_SUFFIXES:
        type_ = _INTEGRAL_SUFFIXES[suffix]
        if not _fits(digits, type_):
            raise _no_literal(written, type_)
        return Lit(int(digits), type_)
    if suffix in ("D", "F") or (not suffix and match["exponent"]):
        return _floating(digits, "float" if suffix == "F" else "double")
    if not suffix and "." not in digits:
        for type_ in ("int", "bigint"):
            if _fits(digits, type_):
                return Lit(int(digits), type_)
    sign, figures, exponent = Decimal(digits).as_tuple()
    assert isinstance(exponent, int)
    precision = max(len(figures) + max(0, exponent), -exponent)
    if precision > MAX_PRECISION:
        raise _no_literal(written, f"decimal({MAX_PRECISION},s)")
    figures += (0,) * exponent
    return Lit(Decimal((sign, figures, min(0, exponent))), decimal(precision, max(0, -exponent)))


def _fits(digits: str, type_: str) -> bool:
    limit = 1 << BITS[type_] - 1
    return len(digits) < 30 and -limit <= int(digits) < limit


def _floating(digits: str, type_: str) -> Lit:
    value = float(digits)
    if not math.isfinite(value) or (type_ == "float" and single(value) != Decimal(digits)):
        raise _no_literal(digits, type_)
    return Lit(value, type_)


def _no_literal(written: str, type_: str) -> FrescoError:
    return FrescoError(
        "SQL_LITERAL",
        f"{written} is not a literal of type {type_}",
        todo="write a number that the type holds exactly",
    )
