"""Scalar SQL to typed scalars: sqlglot's expressions to `functions.call`, with Spark's literal
types.

Whatever has no line here is refused by name. A caller may hand in `intercept`, which sees every
node
first: that is how an aggregate query replaces grouped expressions and aggregates by columns.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from sqlglot import exp

from streaming.algebra.casts import cast
from streaming.algebra.forbidden import forbidden
from streaming.algebra.functions import call, unsupported
from streaming.algebra.scope import Scope, Text
from streaming.algebra.tree import Call, Col, Lit, Scalar
from streaming.algebra.types import INTEGRALS, NULL, decimal, simple_type
from streaming.errors import FrescoError

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
    exp.Like: "like",
    exp.DPipe: "concat",
    exp.Nullif: "nullif",
}
_UNARY: dict[type[exp.Expr], str] = {
    exp.Not: "not",
    exp.Upper: "upper",
    exp.Lower: "lower",
    exp.Length: "length",
    exp.Abs: "abs",
}
_QUERIES = (exp.Subquery, exp.Exists, exp.Select, exp.SetOperation)
_REFUSED: dict[type[exp.Expr], tuple[str, str]] = {
    exp.Window: ("window functions", "compute the window where the view is read"),
    exp.Filter: ("FILTER", "write SUM(CASE WHEN condition THEN value END)"),
    exp.Distinct: ("DISTINCT", "remove DISTINCT; group by the values instead"),
    exp.Escape: ("LIKE with ESCAPE", "use a pattern of % and _ only"),
    exp.TryCast: ("this CAST", "CAST(value AS type)"),
    exp.Placeholder: ("parameters", "write the value as a literal"),
    exp.Parameter: ("parameters", "write the value as a literal"),
    exp.Star: ("* inside an expression", "name the columns"),
}
_MORE = "ask for it, or compute it where the view is read"


class Expressions:
    """Builds scalars over one scope.

    Args:
        text: the SQL, for places.
        scope: the columns in scope.
        intercept: looked at before each node; what it returns stands for the node.
    """

    def __init__(self, text: Text, scope: Scope, intercept: Intercept | None = None) -> None:
        self._text = text
        self._scope = scope
        self._intercept = intercept

    def build(self, node: exp.Expr) -> Scalar:
        """The typed scalar of a node.

        Raises:
            FrescoError: SQL_UNSUPPORTED, SQL_FUNCTION_UNSUPPORTED, SQL_FUNCTION_FORBIDDEN,
                SQL_TYPES,
                SQL_LITERAL, SQL_UNKNOWN_COLUMN, SQL_AMBIGUOUS_COLUMN, each with line and column.
        """
        try:
            found = self._intercept(node) if self._intercept else None
            return found if found is not None else self._build(node)
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
        raise self._text.refusal(
            "SQL_UNKNOWN_COLUMN",
            f"no column {written} in the FROM clause",
            node,
            self._scope.nearest(parts[-1]) or "look at the relations' columns",
        )

    def _build(self, node: exp.Expr) -> Scalar:
        kind = type(node)
        if isinstance(node, exp.Column):
            return self.column(node)
        if kind in _BINARY:
            return call(_BINARY[kind], self.build(node.this), self.build(node.expression))
        if kind in _UNARY:
            return call(_UNARY[kind], self.build(node.this))
        match node:
            case exp.Paren():
                return self.build(node.this)
            case exp.Literal() | exp.Boolean() | exp.Null() | exp.RawString():
                return constant(node)
            case exp.Neg():
                return self._negative(node)
            case exp.Cast() | exp.TryCast():
                return self._cast(node)
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Between() if not node.args.get("symmetric"):
                parts = (node.this, node.args["low"], node.args["high"])
                return call("between", *map(self.build, parts))
        return self._function(node)

    def _function(self, node: exp.Expr) -> Scalar:
        match node:
            case exp.Case():
                return self._case(node)
            case exp.If():
                otherwise = node.args.get("false") or exp.Null()
                return call("if", *map(self.build, (node.this, node.args["true"], otherwise)))
            case exp.Coalesce():
                return call("coalesce", *map(self.build, (node.this, *node.expressions)))
            case exp.Concat():
                return call("concat", *map(self.build, node.expressions))
            case exp.Trim() if not node.args.get("expression") and not node.args.get("position"):
                return call("trim", self.build(node.this))
            case exp.Substring():
                bounds = [node.args[k] for k in ("start", "length") if node.args.get(k)]
                return call("substring", *map(self.build, (node.this, *bounds)))
            case exp.Round():
                places = [node.args["decimals"]] if node.args.get("decimals") else []
                return call("round", *map(self.build, (node.this, *places)))
        raise self._refused(node)

    def _negative(self, node: exp.Neg) -> Scalar:
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return constant(node.this, "-")
        arg = self.build(node.this)
        if isinstance(arg, Lit) and isinstance(arg.value, Decimal):
            return Lit(arg.value.copy_negate(), arg.type)
        if isinstance(arg, Lit) and isinstance(arg.value, int | float):
            return Lit(-arg.value, arg.type)
        return call("neg", arg)

    def _cast(self, node: exp.Cast) -> Scalar:
        """CAST; sqlglot writes a number's suffix (1L) as one too, and that is a literal.

        A cast of an integer stays a Call here: beside a decimal, Spark types it unlike a literal.
        """
        type_ = simple_type(node.to.sql(dialect="spark"))
        value = cast(self.build(node.this), type_)
        if isinstance(value, Lit) and type_ in INTEGRALS and not self._suffixed(node.this):
            return Call("cast", (value,), type_)
        return value

    def _suffixed(self, node: exp.Expr) -> bool:
        end = node.meta.get("end")
        return end is not None and self._text.sql[end : end + 1].isalpha()

    def _is(self, node: exp.Is) -> Scalar:
        value = self.build(node.this)
        if isinstance(node.expression, exp.Null):
            return call("isnull", value)
        return call("<=>", value, self.build(node.expression))

    def _in(self, node: exp.In) -> Scalar:
        if node.args.get("query") or not node.expressions:
            raise self._subquery(node)
        return call("in", *map(self.build, (node.this, *node.expressions)))

    def _case(self, node: exp.Case) -> Scalar:
        parts: list[Scalar] = []
        for branch in node.args["ifs"]:
            condition = self.build(branch.this)
            if node.this is not None:
                condition = call("=", self.build(node.this), condition)
            parts += [condition, self.build(branch.args["true"])]
        default = node.args.get("default")
        parts.append(self.build(default) if default else Lit(None, NULL))
        return call("case", *parts)

    def _subquery(self, node: exp.Expr) -> FrescoError:
        return self._text.refusal(
            "SQL_UNSUPPORTED",
            "a subquery inside an expression is not supported",
            node,
            "move it to FROM and join with it",
        )

    def _refused(self, node: exp.Expr) -> FrescoError:
        if isinstance(node, _QUERIES):
            return self._subquery(node)
        for kind, (what, todo) in _REFUSED.items():
            if isinstance(node, kind):
                return self._text.refusal("SQL_UNSUPPORTED", f"{what} is not supported", node, todo)
        word = self._text.word(node)
        error = forbidden(word) or forbidden(node.sql_name() if isinstance(node, exp.Func) else "")
        if error:
            return error
        if isinstance(node, exp.AggFunc):
            return self._text.refusal(
                "SQL_UNSUPPORTED",
                f"aggregate {word.upper()} is not supported here",
                node,
                "the aggregates are SUM, COUNT and AVG, in the select list and HAVING",
            )
        if isinstance(node, exp.Func):
            return unsupported(word)
        return self._text.refusal(
            "SQL_UNSUPPORTED", f"{node.key.upper()} is not supported in an expression", node, _MORE
        )


def constant(node: exp.Expr, sign: str = "") -> Lit:
    """A literal with Spark's type: 1 int, 3000000000 bigint, 1.50 decimal(3,2), 1e3 double."""
    if isinstance(node, exp.Null):
        return Lit(None, NULL)
    if isinstance(node, exp.Boolean):
        return Lit(bool(node.this), "boolean")
    if isinstance(node, exp.RawString) or node.is_string:
        return Lit(str(node.this), "string")
    text = sign + str(node.this)
    if "e" in text.lower():
        return Lit(float(text), "double")
    number = Decimal(text)
    if "." not in text:
        for type_, limit in (("int", 1 << 31), ("bigint", 1 << 63)):
            if -limit <= int(text) < limit:
                return Lit(int(text), type_)
    _, digits, exponent = number.as_tuple()
    scale = -int(exponent)
    type_ = simple_type(decimal(max(len(digits), scale), scale))
    return Lit(number, type_)
