"""The text of a view specification, after WHIPS' view specifier (DESIGN 13).

    CREATE MATERIALIZED VIEW balance
    WITH COMPLETE CONSISTENCY   -- COMPLETE (default) | STRONG | COMPLETE EVERY 100 | CONVERGENT
    USING replica               -- or any other mode; EVERY '5 minutes' for periodic ones
    AS SELECT ...

Both clauses may be left out, comments may stand anywhere. Only the header is read here; the SELECT
is handed on with the header blanked out, so that its errors have the file's lines and columns.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from streaming.errors import FrescoError
from streaming.sql.scope import Text
from streaming.viewmanagers.modes import DEFAULT, families

LEVELS = ("convergent", "weak", "strong", "complete")
"""From the lowest to the highest (strobe-family 3); `weak` is reached by none on purpose."""
STANDING = "fresco_views"
"""A view of the warehouse's own (`warehouse.standing`)."""
_SHOWN = 300
"""Characters of an error; a file may be one long word."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)|(?P<word>[^\W\d]\w*)|(?P<number>[0-9]+)"""
    r"""|(?P<string>'[^'\n]*')|(?P<quoted>`[^`\n]*`)|(?P<other>.)""",
    re.DOTALL,
)
_COUNT = re.compile(r"0*[1-9][0-9]{0,8}")
_PERIOD = re.compile(
    r"'\s*([1-9][0-9]{0,8})\s*(transaction|second|minute|hour)s?\s*'", re.IGNORECASE
)


@dataclass(frozen=True)
class Header:
    """What stands before AS.

    Attributes:
        level: one of LEVELS.
        every: N of COMPLETE EVERY N (complete-N), else None.
        mode: one of `modes.families`.
        refresh: the period of USING ... EVERY ("5 minutes", "100 transactions"), else None.
        query: the file's text with the header blanked out.
    """

    name: str
    level: str
    every: int | None
    mode: str
    refresh: str | None
    query: str


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int


def read_header(text: str, *, origin: str = "") -> Header:
    """The header of a view file.

    Args:
        origin: the file's path, for errors.

    Raises:
        FrescoError: VIEW_SYNTAX, VIEW_NAME, VIEW_LEVEL_UNKNOWN, VIEW_MODE_UNKNOWN, VIEW_LEVEL_MODE,
            with line and column.
    """
    return _Reader(Text(text, origin)).header()


class _Reader:
    """A cursor over the header's tokens."""

    def __init__(self, text: Text) -> None:
        self._text = text
        matches = _TOKEN.finditer(text.sql)
        self._tokens = [
            _Token(str(m.lastgroup), m[0], m.start()) for m in matches if m.lastgroup != "skip"
        ]
        self._next = 0

    def header(self) -> Header:
        for word in ("CREATE", "MATERIALIZED", "VIEW"):
            self._expect(word)
        name = self._name()
        level, every = self._level() if self._take("WITH") else ("complete", None)
        mode, refresh = self._mode(level) if self._take("USING") else (DEFAULT, None)
        body = self._expect("AS").start + 2
        blank = re.sub(r"[^\n]", " ", self._text.sql[:body])
        if not self._text.sql[body:].strip():
            raise self._error("VIEW_SYNTAX", "no SELECT after AS", "write AS SELECT ...")
        return Header(name, level, every, mode, refresh, blank + self._text.sql[body:])

    def _peek(self) -> _Token:
        if self._next < len(self._tokens):
            return self._tokens[self._next]
        return _Token("end", "the end of the file", len(self._text.sql))

    def _take(self, word: str) -> _Token | None:
        token = self._peek()
        if token.kind == "word" and token.text.upper() == word:
            self._next += 1
            return token
        return None

    def _expect(self, word: str) -> _Token:
        token = self._take(word)
        if token is None:
            found = self._peek().text
            todo = (
                "a view is CREATE MATERIALIZED VIEW name "
                "[WITH level CONSISTENCY] [USING mode [EVERY 'period']] AS SELECT ..."
            )
            raise self._error("VIEW_SYNTAX", f"expected {word}, found {found}", todo)
        return token

    def _error(self, code: str, what: str, todo: str, at: _Token | None = None) -> FrescoError:
        what = what if len(what) <= _SHOWN else f"{what[:_SHOWN]}..."
        where = self._text.where((at or self._peek()).start)
        return FrescoError(code, what, where=where, todo=todo)

    def _name(self) -> str:
        token = self._peek()
        if token.kind != "word" or not _NAME.fullmatch(token.text):
            todo = "1 to 63 of A-Z, a-z, 0-9 and _, beginning with a letter"
            raise self._error("VIEW_NAME", f"{token.text} is not a name for a view", todo)
        if token.text.casefold() == STANDING:
            todo = "use another name: the warehouse tells under this one how its views stand"
            raise self._error("VIEW_NAME", f"{token.text} is no name for a view of yours", todo)
        self._next += 1
        return token.text

    def _level(self) -> tuple[str, int | None]:
        token = self._peek()
        level, every = token.text.lower(), None
        if level not in ("complete", "strong", "convergent"):
            todo = _nearest(level, ("complete", "strong", "convergent"))
            raise self._error("VIEW_LEVEL_UNKNOWN", f"no consistency level {token.text}", todo)
        self._next += 1
        if level == "complete" and self._take("EVERY"):
            count = self._peek()
            if not _COUNT.fullmatch(count.text):
                todo = "write COMPLETE EVERY 100; nine digits are the most"
                raise self._error("VIEW_SYNTAX", f"{count.text} is not a number of states", todo)
            self._next += 1
            every = int(count.text)
        self._take("CONSISTENCY")
        return level, every

    def _mode(self, level: str) -> tuple[str, str | None]:
        token = self._peek()
        mode = token.text.lower()
        modes = {name: best.text for name, best in families().items()}
        if mode not in modes:
            todo = _nearest(mode, modes)
            raise self._error("VIEW_MODE_UNKNOWN", f"no mode {token.text}", todo)
        if LEVELS.index(level) > LEVELS.index(modes[mode]):
            able = [m for m, best in modes.items() if LEVELS.index(best) >= LEVELS.index(level)]
            raise self._error(
                "VIEW_LEVEL_MODE",
                f"mode {mode} cannot give {level} consistency, at best {modes[mode]}",
                f"write WITH {modes[mode].upper()} CONSISTENCY, or use {', '.join(able)}",
            )
        self._next += 1
        return mode, self._period() if self._take("EVERY") else None

    def _period(self) -> str:
        token = self._peek()
        match = _PERIOD.fullmatch(token.text)
        if match is None:
            todo = "write EVERY '5 minutes' (seconds, minutes, hours, or transactions; nine digits)"
            raise self._error("VIEW_SYNTAX", f"{token.text} is not a period", todo)
        self._next += 1
        unit = match[2].lower()
        return f"{match[1]} {unit}{'' if match[1] == '1' else 's'}"


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(name, names, 1)
    hint = f"did you mean {close[0]}? " if close else ""
    return f"{hint}known: {', '.join(names)}"
