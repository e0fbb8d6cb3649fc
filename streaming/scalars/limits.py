"""How large a view may be. What is larger is refused by name, before anything walks it.

A view's text is data of a user's, and everything after it walks trees: sqlglot's parser, the
rewritings, the renderers, and the parsers of the engines, which are handed the text of a whole
tree. So each way to grow has its bound: the text, what stands inside each other in it, the parser's
steps (sqlglot looks ahead again and again: `FROM r JOIN r JOIN r ...` without ON costs 2^n), and
the size and depth of what is made of it. Sizes are those of the SQL that the engines get, where an
expression that is used twice is written twice (`Call.sizes`).

The figures are what the weakest part holds with room to spare: DuckDB's parser (1,000 levels of
expressions, of which a decimal's addition takes three), Spark's with the session's stack, and
Python's recursion, whose limit is raised here: sqlglot takes 23 frames for a level of parentheses,
none of them on the stack of C.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from streaming.errors import FrescoError
from streaming.scalars.expression import Call, Scalar, weight

TEXT = 1_000_000
"""Characters of a view's text."""
NESTED = 100
"""Parentheses, brackets and CASEs open at one place."""
DEPTH = 200
"""Functions inside each other, and relational nodes below each other."""
GROUPINGS = 16
"""GROUP BYs below each other: DuckDB's planner takes seconds at 20 and minutes at 24."""
WEIGHT = 20_000
"""Of one expression."""
TREE_WEIGHT = 100_000
"""Of a whole view, with the columns of each node."""
MERGED = 1_000
"""Projections whose merged expressions weigh no more are merged, whatever is copied by it."""
STEPS = 100
"""Of the parser for each word of a text."""
_FRAMES = 5_000
_REMEDY = "compute a part in a subquery of FROM or in a view of its own, and use its columns"

sys.setrecursionlimit(max(sys.getrecursionlimit(), _FRAMES))


def check_length(sql: str) -> None:
    """Refuses a text that is too long to be read, or that no file can hold.

    Raises:
        FrescoError: SQL_TOO_LARGE, SQL_SYNTAX.
    """
    if any("\ud800" <= letter <= "\udfff" for letter in sql):
        what = "the text holds half of a character (a surrogate), which no UTF-8 file has"
        raise FrescoError("SQL_SYNTAX", what, todo="write the whole character")
    if len(sql) > TEXT:
        todo = "use fewer or shorter expressions, or several views"
        raise FrescoError("SQL_TOO_LARGE", f"{len(sql):,} characters, {TEXT:,} are read", todo=todo)


def too_nested(words: Iterable[str]) -> int | None:
    """Which word opens one parenthesis or CASE too many, counted from 0."""
    depth = 0
    for index, word in enumerate(words):
        if word in ("(", "CASE"):
            depth += 1
            if depth > NESTED:
                return index
        elif word in (")", "END"):
            depth = max(0, depth - 1)
    return None


def too_deep(what: str, todo: str = _REMEDY) -> FrescoError:
    return FrescoError("SQL_TOO_DEEP", what, todo=todo)


def checked_scalar(scalar: Scalar) -> Scalar:
    """The scalar, if what is done with it ends.

    Raises:
        FrescoError: SQL_TOO_LARGE, SQL_TOO_DEEP.
    """
    if isinstance(scalar, Call):
        if scalar.depth > DEPTH:
            raise too_deep(f"more than {DEPTH} functions or operators inside each other")
        if scalar.weight > WEIGHT:
            what = f"an expression of {scalar.weight:,} parts as the engines get it"
            raise FrescoError("SQL_TOO_LARGE", f"{what}; {WEIGHT:,} are allowed", todo=_REMEDY)
    return scalar


def written_out(scalars: list[Scalar]) -> list[Scalar]:
    """The scalars, made of a relation's columns, if what is done with them ends.

    Raises:
        FrescoError: SQL_TOO_LARGE.
    """
    size = sum(map(weight, scalars))
    if size > TREE_WEIGHT or any(weight(scalar) > WEIGHT for scalar in scalars):
        what = f"the view's expressions have {rounded(size)} parts, written over its relations"
        todo = "use `USING replica`, which computes them step by step"
        raise FrescoError("SQL_TOO_LARGE", what, todo=todo)
    return scalars


def rounded(count: int) -> str:
    return f"{count:,}" if count < 1 << 60 else f"more than 2^{count.bit_length() - 1}"


def mergeable(merged: Iterable[Scalar], parts: Iterable[Scalar]) -> bool:
    """Whether expressions put into others stay small, or no larger than both were before."""
    size = sum(map(weight, merged))
    return size <= MERGED or size <= sum(map(weight, parts))
