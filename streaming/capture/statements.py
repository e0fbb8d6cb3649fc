"""What a statement in the log means: the words of transactions, changes logged as text, TRUNCATE.

Under binlog_format=ROW only statements that alter tables stand in the log, besides the words that begin
and end a transaction. A session may choose another format for itself; what it then writes as a
statement cannot be turned into rows, so such a change of a captured table is told apart and refused.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum

_COMMENT = re.compile(r"\A(?:\s+|--[^\n]*\n|#[^\n]*\n|/\*(?!!).*?\*/)+", re.DOTALL)
_CHANGES = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD")
_NAME = r"(?:`((?:[^`]|``)+)`|([0-9A-Za-z$_\u0080-\uffff]+))"
_TRUNCATE = re.compile(
    rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}(?:\s*\.\s*{_NAME})?", re.IGNORECASE | re.DOTALL
)
_PARTITIONS = re.compile(
    r"\b(?:DROP|TRUNCATE|EXCHANGE|CONVERT)\s+(?:PARTITION|TABLE)\b", re.IGNORECASE
)
_ALTER = re.compile(r"\AALTER\b", re.IGNORECASE)
_GONE = re.compile(
    r"\A(?:DROP|RENAME|CREATE\s+OR\s+REPLACE)\s+(?:TEMPORARY\s+)?TABLES?\b", re.IGNORECASE
)
_SAVEPOINT = re.compile(r"(?:ROLLBACK\s+TO\s+)?(?:SAVEPOINT\s+)?(.*)", re.IGNORECASE | re.DOTALL)
_SETTINGS = re.compile(r"\ASET\s+STATEMENT\b.*?\bFOR\b", re.IGNORECASE | re.DOTALL)
"""MariaDB's settings of one statement, in front of it."""


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


def bare(query: str) -> str:
    """Without comments and settings in front."""
    text = _SETTINGS.sub("", _COMMENT.sub("", query))
    return _COMMENT.sub("", text).strip().rstrip(";").strip()


def statement_of(query: str) -> Statement:
    """The kind of a statement."""
    words = bare(query).upper().split(None, 2)
    match words[:2]:
        case ["BEGIN", *_] | ["START", "TRANSACTION", *_]:
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


def savepoint(query: str) -> str:
    """The name in SAVEPOINT or ROLLBACK TO; names that differ in case only are one."""
    found = _SAVEPOINT.match(bare(query))
    name = found[1] if found is not None else ""
    quote = name[:1]
    if quote in ("`", '"'):
        name = name[1:-1].replace(quote * 2, quote)
    return name.casefold()


def truncated(query: str, database: str) -> tuple[str, str] | None:
    """(database, table) that a statement empties; None for any other."""
    found = _TRUNCATE.match(bare(query))
    if found is None:
        return None
    first, second = found[1] or found[2], found[3] or found[4]
    names = [name.replace("``", "`") for name in (first, second) if name]
    return (names[0], names[1]) if len(names) == 2 else (database, names[0])


def names_one_of(query: str, tables: Collection[tuple[str, str]]) -> tuple[str, str] | None:
    """A table of `tables` whose name stands in the statement."""
    words = set(re.findall(r"[0-9a-z$_\u0080-\uffff]+", query.lower()))
    text = query.lower()
    for table in tables:
        name = table[1].lower()
        if name in words or f"`{name.replace('`', '``')}`" in text:
            return table
    return None


def loses_rows(query: str) -> bool:
    """Whether a statement takes rows or their table away without a row in the log."""
    text = bare(query)
    return bool(_GONE.match(text) or (_ALTER.match(text) and _PARTITIONS.search(text)))
