"""PostgreSQL's own log, read through SQL: whole transactions in the order of their commits.

A logical slot with pgoutput, the plugin that Debezium reads, asked by a function instead of over a
replication connection. For the few tables and rows of a demonstration or a test, where the service has
Kafka, a connector and the integrator.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql

from streaming.algebra.tree import Relation

_CHANGES = (
    "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL,"
    " 'proto_version', '1', 'publication_names', %s, 'messages', 'true')"
)
_POSTGRES_EPOCH = 946_684_800
"""2000-01-01 in Unix seconds."""

RowChange = tuple[str, int, tuple[Any, ...]]
"""A relation, +1 or -1, and a row."""


@dataclass(frozen=True)
class SlotTransaction:
    """A transaction.

    Attributes:
        id: 32 bits, as the log gives it.
        position: of its commit, an LSN.
        seconds: of its commit, since 1970.
        changes: in the order in which they were made; an update is the old row and the new one.
    """

    id: str
    position: int
    seconds: float
    changes: tuple[RowChange, ...]


class SlotLog:
    """The log of some tables of one database since `begin`.

    Args:
        source: the relations' first name.
        relations: those whose tables, in schema public, are read: of integers, decimals and texts.
    """

    def __init__(self, dsn: str, source: str, relations: Mapping[str, Relation]) -> None:
        self._source, self._relations = source, dict(relations)
        self._names: dict[int, str] = {}
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._slot = f"fresco_{source}"
        """Also the publication's name; slots are the whole server's."""
        self.position = 0
        """Everything that commits at or below it has been read."""

    def begin(self) -> dict[str, list[tuple[Any, ...]]]:
        """Make the slot; returns the relations as they are, while nobody writes."""
        self.start()
        return {
            name: self._connection.execute(sql.SQL("SELECT * FROM {}").format(table)).fetchall()
            for name, table in zip(self._relations, self._tables(), strict=True)
        }

    def start(self) -> None:
        """Make the slot: what commits from now on is read."""
        run, tables = self._connection.execute, self._tables()
        for table in tables:
            run(sql.SQL("ALTER TABLE {} REPLICA IDENTITY FULL").format(table))
        listed = sql.SQL(", ").join(tables)
        publication = sql.Identifier(self._slot)
        run(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(publication))
        run(sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(publication, listed))
        run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self._slot])
        row = run("SELECT (pg_current_wal_insert_lsn() - '0/0')::int8").fetchone()
        assert row is not None
        self.position = int(row[0])

    def _tables(self) -> list[sql.Identifier]:
        return [sql.Identifier(name.partition(".")[2]) for name in self._relations]

    def more(self) -> list[SlotTransaction]:
        """The transactions that have committed since."""
        found: list[SlotTransaction] = []
        changes: list[RowChange] = []
        xid = micros = 0
        for (data,) in self._connection.execute(_CHANGES, [self._slot, self._slot]).fetchall():
            match data[:1]:
                case b"B":
                    self.position, micros, xid = struct.unpack_from(">qqi", data, 1)
                    changes = []
                case b"C":
                    seconds = micros / 1e6 + _POSTGRES_EPOCH
                    id_ = str(xid & 0xFFFFFFFF)
                    found.append(SlotTransaction(id_, self.position, seconds, tuple(changes)))
                case b"R":
                    end = data.index(b"\0", 5)
                    table = data[end + 1 : data.index(b"\0", end + 1)].decode()
                    self._names[struct.unpack_from(">I", data, 1)[0]] = f"{self._source}.{table}"
                case b"I" | b"U" | b"D":
                    changes += self._changes(data)
        return found

    def _changes(self, data: bytes) -> list[RowChange]:
        name, place = self._names[struct.unpack_from(">I", data, 1)[0]], 5
        found: list[RowChange] = []
        while place < len(data):
            sign = 1 if data[place : place + 1] == b"N" else -1
            row, place = self._row(name, data, place + 1)
            found.append((name, sign, row))
        return found

    def _row(self, name: str, data: bytes, place: int) -> tuple[tuple[Any, ...], int]:
        (count,), place = struct.unpack_from(">h", data, place), place + 2
        values: list[Any] = []
        for column in self._relations[name].schema[:count]:
            kind, place = data[place : place + 1], place + 1
            if kind == b"n":
                values.append(None)
                continue
            (length,), place = struct.unpack_from(">i", data, place), place + 4
            text, place = data[place : place + length].decode(), place + length
            values.append(_value(text, column.type))
        return tuple(values), place

    def close(self) -> None:
        """Drop the slot and the publication."""
        run = self._connection.execute
        run("SELECT pg_drop_replication_slot(%s)", [self._slot])
        run(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(self._slot)))
        self._connection.close()


def _value(text: str, type_: str) -> Any:
    if type_ == "string":
        return text
    return Decimal(text) if type_.startswith("decimal") else int(text)
