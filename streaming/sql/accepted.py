"""What a view's text may consist of: each class of node with the arguments that are consumed.

sqlglot keeps what it reads in arguments that a builder may never look at, so that a clause would be
dropped without a word. `check` walks the tree once, before the builder: a class that is not in
`ACCEPTED`, an argument that is not there, a value that is not the one named, and parts in another
order than Spark's are refused in the words of the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from streaming.errors import FrescoError
from streaming.scalars.functions import unsupported
from streaming.scalars.types import simple_type
from streaming.sql.forbidden import forbidden
from streaming.sql.scope import Text

_ANY = object()
"""Every value of the argument is consumed."""
_NOT_SET: tuple[Any, ...] = (None, False, "", [])


def _all(*names: str) -> dict[str, Any]:
    return dict.fromkeys(names, _ANY)


_BINARY = _all("this", "expression")
ACCEPTED: Mapping[type[exp.Expr], Mapping[str, Any]] = {
    exp.Select: _all("with_", "expressions", "from_", "joins", "where", "group", "having"),
    exp.Union: _all("with_", "this", "expression"),
    exp.Subquery: _all("this", "alias"),
    exp.With: _all("expressions"),
    exp.CTE: _all("alias", "this"),
    exp.From: _all("this"),
    exp.Join: {"kind": ("INNER", "CROSS"), **_all("this", "on", "using")},
    exp.Table: _all("catalog", "db", "this", "alias"),
    exp.TableAlias: _all("this", "columns"),
    exp.Where: _all("this"),
    exp.Group: _all("expressions"),
    exp.Having: _all("this"),
    exp.Alias: _all("this", "alias"),
    exp.Star: {},
    exp.Column: _all("catalog", "db", "table", "this"),
    exp.Identifier: _all("this", "quoted"),
    exp.Literal: _all("this", "is_string"),
    exp.Boolean: _all("this"),
    exp.Null: {},
    exp.Paren: _all("this"),
    exp.Anonymous: _all("this", "expressions"),
    exp.Substring: _all("this", "start", "length"),
    exp.Trim: _all("this"),
    exp.Cast: _all("this", "to"),
    exp.TryCast: _all("this", "to"),
    exp.DataType: {"this": _ANY, "expressions": _ANY, "nested": (False,)},
    exp.DataTypeParam: _all("this"),
    exp.Case: _all("this", "ifs", "default"),
    exp.If: _all("this", "true"),
    exp.Is: _all("this", "expression"),
    exp.In: _all("this", "expressions"),
    exp.Between: _all("this", "low", "high"),
    exp.Like: {**_BINARY, "negate": _ANY},
    exp.Not: _all("this"),
    exp.Neg: _all("this"),
    exp.DPipe: {**_BINARY, "safe": (True,)},
    exp.Div: {**_BINARY, "typed": (False,), "safe": (True,)},
    **dict.fromkeys((exp.And, exp.Or, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE), _BINARY),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ, exp.Add, exp.Sub, exp.Mul, exp.Mod), _BINARY),
}
"""Each class of node with its arguments in the order of the text, and the values they may have.
Three flags say what sqlglot's dialect thinks of NULL and division by 0: so long as they are what
they always are, they mean nothing to the builder, which has Spark's rules."""
_LATER = "compute it where the view is read"
_NO_ORDER = "a view has no order; sort and cut it where it is read"
_IN = (
    "join with the distinct values, (SELECT y FROM ... GROUP BY y) AS d ON x = d.y, which repeats no "
    "row; what is NOT IN or NOT EXISTS is computed where the view is read"
)
REFUSED_PARTS: Mapping[str, tuple[str, str]] = {
    "limit": ("LIMIT", _NO_ORDER),
    "offset": ("OFFSET", _NO_ORDER),
    "order": ("ORDER BY", _NO_ORDER),
    "sort": ("SORT BY", _NO_ORDER),
    "cluster": ("CLUSTER BY", "remove it; the pipeline decides the layout"),
    "distribute": ("DISTRIBUTE BY", "remove it; the pipeline decides the layout"),
    "qualify": ("QUALIFY", _LATER),
    "windows": ("WINDOW", "compute the window where the view is read"),
    "laterals": ("LATERAL VIEW", "store the rows in a table of their own"),
    "pivots": ("PIVOT", "write SUM(CASE WHEN ... END) per column"),
    "sample": ("TABLESAMPLE", "a sample has no source state; use WHERE"),
    "version": ("VERSION AS OF", "a view is over the present; use AS OF when reading it"),
    "by_name": ("UNION BY NAME", "use UNION ALL and put the columns in order"),
    "recursive": ("WITH RECURSIVE", "write the joins out"),
    "except_": ("* EXCEPT", "name the columns"),
    "replace": ("* REPLACE", "name the columns"),
    "symmetric": ("BETWEEN SYMMETRIC", "write BETWEEN with the lower value first, and OR"),
    "all": ("GROUP BY ALL", "name the grouping expressions"),
    "cube": ("CUBE", "write one view for each set of grouping expressions"),
    "rollup": ("ROLLUP", "write one view for each set of grouping expressions"),
    "grouping_sets": ("GROUPING SETS", "write one view for each set of grouping expressions"),
}
"""What SQL calls an argument that no view may have, and what to do instead."""
REFUSED: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.Window: ("OVER, a window function,", "compute the window where the view is read"),
    exp.Filter: ("FILTER", "write SUM(CASE WHEN condition THEN value END)"),
    exp.Escape: ("ESCAPE", "use a pattern of % and _ only"),
    exp.Exists: ("EXISTS", _IN),
    exp.Values: ("VALUES", "store the rows in a table of their own"),
    exp.Lateral: ("LATERAL", "join with a subquery that names no column of the others"),
    exp.Interval: ("INTERVAL", _LATER),
    exp.Extract: ("EXTRACT", _LATER),
    exp.Cube: REFUSED_PARTS["cube"],
    exp.Rollup: REFUSED_PARTS["rollup"],
    exp.GroupingSets: REFUSED_PARTS["grouping_sets"],
    exp.Placeholder: ("a parameter", "write the value as a literal"),
    exp.Parameter: ("a parameter", "write the value as a literal"),
    exp.WithinGroup: ("WITHIN GROUP", _LATER),
    exp.Lambda: ("->, a function of its own,", _LATER),
}
_TYPED_LITERALS = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")


