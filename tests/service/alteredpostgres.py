"""A table of a real PostgreSQL that is altered while views are kept over it, without Kafka and Spark.

The database's own log (pgoutput, the plugin that Debezium reads) is told as Debezium tells it, the
catalog is read as the service reads it, and the stages are stepped by hand (`tests.changingviews`).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from streaming.ask.postgres.pg_catalog import read_schemas
from streaming.captured.captured_schema import CapturedRelation
from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse
from streaming.service.view_states import view_states
from streaming.viewchanges.asked_changes import ask_to_add, ask_to_drop
from tests.changingviews import Driver, Shop
from tests.sourcelog import Record

_CHANGES = (
    "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL,"
    " 'proto_version', '1', 'publication_names', %s, 'messages', 'true')"
)
_WHOLE, _REAL, _BYTES, _BOOL = (20, 21, 23), (700, 701), 17, 16
_DATE, _MOMENT, _ZONED = 1082, 1114, 1184
Cell = tuple[str, int, int]
"""A column of a table's description in the log: name, type, modifier."""


def both_ways(names: Iterable[str]) -> list[Any]:
    """(name, whether the driver is away meanwhile): each is walked by turns one way, in deep both."""
    found = []
    for at, name in enumerate(names):
        for again in (False, True):
            marks = [] if again == bool(at % 2) else [pytest.mark.deep]
            label = f"{name}-{'away' if again else 'running'}"
            found.append(pytest.param(name, again, id=label, marks=marks))
    return found


def as_debezium(text: str, column: Cell) -> Any:
    """A value of the log as Debezium's JSON has it (decimal.handling.mode=string)."""
    _, type_, modifier = column
    if type_ in _WHOLE:
        return int(text)
    if type_ in _REAL:
        return float(text)
    if type_ == _BOOL:
        return text == "t"
    if type_ == _BYTES:
        return base64.b64encode(bytes.fromhex(text[2:])).decode()
    if type_ == _DATE:
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    if type_ == _MOMENT:
        passed = datetime.fromisoformat(text) - datetime(1970, 1, 1)
        micros = (passed.days * 86400 + passed.seconds) * 1_000_000 + passed.microseconds
        return micros // 1000 if 0 <= modifier <= 3 else micros
    if type_ == _ZONED:
        return datetime.fromisoformat(text).isoformat().replace("+00:00", "Z")
    return text


