"""A view's first rows out of a database under load, brought to one number exactly (DESIGN 7)."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import askedpostgres as asked
import psycopg
import pyarrow as pa
import pytest
from askedpostgres import execute
from pglog import Log
from services import until
from writers import at_work

from streaming.captured.captured_schema import CapturedRelation
from streaming.demo.embedded.postgres_server import Postgres
from streaming.demo.pace import Pace
from streaming.errors import FrescoError
from streaming.packed_rows import unpack
from streaming.stages.asking_stage import Access
from streaming.stages.first_rows import FirstRows
from streaming.stages.source_load import SourceLoad
from streaming.warehouse.updates import UpdatesReader, UpdatesWriter
from streaming.warehouse.upkeep import drop_below

LOADS = 6
AHEAD = 300


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with asked.server(tmp_path_factory.mktemp("load")) as running:
        yield running


class Recorded:
    """The database's log, recorded in `_updates` as the integrator does."""

    def __init__(self, folder: Path, dsn: str, found: list[CapturedRelation]) -> None:
        self.folder, self.captured, self.sequence = folder, found, 0
        self.relations = asked.relations(found)
        self.log = Log(dsn, self.relations, "v")
        self.operators = asked.operators(folder)
        self.writer = UpdatesWriter(str(folder), "p", list(self.relations.values()))
        self._append(self.log.begin(self.operators))

    def more(self) -> None:
        """What has been committed since, in one step."""
        message = self.log.more(self.operators)
        if message is not None:
            self._append(message)

    def _append(self, message: Any) -> None:
        self.sequence += 1
        tables = {n: unpack(rows, self.folder) for n, rows in message.relations.items()}
        one = message.logs["north"]
        count = len(one.numbers)
        columns = {
            "number": pa.array(one.numbers, pa.int64()),
            "source": pa.array(["north"] * count),
            "transaction": pa.array(one.transactions, pa.string()),
            "position": pa.array(map(str, one.positions), pa.string()),
            "committed_ms": pa.array([0] * count, pa.int64()),
        }
        self.writer.append(self.sequence, tables, pa.table(columns), (), message.last)

    def close(self) -> None:
        self.log.close()
        self.writer.close()

    def at(self, relation: str, number: int) -> Counter[tuple[Any, ...]]:
        """What the log says that a relation held."""
        rows: Counter[tuple[Any, ...]] = Counter()
        for (n, row), count in self.log.rows[relation].items():
            if n <= number:
                rows[row] += count
        return Counter({row: count for row, count in rows.items() if count})


def tables_of(dsn: str, folder: Path, *names: str) -> Recorded:
    """New tables of (id, v) with a hundred rows, and what is recorded of them."""
    for table in names:
        execute(
            dsn,
            f"CREATE TABLE {table} (id int PRIMARY KEY, v int)",
            f"ALTER TABLE {table} REPLICA IDENTITY FULL",
            f"INSERT INTO {table} SELECT i, i FROM generate_series(1000, 1099) i",
        )
    return Recorded(folder, dsn, asked.captured(dsn, *names))


def counted(table: pa.Table) -> Counter[tuple[Any, ...]]:
    names = table.column_names[2:]
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return Counter(dict(zip(rows, table.column("_multiplicity").to_pylist(), strict=True)))


def write(dsn: str, seed: int, pace: Pace) -> None:
    """Transactions on both tables, some slow, some rolled back."""
    rng = random.Random(seed)
    with psycopg.connect(dsn) as connection:
        while pace.may_write():
            for _ in range(rng.randint(1, 4)):
                id_, value = rng.randrange(40), rng.randrange(1000)
                table = rng.choice(["led", "other"])
                connection.execute(
                    f"INSERT INTO {table} VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = %s",
                    (id_ * 4 + seed, value, value),
                )
                if rng.random() < 0.2:
                    connection.execute(f"DELETE FROM {table} WHERE id = %s", (id_ * 4 + seed,))
            if rng.random() < 0.2:
                connection.rollback()
            else:
                connection.commit()
                pace.wrote()
            time.sleep(rng.random() * 0.02)


def test_the_sources_rows_are_brought_to_a_number_exactly(server: Postgres, tmp_path: Path) -> None:
    dsn = server.dsn("north")
    recorded = tables_of(dsn, tmp_path, "led", "other")
    found = recorded.captured
    schemas = {name: one.schema for name, one in recorded.relations.items()}
    access = {"north": Access(dsn, found)}
    pace, numbers = Pace(AHEAD), []
    with closing(recorded), at_work(pace, [partial(write, dsn, seed) for seed in range(4)]):
        for turn in range(LOADS):
            load = SourceLoad(tmp_path, access, schemas)

            def moved(load: SourceLoad = load) -> Any:
                taken = load.relations_at(UpdatesReader(str(tmp_path)))
                recorded.more()
                pace.read(recorded.log.number)
                return taken

            number, rows = until(moved, f"load {turn}")
            load.close()
            numbers.append(number)
            for name in schemas:
                assert counted(rows[name]) == recorded.at(name, number), (turn, name, number)
            if turn == 1:
                assert drop_below(recorded.writer.table, number) > 0
    assert numbers == sorted(set(numbers)) and numbers[-1] > 20
    reader = UpdatesReader(str(tmp_path))
    assert reader.kept_from > 0
    tree = asked.view("SELECT id, v FROM north.led", found)
    known = {"north.led": schemas["north.led"]}
    without = FirstRows(tmp_path, "v", tree, known, recorded.relations, {})
    with pytest.raises(FrescoError, match="VIEW_INITIAL_ROWS"):
        without.take(reader)


def test_first_rows_are_the_sources_where_the_retention_came_while_they_were_waited_for(
    server: Postgres, tmp_path: Path
) -> None:
    """One relation is asked for at the source, the rows of the other are recorded, until they are not."""
    dsn = server.dsn("north")
    recorded = tables_of(dsn, tmp_path, "asked_for", "kept")
    found = recorded.captured
    schemas = {name: one.schema for name, one in recorded.relations.items()}
    tree = asked.view(
        "SELECT a.id, a.v, k.v AS w FROM north.asked_for a JOIN north.kept k ON a.id = k.id", found
    )
    rows = FirstRows(
        tmp_path, "v", tree, schemas, recorded.relations, {"north": Access(dsn, found)}
    )
    with closing(recorded), closing(rows):
        rows._why = {"north.asked_for": "column v is recorded from number 7 on"}
        rows._sources = SourceLoad(
            tmp_path, rows._access, {"north.asked_for": schemas["north.asked_for"]}
        )
        execute(dsn, "INSERT INTO kept VALUES (10, 10)", "INSERT INTO asked_for VALUES (10, 10)")
        recorded.more()
        assert drop_below(recorded.writer.table, recorded.log.number) > 0

        def taken() -> Any:
            recorded.more()
            return rows.take(UpdatesReader(str(tmp_path)))

        number, tables = until(taken, "the first rows")
        for name in schemas:
            assert counted(tables[name]) == recorded.at(name, number), name
