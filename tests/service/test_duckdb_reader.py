"""While another process commits, no reader sees two epochs at once (G6).

Every commit moves one unit from the view `left` to the view `right` and writes its number into
both, so a reader that mixes two epochs finds another sum, or two numbers. The test ends when
enough reads fell into enough commits; nothing sleeps.
"""

from __future__ import annotations

import multiprocessing as mp
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from importlib.resources import files
from multiprocessing.synchronize import Event, Semaphore
from pathlib import Path
from typing import Any

import duckdb
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from warehouse_rows import delta, next_epoch, write_catalog

from streaming.cli.ddl import ddl
from streaming.readers import Warehouse
from streaming.scalars.expression import Column
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.table_options import TableOptions, WriterOptions
from streaming.warehouse.upkeep import Upkeep, UpkeepOptions

SCHEMA = (
    Column("account", "bigint"),
    Column("total", "decimal(18,2)"),
    Column("as of, number", "bigint"),
)
LEFT, RIGHT = ViewTable("left", SCHEMA, (0,)), ViewTable("right", SCHEMA)
ACCOUNTS = 50
TOTAL = Decimal(2 * ACCOUNTS * 1000)
READS, COMMITS, AHEAD = 40, 40, 5


def commit_until(stop: Event, first: Event, reads: Semaphore, commits: Any, folder: str) -> None:
    """Commit transfers, with upkeep in between, until told to stop; `AHEAD` at most for each read."""
    options = WriterOptions(file_bytes=1500, table=TableOptions(checkpoint_interval=7))
    writer = GroupWriter(folder, "bank", "g", [LEFT, RIGHT], options)
    upkeep = Upkeep(writer, options=UpkeepOptions(small_files=3))
    epoch = None
    number = 0
    while reads.acquire() and not stop.is_set():
        epoch = next_epoch(epoch, "g", ((number, number),))
        writer.commit({"left": rows(LEFT, number, -1), "right": rows(RIGHT, number, 1)}, epoch)
        number += 1
        commits.value = number
        first.set()
        if number % 5 == 0:
            upkeep.run(1)
    writer.close()


def rows(view: ViewTable, number: int, sign: int) -> Any:
    """One unit per account and number, all rows of the view rewritten."""
    new = [(number, 1, at, Decimal(1000 + sign * number), number) for at in range(ACCOUNTS)]
    if number == 0:
        return delta(view, new)
    was = Decimal(1000 + sign * (number - 1))
    old = [(number, -1, at, was, number - 1) for at in range(ACCOUNTS)]
    return delta(view, old + new)


@pytest.fixture
def committing(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], int]]]:
    """A process that commits; the folder, and how many commits there were, asked after each read."""
    write_catalog(tmp_path, "g", [LEFT, RIGHT])
    context = mp.get_context("spawn")
    stop, first, reads = context.Event(), context.Event(), context.Semaphore(AHEAD)
    commits = context.Value("q", 0)
    process = context.Process(
        target=commit_until, args=(stop, first, reads, commits, str(tmp_path))
    )
    process.start()

    def read() -> int:
        for _ in range(AHEAD):
            reads.release()
        return int(commits.value)

    try:
        assert first.wait(120)
        yield tmp_path, read
        assert process.is_alive(), "the writer failed"
    finally:
        stop.set()
        reads.release()
        process.join(60)
    assert process.exitcode == 0


def connection(folder: Path) -> duckdb.DuckDBPyConnection:
    name = f"extensions/v{duckdb.__version__}/delta.duckdb_extension"
    connection = duckdb.connect()
    connection.execute(f"LOAD '{files('duckdb_extension_delta').joinpath(name)}'")
    for statement in ddl(str(folder), "duckdb"):
        connection.execute(statement)
    return connection


QUERY = """
    SELECT (SELECT sum(total) FROM "left") + (SELECT sum(total) FROM "right"),
           (SELECT min("as of, number") FROM "left"), (SELECT max("as of, number") FROM "right"),
           (SELECT count(*) FROM "left" JOIN "right" USING (account, "as of, number"))
"""


def observe(commits: Callable[[], int], read: Callable[[], tuple]) -> list[int]:
    """Read until enough reads fell into enough commits; the numbers seen."""
    begun = commits()
    seen: list[int] = []
    while len(seen) < READS or commits() - begun < COMMITS:
        total, low, high, joined = read()
        assert (total, low, joined) == (TOTAL, high, ACCOUNTS), f"read {len(seen)}"
        seen.append(low)
    return seen


def check_progress(seen: list[int]) -> None:
    assert seen == sorted(seen), "a later read saw an earlier state"
    assert len(set(seen)) > 10, "the reader was not moving while the writer was"


@pytest.mark.timeout(300)
def test_duckdb_sees_one_epoch_in_one_query(
    committing: tuple[Path, Callable[[], int]],
) -> None:
    folder, commits = committing
    with connection(folder) as duck:
        seen = observe(commits, lambda: duck.execute(QUERY).fetchall()[0])
    check_progress(seen)


@pytest.mark.timeout(300)
def test_duckdb_sees_one_epoch_in_two_queries_of_one_transaction(
    committing: tuple[Path, Callable[[], int]],
) -> None:
    folder, commits = committing
    with connection(folder) as duck:

        def read() -> tuple:
            duck.execute("BEGIN")
            one = duck.execute('SELECT sum(total), max("as of, number") FROM "left"').fetchall()[0]
            other = duck.execute(
                'SELECT sum(total), max("as of, number"), count(*) FROM "right"'
            ).fetchall()[0]
            duck.execute("COMMIT")
            return one[0] + other[0], one[1], other[1], other[2]

        seen = observe(commits, read)
    check_progress(seen)


@pytest.mark.timeout(300)
def test_the_reader_in_python_sees_one_epoch(
    committing: tuple[Path, Callable[[], int]],
) -> None:
    folder, commits = committing
    warehouse = Warehouse(folder)
    seen = observe(commits, lambda: tuple(warehouse.sql(QUERY).to_pylist()[0].values()))
    check_progress(seen)
