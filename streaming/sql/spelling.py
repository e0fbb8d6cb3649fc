"""Whether a tree is what stands in the text, word for word.

sqlglot forgives much that Spark does not: a comma too many, a bracket that is missing, BETWEEN without
AND, an operator for a name. None of that is left in its tree. So the tree is spelled out again and held
against the words of the text, with no more freedom than Spark's grammar has: AS, INNER and `;` may be
left out, a few operators have two spellings, + may stand before a value. The first word that is not in
its place is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

from streaming.errors import FrescoError
from streaming.sql.lexer import Lexeme, joined
from streaming.sql.scope import Text

_OPERATORS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.And: ("AND",),
    exp.Or: ("OR",),
    exp.EQ: ("=", "=="),
    exp.NEQ: ("<>", "!="),
    exp.LT: ("<",),
    exp.LTE: ("<=",),
    exp.GT: (">",),
    exp.GTE: (">=",),
    exp.Add: ("+",),
    exp.Sub: ("-",),
    exp.Mul: ("*",),
    exp.Div: ("/",),
    exp.Mod: ("%",),
    exp.DPipe: ("||",),
}
_LEVELS: Mapping[type[exp.Expr], int] = {
    **{exp.Or: 1, exp.And: 2, exp.Not: 3},
    **dict.fromkeys((exp.Is, exp.In, exp.Between, exp.Like, exp.NullSafeNEQ), 4),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), 5),
    **dict.fromkeys((exp.Add, exp.Sub, exp.DPipe), 10),
    **dict.fromkeys((exp.Mul, exp.Div, exp.Mod), 11),
    exp.Neg: 12,
}
"""How tightly Spark's grammar binds (`booleanExpression`, `valueExpression`), from OR upwards. What
is not here is bound tightest. Operators of one level are read from the left."""
_VALUE, _TIGHTEST = 5, 13
_JOINERS = """
    ANTI CROSS EXCEPT FULL INNER INTERSECT JOIN LATERAL LEFT MINUS NATURAL ON RIGHT SEMI UNION USING
"""
_NO_TABLE_ALIAS = frozenset(_JOINERS.split())
"""Spark's `strictNonReserved` words: names of everything but a table in FROM."""
_END = Lexeme("end", "the end", 0, 0)


def spelled(text: Text, root: exp.Expr) -> None:
    """Refuses a text that is not the tree's, word for word.

    Raises:
        FrescoError: SQL_SYNTAX, with line and column of the first word that is not in its place.
    """
    _Speller(text).all(root)