def check(text: Text, root: exp.Expr) -> None:
    """Refuses the first node, from the top, that is not accepted as it stands.

    Raises:
        FrescoError: SQL_SYNTAX, SQL_UNSUPPORTED, SQL_TYPE_UNSUPPORTED, SQL_FUNCTION_UNSUPPORTED,
            SQL_FUNCTION_FORBIDDEN, each with line and column.
    """
    checked = _Check(text)
    for node in root.walk(bfs=False):
        checked.node(node)


class _Check:
    """Refuses what the builder would not look at."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def node(self, node: exp.Expr) -> None:
        known = ACCEPTED.get(type(node))
        if known is None:
            raise self._refused(node)
        for key, value in node.args.items():
            if any(value is nothing or value == nothing for nothing in _NOT_SET):
                continue
            allowed = known.get(key, ())
            if allowed is not _ANY and value not in allowed:
                raise self._part(node, key, value)
        if isinstance(node, exp.Identifier) and self._written(node)[:1] in ("'", '"'):
            what, todo = f"a name in quotes, {self._written(node)},", "write it in `backticks`"
            raise self._unsupported(what, node, todo)
        if isinstance(node, exp.Cast):
            self._cast(node)

    def _written(self, node: exp.Expr) -> str:
        start = node.meta.get("start")
        return "" if start is None else self._text.sql[start : node.meta["end"] + 1]

    def _unsupported(self, what: str, node: exp.Expr, todo: str) -> FrescoError:
        at = self._text.own(node)
        return self._text.refusal("SQL_UNSUPPORTED", f"{what} is not supported", node, todo, at)

    def _cast(self, node: exp.Cast) -> None:
        """CAST(x AS type), x::type, or a typed literal, DATE '2024-01-31'."""
        try:
            simple_type(node.to.meta["written"])
        except FrescoError as error:
            raise self._text.placed(error, node.to) from error
        if node.meta.get("function") or isinstance(node, exp.TryCast):
            return
        type_ = str(node.to.meta["written"]).upper()
        if type_ not in _TYPED_LITERALS or not isinstance(node.this, exp.Literal):
            raise self._unsupported(f"{type_} before a literal", node, "write CAST(value AS type)")

    def _part(self, node: exp.Expr, key: str, value: Any) -> FrescoError:
        at = value[0] if isinstance(value, list) else value
        place = at if isinstance(at, exp.Expr) else node
        if isinstance(node, exp.Join):
            return self._join(node)
        if isinstance(node, exp.Union) and key == "distinct":
            return self._set_operation(node, "UNION")
        if isinstance(node, exp.Select) and key == "distinct":
            return self._unsupported("SELECT DISTINCT", node, "group by all columns instead")
        if isinstance(node, exp.In) and key == "query":
            return self._unsupported("IN with a subquery", node, _IN)
        name, todo = REFUSED_PARTS.get(key, ("", ""))
        if key == "version":
            name = f"{self._text.word(place).upper()} AS OF"
        if key == "pivots":
            name = self._text.word(place).upper()
        if not name:
            name = f"{self._text.word(place).upper()} in this form"
        return self._unsupported(name, place, todo or _LATER)

    def _join(self, node: exp.Join) -> FrescoError:
        words = [str(node.args.get(key) or "") for key in ("method", "side", "kind")]
        name = " ".join(word for word in words if word not in ("", "OUTER")).upper()
        todo = "only inner joins can be maintained so far; filter or union instead"
        return self._unsupported(f"{name or 'this'} JOIN", node, todo)

    def _set_operation(self, node: exp.Expr, name: str) -> FrescoError:
        todo = "write UNION ALL, and group by all columns where rows may not stand twice"
        return self._unsupported(name, node, todo)

    def _refused(self, node: exp.Expr) -> FrescoError:
        word = self._text.word(node)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, word.upper())
        if isinstance(node, exp.Distinct):
            return self._distinct(node)
        for kind, (name, todo) in REFUSED.items():
            if isinstance(node, kind):
                return self._unsupported(name, node, todo)
        error = forbidden(word)
        if error is None and "function" in node.meta:
            error = unsupported(word)
        if error is not None:
            return self._text.placed(error, node)
        return self._unsupported(word.upper(), node, _LATER)

    def _distinct(self, node: exp.Distinct) -> FrescoError:
        call = self._text.word(node.parent) if node.parent is not None else ""
        todo = (
            "count over the distinct values: SELECT k, COUNT(x) AS n "
            "FROM (SELECT k, x FROM ... GROUP BY k, x) AS d GROUP BY k"
        )
        return self._unsupported(f"{call.upper()}(DISTINCT)", node, todo)
