"""Statements that move a table's rows without a row in the log, and what the table holds after them.

DROP TABLE and CREATE OR REPLACE TABLE leave nothing: they are told as a TRUNCATE. After TRUNCATE, DROP or
EXCHANGE of a partition, RENAME TABLE, IMPORT TABLESPACE and the like only the server knows the rows. So
the table is told anew in the statement's own transaction: emptied, and filled with the rows that it
held then. A snapshot that is taken later shows them after what has changed since, and the log says in
full what that is: a row that came since is left out, one that went since is put back.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pymysql

from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.ask.mariadb.mysql_types import kind_of
from streaming.capture.cells import Decimals
from streaming.capture.initial_scan import TableRows, begin
from streaming.capture.log_events import Ddl, Image, LogEvent, Refill, RowChange, Table, Truncate
from streaming.capture.statements import Words, names_one_of, table_at, words_of
from streaming.captured.captured_schema import spark_type
from streaming.errors import FrescoError

_PARTS = ("DROP", "TRUNCATE", "EXCHANGE", "CONVERT", "IMPORT", "DISCARD")
_OF_PARTS = ("PARTITION", "TABLE", "TABLESPACE")
_NO_COLUMN = (
    "PRIMARY",
    "INDEX",
    "KEY",
    "FOREIGN",
    "CONSTRAINT",
    "CHECK",
    "PARTITION",
    "PERIOD",
    "SYSTEM",
)
"""What DROP drops in an ALTER TABLE that is no column; a column of such a name is quoted."""
_NO_NAME = ("COLUMN", "INDEX", "KEY", "CONSTRAINT")


@dataclass(frozen=True)
class Moved:
    """Captured tables that a statement leaves without rows, and those whose rows it does not tell."""

    emptied: tuple[Table, ...] = ()
    refilled: tuple[Table, ...] = ()


def moved(
    words: Words, database: str, tables: Sequence[Table], own: Callable[[Table], Table]
) -> Moved:
    """What a statement moves.

    Args:
        database: the session's.
        tables: the captured ones.
        own: a table's name as the catalog spells it.
    """
    keys = [word.key for word in words]
    if "TEMPORARY" in keys[:4]:
        return Moved()
    match keys:
        case ["DROP", "TABLE" | "TABLES", *_]:
            return Moved(emptied=_named(words, 2, database, tables, own))
        case ["DROP", "DATABASE" | "SCHEMA", *_]:
            at = 4 if keys[2:4] == ["IF", "EXISTS"] else 2
            name = words[at].text if at < len(words) else ""
            return Moved(emptied=tuple(one for one in tables if own((name, one[1])) == one))
        case ["CREATE", "OR", "REPLACE", "TABLE", *_]:
            return Moved(
                emptied=_named(words[: _name_end(words, 4, database)], 4, database, tables, own)
            )
        case ["RENAME" | "REPAIR", *_]:
            return Moved(refilled=_named(words, 1, database, tables, own))
        case ["ALTER", *_] if _moves(keys):
            return Moved(refilled=_named(words, 1, database, tables, own))
    return Moved()


def dropped_columns(
    words: Words, database: str, tables: Sequence[Table], own: Callable[[Table], Table]
) -> tuple[Table, frozenset[str]] | None:
    """The captured table whose columns a statement drops, and their names; None for any other."""
    keys = [word.key for word in words]
    if keys[:1] != ["ALTER"] or "TABLE" not in keys[1:4]:
        return None
    at = keys.index("TABLE") + 1
    at += 2 if keys[at : at + 2] == ["IF", "EXISTS"] else 0
    found = table_at(words, at, database)
    if found is None or own(found[0]) not in tables:
        return None
    begin = found[1]
    begin += {"WAIT": 2, "NOWAIT": 1}.get(keys[begin] if begin < len(keys) else "", 0)
    gone = set()
    for place in range(begin, len(words)):
        if keys[place] != "DROP" or (place > begin and keys[place - 1] != ","):
            continue
        name = place + 1 + (keys[place + 1 : place + 2] == ["COLUMN"])
        name += 2 if keys[name : name + 2] == ["IF", "EXISTS"] else 0
        if name < len(words) and words[name].is_name and keys[name] not in _NO_COLUMN:
            gone.add(words[name].text)
    return (own(found[0]), frozenset(gone)) if gone else None


def _moves(keys: Sequence[str]) -> bool:
    """Whether an ALTER TABLE does: ALTER IGNORE drops rows that a new key does not take."""
    if "IGNORE" in keys[1:3]:
        return True
    pairs = list(pairwise(keys))
    if any(verb in _PARTS and what in _OF_PARTS and at for at, (verb, what) in enumerate(pairs)):
        return True
    return any(verb == "RENAME" and what not in _NO_NAME for verb, what in pairs)


def _name_end(words: Words, at: int, database: str) -> int:
    found = table_at(words, at, database)
    return found[1] if found else at


def _named(
    words: Words, at: int, database: str, tables: Sequence[Table], own: Callable[[Table], Table]
) -> tuple[Table, ...]:
    """Captured tables whose names stand there."""
    names = []
    for place in range(at, len(words)):
        found = table_at(words, place, database) if words[place - 1].key != "." else None
        if found is not None and own(found[0]) in tables:
            names.append(own(found[0]))
    return tuple(dict.fromkeys(names))


# What a table holds after one -----------------------------------------------------------------------


class TableAtPlace:
    """The rows of a table at a place of the log, by a snapshot of now and what has changed since.

    Args:
        changes: the log of the table from a place on to another.
    """

    def __init__(
        self,
        connection: pymysql.connections.Connection,
        table: Table,
        at: LogPlace,
        decimals: Decimals,
        changes: Callable[[LogPlace, LogPlace], Iterable[LogEvent]],
    ) -> None:
        self._connection, self._table = connection, table
        self._came: Counter[str] = Counter()
        self._went: dict[str, Image] = {}
        self.exact = True
        """Whether no other statement has moved the table's rows since."""
        now = begin(connection)
        self._rows = TableRows(connection, table, decimals)
        self.schema = self._rows.schema
        self._names = [
            name for name, type_ in self._rows.columns if spark_type(kind_of(type_).captured)
        ]
        for event in changes(at, now) if at < now else ():
            self._add(event)
            if not self.exact:
                break
        self.count = max(self._there() - sum(self._came.values()), 0)

    def _add(self, event: LogEvent) -> None:
        match event:
            case RowChange(before=before, after=after):
                if before is not None:
                    self._came[self._key(before)] -= 1
                    self._went[self._key(before)] = before
                if after is not None:
                    self._came[self._key(after)] += 1
            case Truncate() | Refill():
                self.exact = False
            case Ddl(database, text):
                words = words_of(text)
                if words is None or names_one_of(words, frozenset({self._table}), database):
                    self.exact = False

    def _key(self, image: Image) -> str:
        names = self._names or list(image)
        return json.dumps([image.get(name) for name in names], ensure_ascii=False)

    def _there(self) -> int:
        """How many rows the snapshot has; none of a table that is gone again."""
        if not self._rows.columns:
            return 0
        with self._connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {self._rows.name}")
            return int(cursor.fetchone()[0])

    def images(self, source: str) -> Iterator[Image]:
        """The rows.

        Raises:
            FrescoError: CAPTURE_ROWS_MOVED, the log has rows that the snapshot lacks.
        """
        for image in self._rows.images() if self._rows.columns else ():
            key = self._key(image)
            if self._came[key] > 0:
                self._came[key] -= 1
            else:
                yield image
        for key, count in self._came.items():
            if count > 0 and self.exact:
                raise FrescoError(
                    "CAPTURE_ROWS_MOVED",
                    f"a statement has moved rows of {'.'.join(self._table)}, and what it held after it"
                    " cannot be told: a row that the log has since is not there",
                    where=f"source {source}",
                    todo="capture under another prefix in a new pipeline, with a new snapshot",
                )
            for _ in range(-count):
                yield self._went[key]