class AlteredTable(Shop):
    """The table `entry` of a database, and views over it.

    Args:
        columns: of the table, as CREATE TABLE has them; `id` is the key.
    """

    def __init__(
        self, folder: Path, dsn: str, columns: Mapping[str, str], views: Mapping[str, str]
    ) -> None:
        super().__init__(folder, views=views, connection=dsn)
        source = self.config.sources["north"]
        source = source.model_copy(
            update={"tables": {"entry": "public.entry"}, "decimals": "string"}
        )
        self.config = self.config.model_copy(update={"sources": {"north": source}})
        self.dsn, self.texts = dsn, dict(views)
        self._known: dict[int, list[Cell]] = {}
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("SET TimeZone = 'UTC'")
        self.create(columns)
        with suppress(psycopg.Error):
            self._connection.execute("SELECT pg_drop_replication_slot('altered')")
        self._connection.execute("DROP PUBLICATION IF EXISTS altered")
        self._connection.execute("CREATE PUBLICATION altered FOR ALL TABLES")
        self._connection.execute("SELECT pg_create_logical_replication_slot('altered', 'pgoutput')")

    def create(self, columns: Mapping[str, str]) -> None:
        """The table, which is empty."""
        listed = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
        self.run("DROP TABLE IF EXISTS entry", f"CREATE TABLE entry ({listed}, PRIMARY KEY (id))")
        self.run("ALTER TABLE entry REPLICA IDENTITY FULL")

    def run(self, *statements: str) -> None:
        """Each a transaction of its own."""
        for statement in statements:
            self._connection.execute(statement.encode())

    def close(self) -> None:
        """Drop the slot."""
        self.run("SELECT pg_drop_replication_slot('altered')", "DROP PUBLICATION altered")
        self._connection.close()

    # As the database tells it -----------------------------------------------------------------------

    def captured(self) -> list[CapturedRelation]:
        tables = {"entry": "public.entry"}
        return read_schemas(self.dsn, "north", "north", tables, "string")

    def pull(self) -> None:
        """What has been committed since, to the topics."""
        rows = self._connection.execute(_CHANGES, ["altered", "altered"]).fetchall()
        records: list[Record] = []
        events: list[tuple[str, Any, Any]] = []
        key = ""
        for (data,) in rows:
            kind = data[:1]
            if kind == b"B":
                self.log.lsn, _, xid = struct.unpack_from(">qqi", data, 1)
                key, events = str(xid & 0xFFFFFFFF), []
            elif kind == b"R":
                self._describe(data)
            elif kind in (b"I", b"U", b"D"):
                events += self._event(data)
            elif kind == b"T":
                events.append(("t", None, None))
            elif kind == b"C":
                told = [
                    self.log.row("entry", op, before, after, key=key, order=order)
                    for order, (op, before, after) in enumerate(events, 1)
                ]
                counts = {"entry": len(events)} if events else {}
                records += [self.log.begin(key), *told, self.log.end(key, counts)]
        self.publish(records)

    def _describe(self, data: bytes) -> None:
        oid, place = struct.unpack_from(">I", data, 1)[0], data.index(b"\0", 5) + 1
        table = data[place : data.index(b"\0", place)].decode()
        place = data.index(b"\0", place) + 2
        (count,), place = struct.unpack_from(">h", data, place), place + 2
        cells: list[Cell] = []
        for _ in range(count):
            end = data.index(b"\0", place + 1)
            type_, modifier = struct.unpack_from(">Ii", data, end + 1)
            cells.append((data[place + 1 : end].decode(), type_, modifier))
            place = end + 9
        if table == "entry":
            self._known[oid] = cells

    def _event(self, data: bytes) -> Iterator[tuple[str, Any, Any]]:
        oid, place = struct.unpack_from(">I", data, 1)[0], 5
        if oid not in self._known:
            return
        images: dict[bytes, dict[str, Any]] = {}
        while place < len(data):
            side = data[place : place + 1]
            images[side], place = self._image(self._known[oid], data, place + 1)
        op = {b"I": "c", b"U": "u", b"D": "d"}[data[:1]]
        yield op, images.get(b"O"), images.get(b"N")

    def _image(self, cells: list[Cell], data: bytes, place: int) -> tuple[dict[str, Any], int]:
        (count,), place = struct.unpack_from(">h", data, place), place + 2
        image: dict[str, Any] = {}
        for cell in cells[:count]:
            kind, place = data[place : place + 1], place + 1
            image[cell[0]] = None
            if kind == b"t":
                (length,), place = struct.unpack_from(">i", data, place), place + 4
                image[cell[0]] = as_debezium(data[place : place + length].decode(), cell)
                place += length
        return image, place

    # As it should be ----------------------------------------------------------------------------------

    def truth(self, view: str) -> list[tuple[Any, ...]]:
        """What the database itself says of a view."""
        text = sql.SQL(self.texts[view].replace("north.entry", "entry"))  # type: ignore[arg-type]
        return as_compared(self._connection.execute(text).fetchall())

    def shown(self, view: str) -> list[tuple[Any, ...]]:
        """What its readers are shown."""
        table = Warehouse(self.warehouse).read(view, suspended_as_of=True)
        return as_compared(
            list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        )

    def suspended(self) -> dict[str, str]:
        """View -> the code of why it is suspended, of those that are."""
        told = Warehouse(self.warehouse).epochs("shop")[-1].suspended
        states = {one.view: one for one in view_states(self.warehouse)}
        return {view: (states[view].error or {}).get("code", "") for view in told}

    # As people do ---------------------------------------------------------------------------------------

    def settle(self, driver: Driver) -> None:
        """Until no request is open; the log moves on by the marks of those who read the source."""
        for _ in range(20):
            driver.look()
            self.pull()
            driver.round()
            if not driver.members.requests.open():
                return
        raise AssertionError(f"still open: {driver.members.requests.open()}")

    def rounds(self, driver: Driver, times: int = 2) -> None:
        for _ in range(times):
            driver.look()
            self.pull()
            driver.round()

    def anew(self, driver: Driver, view: str, text: str | None = None) -> None:
        """The documented way: the view is dropped, and added for the table as it is now."""
        ask_to_drop(self.warehouse, view, self.views)
        self.settle(driver)
        self.texts[view] = text or self.texts[view]
        file = self.write(view, self.texts[view], self.folder)
        request = ask_to_add(self.config, file)
        self.settle(driver)
        done = driver.members.requests.told(request.number, "done") or {}
        assert "error" not in done, done

    def proved(self) -> None:
        verdict = verify_pipeline(self.warehouse)
        assert verdict.holds, (verdict.problems, verdict.lines)


def as_compared(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows to compare, in an order."""
    return sorted((tuple(map(_cell, row)) for row in rows), key=repr)


def _cell(value: Any) -> Any:
    if isinstance(value, Decimal):
        return value.normalize() + 0
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return value
