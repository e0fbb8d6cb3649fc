"""PostgreSQL's own log as numbered updates: what connector and integrator do, in one process.

Reads a logical slot (pgoutput, as Debezium does) through SQL and gives each transaction a number in the
order of commits. The delivered position is that of the last commit, as in the service.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import psycopg

from streaming.algebra.duckops import DuckOperators
from streaming.algebra.numbered import Numbered
from streaming.algebra.signed import Signed
from streaming.algebra.tree import Relation
from streaming.algebra.types import delta_schema
from streaming.messages import RelRun, SourceLog, Updates

_CHANGES = (
    "SELECT data FROM pg_logical_slot_get_binary_changes('fresco', NULL, NULL,"
    " 'proto_version', '1', 'publication_names', 'fresco', 'messages', 'true')"
)


class Log:
    """The captured tables of one source since `begin`."""

    def __init__(self, dsn: str, relations: Mapping[str, Relation], view: str) -> None:
        self.relations = relations
        self.view = view
        self.number = 0
        self.position = 0
        self.committed: dict[int, float] = {}
        """Number -> when it committed, in seconds since the epoch."""
        self.rows: dict[str, Numbered] = {}
        """All rows published so far, with their numbers."""
        self._names: dict[int, str] = {}
        self._connection = psycopg.connect(dsn, autocommit=True)

    def begin(self, operators: DuckOperators) -> Updates:
        """The slot and number 0, the relations whole; nobody may write meanwhile."""
        run = self._connection.execute
        tables = [name.partition(".")[2] for name in self.relations]
        for table in tables:
            run(f"ALTER TABLE {table} REPLICA IDENTITY FULL".encode())
        run(f"CREATE PUBLICATION fresco FOR TABLE {', '.join(tables)}".encode())
        row = run("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert row is not None
        self.position = int(row[0])
        run("SELECT pg_create_logical_replication_slot('fresco', 'pgoutput')")
        for name, table in zip(self.relations, tables, strict=True):
            found = run(f"SELECT * FROM {table}".encode()).fetchall()
            self.rows[name] = {(0, tuple(row)): 1 for row in found}
        return self._message(operators, 0, self.rows, [])

    def more(self, operators: DuckOperators) -> Updates | None:
        """The transactions committed since, None when the log did not move."""
        first, rows, log = self.number + 1, dict[str, Numbered](), list[tuple[int, str, int]]()
        place = self.position
        xid, at, commit = 0, 0, 0.0
        for (data,) in self._connection.execute(_CHANGES).fetchall():
            match data[:1]:
                case b"B":
                    at, micros, xid = struct.unpack_from(">qqi", data, 1)
                    commit = micros / 1e6 + 946684800
                case b"C":
                    self.number += 1
                    self.committed[self.number] = commit
                    self.position = at
                    log.append((self.number, str(xid & 0xFFFFFFFF), at))
                case b"R":
                    end = data.index(b"\0", 5)
                    oid = struct.unpack_from(">I", data, 1)[0]
                    self._names[oid] = (
                        "north." + data[end + 1 : data.index(b"\0", end + 1)].decode()
                    )
                case b"I" | b"U" | b"D":
                    self._change(rows, data)
        if self.position == place:
            return None
        for name, found in rows.items():
            self.rows[name].update(found)
        return self._message(operators, first, rows, log)

    def _change(self, rows: dict[str, Numbered], data: bytes) -> None:
        name = self._names[struct.unpack_from(">I", data, 1)[0]]
        found, place = rows.setdefault(name, {}), 5
        while place < len(data):
            sign = 1 if data[place : place + 1] == b"N" else -1
            row, place = self._tuple(name, data, place + 1)
            key = (self.number + 1, row)
            found[key] = found.get(key, 0) + sign
            if not found[key]:
                del found[key]

    def _tuple(self, name: str, data: bytes, place: int) -> tuple[tuple[Any, ...], int]:
        (count,), place = struct.unpack_from(">h", data, place), place + 2
        values: list[Any] = []
        for column in self.relations[name].schema[:count]:
            kind, place = data[place : place + 1], place + 1
            if kind == b"n":
                values.append(None)
                continue
            (length,), place = struct.unpack_from(">i", data, place), place + 4
            text, place = data[place : place + length].decode(), place + length
            decimal = column.type.startswith("decimal")
            values.append(
                text if column.type == "string" else Decimal(text) if decimal else int(text)
            )
        return tuple(values), place

    def _message(
        self,
        operators: DuckOperators,
        first: int,
        rows: Mapping[str, Numbered],
        log: list[tuple[int, str, int]],
    ) -> Updates:
        numbers, transactions, positions = zip(*log, strict=True) if log else ((), (), ())
        return Updates(
            group="g",
            first=first,
            last=self.number,
            runs=(RelRun(first=first, last=self.number, views=(self.view,)),),
            relations={
                name: operators.pack(Signed(delta_schema(self.relations[name].schema), bag=found))
                for name, found in rows.items()
            },
            logs={
                "north": SourceLog(numbers=numbers, transactions=transactions, positions=positions)
            },
            delivered={"north": self.position},
        )

    def age(self, number: int) -> float:
        """Seconds since a number's commit."""
        return time.time() - self.committed.get(number, time.time())

    def close(self) -> None:
        run = self._connection.execute
        run("SELECT pg_drop_replication_slot('fresco')")
        run("DROP PUBLICATION fresco")
        self._connection.close()
