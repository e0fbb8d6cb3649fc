"""What a statement in the log means: the words of transactions, changes logged as text, TRUNCATE.

Under binlog_format=ROW only statements that alter tables stand in the log, besides the words that begin
and end a transaction. A session may choose another format for itself; what it then writes as a
statement cannot be turned into rows, so such a change of a captured table is told apart and refused.

A statement is cut into words as its server does it: by the session's sql_mode, without comments, and
with what stands in comments that are executed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from sqlglot import TokenType
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError

ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
"""Bits of sql_mode that say how a statement is read."""
_TEXTS = (
    TokenType.STRING,
    TokenType.NATIONAL_STRING,
    TokenType.HEX_STRING,
    TokenType.BIT_STRING,
    TokenType.BYTE_STRING,
)
_PIECES = re.compile(
    r"""(?P<kept>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`[^`]*`|--[\s][^\n]*|\#[^\n]*
    |/\*(?!M?!).*?\*/)|(?P<open>/\*M?!\d*)|(?P<close>\*/)""",
    re.DOTALL | re.VERBOSE,
)
_CHANGES = (
    "INSERT",
    "UPDATE",
    "DELETE",
    "REPLACE",
    "LOAD",
    "WITH",
    "SELECT",
    "DO",
    "CALL",
    "VALUES",
)


class _Plain(MySQL.Tokenizer):
    COMMANDS: ClassVar = set()


class _Ansi(_Plain):
    QUOTES: ClassVar = ["'"]
    IDENTIFIERS: ClassVar = ["`", '"']


class _Backslash(_Plain):
    STRING_ESCAPES: ClassVar = ["'", '"']


class _AnsiBackslash(_Ansi):
    STRING_ESCAPES: ClassVar = ["'"]


class Statement(Enum):
    """The kinds of statements that a log can hold."""

    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    ROLLBACK_TO = "rollback to"
    RELEASE = "release"
    XA = "xa"
    CHANGE = "change"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a statement: quoted names are never keywords, a text is neither."""

    text: str
    quoted: bool = False
    is_text: bool = False

    @property
    def key(self) -> str:
        """It as a keyword; "" for what is none."""
        return "" if self.quoted or self.is_text else self.text.upper()

    @property
    def is_name(self) -> bool:
        return self.quoted or bool(re.fullmatch(r"[0-9A-Za-z$_\u0080-\uffff]+", self.key))


Words = Sequence[Word]


def words_of(query: str, sql_mode: int = 0) -> list[Word] | None:
    """The words of a statement; None when they cannot be told apart."""
    ansi, plain = sql_mode & ANSI_QUOTES, sql_mode & NO_BACKSLASH_ESCAPES
    kinds = ((_Plain, _Backslash), (_Ansi, _AnsiBackslash))
    try:
        tokens = kinds[bool(ansi)][bool(plain)]().tokenize(_executed(query))
    except SqlglotError:
        return None
    words: list[Word] = []
    end = -2
    for token in tokens:
        quoted, text = token.token_type == TokenType.IDENTIFIER, token.token_type in _TEXTS
        if quoted or text:
            words.append(Word(token.text, quoted, text))
        elif (
            words
            and token.start == end + 1
            and words[-1].text.isdigit()
            and token.text.isidentifier()
        ):
            words[-1] = Word(words[-1].text + token.text)  # a name may begin with digits
        else:
            words += [Word(part) for part in token.text.split()]
        end = token.end
    return _without_settings(words)


def _executed(query: str) -> str:
    """Comments that the server executes become what stands in them, whatever version they ask for."""
    inside = False

    def piece(found: re.Match[str]) -> str:
        nonlocal inside
        if found["kept"] is not None:
            return found["kept"]
        if found["open"] is not None:
            inside = True
            return " "
        was, inside = inside, False
        return " " if was else found["close"]

    return _PIECES.sub(piece, query) if "/*" in query else query


def _without_settings(words: list[Word]) -> list[Word]:
    """MariaDB's settings of one statement, in front of it, are taken away."""
    if [word.key for word in words[:2]] == ["SET", "STATEMENT"]:
        ends = [at for at, word in enumerate(words) if word.key == "FOR"]
        return words[ends[0] + 1 :] if ends else words
    return words


def statement_of(words: Words) -> Statement:
    """The kind of a statement."""
    keys = [word.key for word in words if word.key != "("][:2]
    match keys:
        case ["BEGIN", *_] | ["START", "TRANSACTION"]:
            return Statement.BEGIN
        case ["COMMIT", *_]:
            return Statement.COMMIT
        case ["ROLLBACK", "TO"]:
            return Statement.ROLLBACK_TO
        case ["SAVEPOINT", *_]:
            return Statement.SAVEPOINT
        case ["RELEASE", *_]:
            return Statement.RELEASE
        case ["ROLLBACK", *_]:
            return Statement.ROLLBACK
        case ["XA", *_]:
            return Statement.XA
        case [first, *_] if first in _CHANGES:
            return Statement.CHANGE
    return Statement.OTHER


def savepoint(words: Words) -> str:
    """The name in SAVEPOINT or ROLLBACK TO; names that differ in case only are one."""
    names = [word for word in words if word.quoted or word.key not in (";", "")]
    return names[-1].text.casefold() if names else ""


def table_at(words: Words, at: int, database: str) -> tuple[tuple[str, str], int] | None:
    """(database, table) written there, and where it ends; None when no name is."""
    if at >= len(words) or not words[at].is_name:
        return None
    if at + 2 < len(words) and words[at + 1].key == "." and words[at + 2].is_name:
        return (words[at].text, words[at + 2].text), at + 3
    return (database, words[at].text), at + 1


def truncated(words: Words, database: str) -> tuple[str, str] | None:
    """(database, table) that a statement empties; None for any other."""
    if not words or words[0].key != "TRUNCATE":
        return None
    found = table_at(words, 2 if len(words) > 1 and words[1].key == "TABLE" else 1, database)
    return found and found[0]


def names_one_of(
    words: Words, tables: frozenset[tuple[str, str]], database: str
) -> tuple[str, str] | None:
    """A table of `tables` that the statement names."""
    for at in range(len(words)):
        found = table_at(words, at, database)
        if found is None or (at and words[at - 1].key == "."):
            continue
        for table in tables:
            if (table[0].lower(), table[1].lower()) == (found[0][0].lower(), found[0][1].lower()):
                return table
    return None


def makes_table(words: Words) -> bool:
    """CREATE [OR REPLACE] [TEMPORARY] TABLE."""
    keys = [word.key for word in words[:5] if word.key not in ("OR", "REPLACE", "TEMPORARY")]
    return keys[:2] == ["CREATE", "TABLE"]
