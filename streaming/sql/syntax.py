"""A view's text as sqlglot's tree, with nothing changed on the way.

sqlglot reads many dialects: it renames functions, drops arguments that it has no place for, and takes
clauses in any order. `lexer` cuts the text and gives literals their values; the parser here knows no
function by another name than the one that stands in the text, and notes where nodes begin. What it has
read is then looked at by `accepted`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from streaming.errors import FrescoError
from streaming.scalars.limits import NESTED, STEPS, check_length, too_deep, too_nested
from streaming.sql.lexer import Lexeme, LexicalError, tokens
from streaming.sql.scope import Text

_FIRST = ("SELECT", "WITH")


def _with(method: str, parse: Callable[..., Any]) -> Callable[..., Any]:
    """A parser's entry that goes through one of its methods, which gets the entry there was."""
    return lambda parser, *rest: getattr(parser, method)(parse, *rest)


class _SparkParser(SparkParser):
    """sqlglot's parser for Spark, which leaves functions as written and notes where nodes begin."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: SparkParser.FUNCTION_PARSERS[name]
        for name in ("CAST", "TRIM", "SUBSTRING", "SUBSTR", "EXTRACT", "POSITION", "OVERLAY")
    }
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]
    }
    QUERY_MODIFIER_PARSERS: ClassVar[dict[Any, Any]] = {
        kind: _with("_modifier", parse)
        for kind, parse in SparkParser.QUERY_MODIFIER_PARSERS.items()
    }
    RANGE_PARSERS: ClassVar[dict[Any, Any]] = {
        kind: _with("_range", parse) for kind, parse in SparkParser.RANGE_PARSERS.items()
    }

    steps_left = 0

    def _advance(self, times: int = 1) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            todo = "give each JOIN its ON, or write CROSS JOIN"
            raise too_deep("what stands inside what is found only after too many tries", todo)
        super()._advance(times)

    def _modifier(self, parse: Callable[..., Any]) -> Any:
        token = self._curr
        key, value = parse(self)
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, exp.Expr):
                node.meta["operator"] = token.start
        return key, value

    def _marked(self, parse: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """What a parser reads, with the place of the word that it begins with."""
        token = self._curr
        node = parse(*args, **named)
        self._begins(node, token)
        return node

    def _parse_paren(self) -> Any:
        token = self._curr
        node = super()._parse_paren()
        if isinstance(node, exp.Paren):
            self._begins(node, token)
        return node

    def _parse_lateral(self) -> Any:
        return self._marked(super()._parse_lateral)

    def _parse_version(self) -> Any:
        return self._marked(super()._parse_version)

    def _parse_grouping_sets(self) -> Any:
        return self._marked(super()._parse_grouping_sets)

    def _range(self, parse: Callable[..., Any], this: exp.Expr | None) -> Any:
        operator = self._prev
        node = parse(self, this)
        predicate = node.this if isinstance(node, exp.Escape | exp.Not) else node
        if isinstance(predicate, exp.Expr):
            predicate.meta.setdefault("operator", operator.start)
        return node

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        token = self._curr
        node = super()._parse_window(this, alias)
        if node is not None and node is not this and token:
            node.meta["operator"] = token.start
        return node

    def _parse_unary(self) -> exp.Expr | None:
        token = self._curr
        node = super()._parse_unary()
        if isinstance(node, exp.Not | exp.Neg | exp.Interval | exp.Cast):
            self._begins(node, token)
        if isinstance(node, exp.Expr) and token is not None and token.token_type == TokenType.PLUS:
            node.meta["plus"] = True  # no node of its own
        return node

    def _parse_function_call(self, *args: Any, **named: Any) -> exp.Expr | None:
        token = self._curr
        node = super()._parse_function_call(*args, **named)
        inner = node
        while isinstance(inner, exp.Window | exp.Filter | exp.WithinGroup):
            inner = inner.this
        if isinstance(inner, exp.Expr) and token:
            self._begins(inner, token)
            inner.meta["function"] = token.text
        return node

    def _parse_join(self, *args: Any, **named: Any) -> Any:
        return self._marked(super()._parse_join, *args, **named)

    def _parse_types(self, *args: Any, **named: Any) -> exp.Expr | None:
        first = self._index
        node = super()._parse_types(*args, **named)
        if isinstance(node, exp.DataType):
            written = self._tokens[first : self._index]
            node.meta["written"] = "".join(token.text for token in written)
            self._begins(node, written[0] if written else None)
        return node

    def parse_set_operation(self, *args: Any, **named: Any) -> exp.SetOperation | None:
        token = self._curr
        node = super().parse_set_operation(*args, **named)
        if node is not None:
            node.meta["operator"] = token.start
        return node

    def _begins(self, node: Any, token: Token | None) -> None:
        if isinstance(node, exp.Expr) and token is not None and "start" not in node.meta:
            node.meta["start"], node.meta["end"] = token.start, token.end


def syntax(text: Text) -> exp.Expr:
    """The tree as sqlglot has it, of anything that may be a SELECT.

    Meta of a node: `start` and `end` (offsets of its first word), `operator` (offset of its own
    word where that is not the first), `function` (the name that is called), `written` (a type), `plus`
    (a + before it).

    Raises:
        FrescoError: SQL_SYNTAX, SQL_NOT_SELECT, SQL_LITERAL, SQL_UNSUPPORTED (by the lexer),
            SQL_TOO_LARGE, SQL_TOO_DEEP.
    """
    try:
        check_length(text.sql)
        words = text.lexemes
        first = next((word for word in words if word.text != "("), None)
        if first is None or first.text.upper() not in _FIRST:
            raise _not_select(text, first)
        nodes = _nodes(text, words)
    except FrescoError as error:
        raise _at(text, error, 0) from error
    except LexicalError as problem:
        raise _at(text, problem.error, problem.offset) from problem
    except ParseError as problem:
        first_error = problem.errors[0] if problem.errors else {}
        offset = _error_offset(text, first_error)
        raise _syntax_error(text, _reason(text, first_error), offset) from problem
    except SqlglotError as problem:
        raise _syntax_error(text, "it is not one SELECT", 0) from problem
    if len(nodes) != 1 or not isinstance(nodes[0], exp.Select | exp.SetOperation | exp.Subquery):
        raise _not_select(text, first)
    return nodes[0]


def _nodes(text: Text, words: tuple[Lexeme, ...]) -> list[exp.Expr]:
    """The statements that the words make."""
    deep = too_nested(word.text.upper() if word.kind in _OPENING else "" for word in words)
    if deep is not None:
        what = f"more than {NESTED} parentheses or CASEs inside each other"
        raise _at(text, too_deep(what), words[deep].start)
    parser = _SparkParser(dialect=Spark())
    parser.steps_left = STEPS * (len(words) + STEPS)
    try:
        return [node for node in parser.parse(tokens(text.sql, words), text.sql) if node]
    except RecursionError as error:
        raise too_deep("operators stand inside each other too often") from error


_OPENING = ("operator", "word")


def _at(text: Text, error: FrescoError, offset: int) -> FrescoError:
    where = error.where or text.where(offset)
    return FrescoError(error.code, error.what, where=where, todo=error.todo)


def _not_select(text: Text, first: Lexeme | None) -> FrescoError:
    other = first is not None and first.text.upper() not in _FIRST
    return FrescoError(
        "SQL_NOT_SELECT",
        "a view is one SELECT"
        + (f", and this begins with {first.text}" if first and other else ""),
        where=text.where(first.start if first else 0),
        todo="write AS SELECT ... with a single statement and nothing after it",
    )


def _reason(text: Text, error: Mapping[str, Any]) -> str:
    """What sqlglot could not read, without the names of its classes."""
    near = str(error.get("highlight") or "")
    return f"near {near!r}" if near else "it ends too early"


def _error_offset(text: Text, error: Mapping[str, Any]) -> int:
    """sqlglot counts lines from 1 and names the column of a token's last character."""
    line, column = int(str(error.get("line") or 1)), int(str(error.get("col") or 1))
    before = sum(len(part) + 1 for part in text.sql.split("\n")[: line - 1])
    return max(0, before + column - max(1, len(str(error.get("highlight") or " "))))


def _syntax_error(text: Text, what: str, offset: int) -> FrescoError:
    return FrescoError(
        "SQL_SYNTAX",
        f"this is not SQL that can be read: {what}",
        where=text.where(offset),
        todo="correct it; views are in Spark's dialect",
    )
