"""Names in a view's SQL: where they stand in the file, and what they mean.

Names are compared without case, as Spark does; where that leaves several, the one written with
exactly this case wins (`Id` beside `id`), and only then is a name ambiguous. A qualifier may be an
alias, a table name, or source and table.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from streaming.algebra.tree import Relation
from streaming.errors import FrescoError
from streaming.scalars.expression import Col
from streaming.sql.lexer import Lexeme, lexemes


@dataclass(frozen=True)
class Text:
    """The SQL as it stands in its file.

    Attributes:
        sql: the text, whose lines and columns are the file's.
        origin: the file's path, "" for text that came from elsewhere.
    """

    sql: str
    origin: str = ""

    def where(self, offset: int) -> str:
        """Line and column (both from 1) of a character."""
        before = self.sql[:offset]
        line, column = before.count("\n") + 1, offset - before.rfind("\n")
        return f"{self.origin}:{line}:{column}" if self.origin else f"line {line}, column {column}"

    def start(self, node: exp.Expr) -> int | None:
        """Where a node begins; None for one that stands nowhere in the text."""
        return min((n.meta["start"] for n in node.walk() if "start" in n.meta), default=None)

    def place(self, node: exp.Expr) -> str:
        """Line and column where a node begins; of the node above where it stands nowhere."""
        at: exp.Expr | None = node
        while at is not None:
            start = self.start(at)
            if start is not None:
                return self.where(start)
            at = at.parent
        return self.where(0)

    def own(self, node: exp.Expr) -> int:
        """Where the word stands that makes a node what it is: an operator, a function, a clause."""
        for key in ("operator", "start"):
            if key in node.meta:
                return int(node.meta[key])
        words = [word for word in self.lexemes if word.text not in "()"]
        limit = self.start(node.expression if isinstance(node, exp.Binary) else node)
        if limit is None and isinstance(node, exp.Binary):
            end = max((n.meta["end"] for n in node.this.walk() if "end" in n.meta), default=0)
            words = [word for word in words if word.start > end][:1]
        before = [word.start for word in words if limit is None or word.start < limit]
        return before[-1] if before else 0

    def word(self, node: exp.Expr) -> str:
        """That word as written, a name without its backticks."""
        if "function" in node.meta:
            return str(node.meta["function"])
        own = self.own(node)
        return next((w.text for w in self.lexemes if w.start == own), "")

    @cached_property
    def lexemes(self) -> tuple[Lexeme, ...]:
        """The words of the text.

        Raises:
            LexicalError: as `lexer.lexemes`.
        """
        return lexemes(self.sql)

    def refusal(
        self, code: str, what: str, node: exp.Expr, todo: str, at: int | None = None
    ) -> FrescoError:
        """The error at a node, or at the offset `at`."""
        where = self.place(node) if at is None else self.where(at)
        return FrescoError(code, what, where=where, todo=todo)

    def placed(self, error: FrescoError, node: exp.Expr) -> FrescoError:
        """The error with the node's place, unless it has one."""
        if error.where:
            return error
        return FrescoError(error.code, error.what, where=self.place(node), todo=error.todo)


@dataclass(frozen=True)
class ScopeColumn:
    """A column in scope: `visible` ones answer to their bare name and are in `*`."""

    qualifier: tuple[str, ...]
    name: str | None
    column: Col
    visible: bool = True


Lacking = tuple[tuple[str, ...], str, str]
"""A column that is left out of a relation: qualifier, name and its type at the source."""


@dataclass(frozen=True)
class Scope:
    """The columns that a FROM clause offers, in the order of `*`, and those that its relations lack."""

    names: tuple[ScopeColumn, ...]
    lacking: tuple[Lacking, ...] = ()

    @cached_property
    def _by_name(self) -> dict[str, list[ScopeColumn]]:
        found: dict[str, list[ScopeColumn]] = {}
        for one in self.names:
            if one.name is not None:
                found.setdefault(one.name.lower(), []).append(one)
        return found

    def resolve(self, parts: Sequence[str]) -> list[ScopeColumn]:
        """Every column that a (qualified) name may mean: one, none, or an ambiguity.

        Args:
            parts: qualifiers and the column's name last.
        """
        *qualifier, name = parts
        found = [
            n
            for n in self._by_name.get(name.lower(), ())
            if (n.visible or qualifier) and _qualifies(n.qualifier, qualifier)
        ]
        if len(found) > 1:
            exact = [n for n in found if n.name == name]
            found = exact or found
        if len(found) > 1 and qualifier:
            length = len(qualifier)
            exact = [n for n in found if list(n.qualifier[-length:]) == qualifier]
            found = exact or found
        return found

    def unsupported(self, parts: Sequence[str]) -> str | None:
        """The source's type of the column that a (qualified) name means, where it is left out for it."""
        *qualifier, name = parts
        types = [
            type_
            for whole, own, type_ in self.lacking
            if own.lower() == name.lower() and _qualifies(whole, qualifier)
        ]
        return types[0] if types else None

    def starred(self, qualifier: Sequence[str]) -> tuple[ScopeColumn, ...]:
        """The columns of `*` or of `t.*`."""
        if not qualifier:
            return tuple(n for n in self.names if n.visible)
        return tuple(n for n in self.names if _qualifies(n.qualifier, qualifier))

    def nearest(self, name: str) -> str:
        return nearest(name, (n.name for n in self.names if n.name is not None))


def _same(left: Sequence[str], right: Sequence[str]) -> bool:
    return [part.lower() for part in left] == [part.lower() for part in right]


def _qualifies(whole: Sequence[str], asked: Sequence[str]) -> bool:
    return not asked or _same(whole[-len(asked) :], asked)


def nearest(name: str, known: Iterable[str]) -> str:
    """Advice that names what comes nearest; "" when nothing does."""
    by_lower = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), by_lower, 3, 0.5)
    return "did you mean " + " or ".join(by_lower[c] for c in close) + "?" if close else ""


def lookup(name: str, known: Mapping[str, Relation]) -> Relation | None:
    """A relation by name: the exact one, else the only one without case."""
    if name in known:
        return known[name]
    found = [k for k in known if k.lower() == name.lower()]
    return known[found[0]] if len(found) == 1 else None