class _Speller:
    """The words of a text and how far they have been read."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._words = joined(text.lexemes)
        self._at = 0
        self._rules: Mapping[type[exp.Expr], Callable[..., None]] = {
            exp.Select: self._select,
            exp.Union: self._union,
            exp.Subquery: self._subquery,
            exp.Table: self._table,
            exp.Alias: self._alias,
            exp.Column: self._column,
            exp.Identifier: self._name,
            exp.Star: lambda _: self._take("*"),
            exp.Literal: self._literal,
            exp.Boolean: lambda node: self._take("TRUE" if node.this else "FALSE"),
            exp.Null: lambda _: self._take("NULL"),
            exp.Paren: self._paren,
            exp.Anonymous: self._call,
            exp.Substring: self._substring,
            exp.Trim: self._trim,
            exp.Cast: self._cast,
            exp.TryCast: self._cast,
            exp.Case: self._case,
            exp.Neg: self._minus,
            exp.Not: self._not,
            exp.Is: self._predicate,
            exp.In: self._predicate,
            exp.Between: self._predicate,
            exp.Like: lambda node: self._predicate(node, bool(node.args.get("negate"))),
            exp.NullSafeEQ: self._null_safe,
            exp.NullSafeNEQ: self._null_safe,
        }

    def all(self, root: exp.Expr) -> None:
        self._node(root)
        while self._next().text == ";":
            self._at += 1
        if self._next() is not _END:
            raise self._wrong()

    def _next(self, ahead: int = 0) -> Lexeme:
        at = self._at + ahead
        return self._words[at] if at < len(self._words) else _END

    def _is(self, *words: str) -> bool:
        """Whether these words are the next ones."""
        found = [self._next(ahead) for ahead in range(len(words))]
        return all(
            f.kind in ("word", "operator") and f.text.upper() == w
            for f, w in zip(found, words, strict=True)
        )

    def _take(self, *words: str) -> None:
        for word in words:
            if not self._is(word):
                raise self._wrong()
            self._at += 1

    def _may(self, *words: str) -> bool:
        """Takes these words if they are the next ones."""
        if not self._is(*words):
            return False
        self._at += len(words)
        return True

    def _wrong(self) -> FrescoError:
        word = self._next()
        offset = len(self._text.sql.rstrip()) if word is _END else word.start
        return FrescoError(
            "SQL_SYNTAX",
            f"this is not SQL that can be read: {word.text} is not expected here",
            where=self._text.where(offset),
            todo="correct it; views are in Spark's dialect",
        )

    # Parts ----------------------------------------------------------------------------------------

    def _node(self, node: exp.Expr) -> None:
        operators = _OPERATORS.get(type(node))
        if operators is None:
            self._rules[type(node)](node)
            return
        # Chains of AND, OR, + are as deep as they are long.
        chain = [node]
        while type(chain[-1].this) in _OPERATORS:
            chain.append(chain[-1].this)
        for part in chain[:-1]:
            if _LEVELS[type(part.this)] < _LEVELS[type(part)]:
                raise self._wrong()
        self._side(chain[-1].this, _LEVELS[type(chain[-1])])
        for part in reversed(chain):
            if not any(self._may(operator) for operator in _OPERATORS[type(part)]):
                raise self._wrong()
            self._side(part.expression, _LEVELS[type(part)] + 1)

    def _side(self, node: exp.Expr, least: int) -> None:
        """An operand that is bound at least as tightly as `least`, without brackets."""
        inner = node
        while isinstance(inner, exp.Paren) and "start" not in inner.meta:
            inner = inner.this
        if _LEVELS.get(type(inner), _TIGHTEST) < least:
            word = self._next()
            raise FrescoError(
                "SQL_SYNTAX",
                f"the operators round {word.text} are not read in one way everywhere",
                where=self._text.where(word.start),
                todo="write brackets round what belongs together",
            )
        self._value(node)

    def _value(self, node: exp.Expr) -> None:
        """A value, before which + may stand."""
        while self._may("+"):
            pass
        self._node(node)

    def _several(self, nodes: Sequence[exp.Expr], read: Callable[[exp.Expr], None]) -> None:
        for position, node in enumerate(nodes):
            if position:
                self._take(",")
            read(node)

    def _brackets(self, read: Callable[[], None]) -> None:
        self._take("(")
        read()
        self._take(")")

    def _name(self, node: exp.Expr) -> None:
        word = self._next()
        if word.kind not in ("word", "name") or word.text != node.name:
            raise self._wrong()
        self._at += 1

    def _select(self, node: exp.Select) -> None:
        self._with(node)
        self._take("SELECT")
        self._several(node.expressions, self._output)
        self._take("FROM")
        self._node(node.args["from_"].this)
        for join in node.args.get("joins") or ():
            self._join(join)
        for key, words in (("where", ("WHERE",)), ("having", ("HAVING",))):
            if key == "having" and node.args.get("group"):
                self._take("GROUP", "BY")
                self._several(node.args["group"].expressions, self._value)
            if node.args.get(key):
                self._take(*words)
                self._value(node.args[key].this)

    def _output(self, node: exp.Expr) -> None:
        """A select item; +k is not named k."""
        if isinstance(node, exp.Column):
            self._node(node)
        else:
            self._item(node)

    def _item(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Star):
            self._take("*")
        else:
            self._value(node)

    def _with(self, node: exp.Expr) -> None:
        clause = node.args.get("with_")
        if clause is not None:
            self._take("WITH")
            self._several(clause.expressions, self._cte)

    def _cte(self, node: exp.Expr) -> None:
        self._name(node.args["alias"].this)
        self._columns(node.args["alias"])
        self._may("AS")
        self._brackets(lambda: self._node(node.this))

    def _columns(self, alias: exp.Expr) -> None:
        columns = alias.args.get("columns")
        if columns:
            self._brackets(lambda: self._several(columns, self._name))

    def _union(self, node: exp.Union) -> None:
        self._with(node)
        self._node(node.this)
        self._take("UNION", "ALL")
        self._node(node.expression)

    def _subquery(self, node: exp.Subquery) -> None:
        self._brackets(lambda: self._node(node.this))
        self._named(node)

    def _table(self, node: exp.Table) -> None:
        for position, part in enumerate(node.parts):
            if position:
                self._take(".")
            self._name(part)
        self._named(node)

    def _named(self, node: exp.Expr) -> None:
        alias = node.args.get("alias")
        if alias is not None:
            self._may("AS")
            word = self._next()
            if word.kind == "word" and word.text.upper() in _NO_TABLE_ALIAS:
                raise self._wrong()
            self._name(alias.this)
            self._columns(alias)

    def _join(self, node: exp.Join) -> None:
        kind = str(node.args.get("kind") or "")
        if not self._may(","):
            if kind:
                self._take(kind)
            self._take("JOIN")
        self._node(node.this)
        on = node.args.get("on")
        # Where there is no ON sqlglot writes ON TRUE.
        if on is not None and (self._is("ON") or not isinstance(on, exp.Boolean)):
            self._take("ON")
            self._value(on)
        if node.args.get("using"):
            self._take("USING")
            self._brackets(lambda: self._several(node.args["using"], self._name))

    def _alias(self, node: exp.Alias) -> None:
        self._value(node.this)
        self._may("AS")
        self._name(node.args["alias"])

    def _column(self, node: exp.Column) -> None:
        for position, part in enumerate(node.parts):
            if position:
                self._take(".")
            self._item(part) if isinstance(part, exp.Star) else self._name(part)

    def _literal(self, node: exp.Literal) -> None:
        word = self._next()
        if word.kind != ("string" if node.is_string else "number") or word.text != node.this:
            raise self._wrong()
        self._at += 1

    # Expressions ----------------------------------------------------------------------------------

    def _call(self, node: exp.Anonymous) -> None:
        if self._next().text != node.name:
            raise self._wrong()
        self._at += 1
        self._brackets(lambda: self._several(node.expressions, self._item))

    def _substring(self, node: exp.Substring) -> None:
        bounds = [node.args[key] for key in ("start", "length") if node.args.get(key)]
        if not self._may("SUBSTR"):
            self._take("SUBSTRING")
        self._take("(")
        self._value(node.this)
        commas = self._is(",")
        for bound, word in zip(bounds, ("FROM", "FOR"), strict=False):
            self._take("," if commas else word)
            self._value(bound)
        self._take(")")

    def _trim(self, node: exp.Trim) -> None:
        self._take("TRIM")
        self._brackets(lambda: self._value(node.this))

    def _cast(self, node: exp.Cast) -> None:
        if node.meta.get("function"):
            self._take("CAST", "(")
            self._value(node.this)
            self._take("AS")
            self._type(node.to)
            self._take(")")
        elif isinstance(node, exp.TryCast):
            self._side(node.this, _TIGHTEST)
            self._take("::")
            self._type(node.to)
        else:
            self._type(node.to)
            start, end = self._next().start, self._next().end
            if sum(start <= word.start < end for word in self._text.lexemes) > 1:
                raise self._wrong()
            self._node(node.this)

    def _type(self, node: exp.Expr) -> None:
        read, written = "", node.meta["written"]
        while len(read) < len(written) and self._next().kind in ("word", "operator", "number"):
            read += self._next().text
            self._at += 1
        if read != written:
            raise self._wrong()

    def _case(self, node: exp.Case) -> None:
        self._take("CASE")
        if node.this is not None:
            self._value(node.this)
        for branch in node.args["ifs"]:
            self._take("WHEN")
            self._value(branch.this)
            self._take("THEN")
            self._value(branch.args["true"])
        if node.args.get("default") is not None:
            self._take("ELSE")
            self._value(node.args["default"])
        self._take("END")

    def _paren(self, node: exp.Paren) -> None:
        """Brackets, or those that sqlglot puts in where the text has none."""
        if "start" in node.meta:
            self._brackets(lambda: self._node(node.this))
        else:
            self._node(node.this)

    def _minus(self, node: exp.Neg) -> None:
        self._take("-")
        self._side(node.this, _LEVELS[exp.Neg])

    def _not(self, node: exp.Not) -> None:
        """NOT before a condition, or inside a predicate: x NOT IN, x IS NOT NULL."""
        if self._may("NOT") or self._may("!"):
            self._side(node.this, _LEVELS[exp.Not])
        elif isinstance(node.this, exp.Is | exp.In | exp.Between):
            self._predicate(node.this, True)
        else:
            raise self._wrong()

    def _predicate(self, node: exp.Expr, negated: bool = False) -> None:
        self._side(node.this, _VALUE)
        if isinstance(node, exp.Is):
            self._take("IS", *(("NOT",) if negated else ()))
            if not isinstance(node.expression, exp.Null | exp.Boolean):
                raise self._wrong()
            self._node(node.expression)
            return
        if negated:
            self._take("NOT")
        if isinstance(node, exp.In):
            self._take("IN")
            self._brackets(lambda: self._several(node.expressions, self._value))
        elif isinstance(node, exp.Between):
            self._take("BETWEEN")
            self._side(node.args["low"], _VALUE)
            self._take("AND")
            self._side(node.args["high"], _VALUE)
        else:
            self._take("LIKE")
            self._side(node.expression, _VALUE)

    def _null_safe(self, node: exp.Binary) -> None:
        self._side(node.this, _VALUE)
        if isinstance(node, exp.NullSafeNEQ):
            self._take("IS", "DISTINCT", "FROM")
        elif not self._may("<=>"):
            self._take("IS", "NOT", "DISTINCT", "FROM")
        self._side(
            node.expression, _VALUE + 1 if self._words[self._at - 1].text == "<=>" else _VALUE
        )
