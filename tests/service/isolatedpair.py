"""Two PostgreSQL databases with delta tables, written to while sessions keep views over both.

Each database has one writer, and each transaction of it also sets a counter to its number. A view shows
the counters, so every state of the group says which states of the databases it claims to be: the other
views must be what the writers' own records say they were then.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import askedpostgres as asked
import psycopg
from writers import at_work

from streaming.ask.postgres.pg_catalog import read_schemas
from streaming.demo.embedded.postgres_server import create_databases
from streaming.demo.pace import Pace
from streaming.errors import FrescoError
from streaming.isolated.delta_install import install, role_of
from streaming.isolated.delta_query import DeltaTableSource
from streaming.isolated.delta_tables import delta_table_of
from streaming.isolated.isolated_stage import IsolatedStage
from streaming.isolated.session_group import SessionGroup
from streaming.metrics import Metrics
from streaming.runtime.pulse import NOTHING
from streaming.runtime.step import Fence, Manifest, ManifestStore, Stepper
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.epoch_log import all_epochs
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.snapshot import at_epoch, at_latest, open_group
from streaming.warehouse.upkeep import Upkeep

GROUP = "shop_isolated"
AHEAD = 300
VIEWS = {
    "costs": "SELECT o.id, c.name, o.amount FROM north.o o JOIN south.c c ON o.c = c.id",
    "names": "SELECT c.name FROM south.c c WHERE c.id > 1",
    "pairs": "SELECT a.id, b.id AS other FROM north.o a JOIN north.o b ON a.c = b.c",
    "ticks": "SELECT x.n AS x, y.n AS y FROM north.tick x JOIN south.tick y ON x.id = y.id",
}
_TABLES = {
    "north": ("o", "CREATE TABLE o (id bigint PRIMARY KEY, c bigint, amount numeric(18,2))"),
    "south": ("c", "CREATE TABLE c (id bigint, name text)"),
}
Rows = Counter[tuple[Any, ...]]


@dataclass
class Pair:
    """The databases, and every state that each has had, by its counter.

    Attributes:
        states: source -> counter -> the table's rows.
    """

    dsns: dict[str, str]
    folder: Path
    states: dict[str, dict[int, Rows]] = field(default_factory=dict)

    @classmethod
    def made(cls, server: Any, folder: Path) -> Pair:
        """Databases with a few rows; delta tables are installed."""
        create_databases(server.dsn("postgres"), ["south"])
        pair = cls({name: server.dsn(name) for name in ("north", "south")}, folder)
        for name, (table, made) in _TABLES.items():
            asked.execute(
                pair.dsns[name],
                f"DROP TABLE IF EXISTS {table}, tick CASCADE; DROP SCHEMA IF EXISTS fresco_shop CASCADE",
                made,
                "CREATE TABLE tick (id bigint PRIMARY KEY, n bigint)",
                "INSERT INTO tick VALUES (1, 0)",
            )
            pair.states[name] = {0: Counter()}
            pair.install(name)
        folder.mkdir(parents=True, exist_ok=True)
        return pair

    def install(self, name: str) -> list[str]:
        """What became of each relation."""
        tables = [delta_table_of(one, "shop") for one in self.captured(name)]
        role = role_of(self.dsns[name], name)
        return [one.what for one in install(self.dsns[name], name, tables, role, notify=True)]

    def captured(self, name: str) -> Any:
        tables = {table: f"public.{table}" for table in (_TABLES[name][0], "tick")}
        return read_schemas(self.dsns[name], name, name, tables)

    @contextmanager
    def at_work(self, seed: int) -> Iterator[None]:
        """Both writers, until the block ends; each waits for what the views show of its database."""
        with ExitStack() as writers:
            for name in self.dsns:
                rng = random.Random(f"{seed} {name}")
                pace = Pace(AHEAD, lambda _, name=name: shown_counter(self, name))  # type: ignore[misc]
                writers.enter_context(at_work(pace, [partial(self._write, name, rng)]))
            yield

    def _write(self, name: str, rng: random.Random, pace: Pace) -> None:
        with psycopg.connect(self.dsns[name]) as connection:
            while pace.may_write():
                self.transaction(name, connection, rng)
                pace.wrote()
                time.sleep(rng.random() * 0.02)

    def transaction(self, name: str, connection: Any, rng: random.Random) -> None:
        """A few inserts, updates and deletions, sometimes a TRUNCATE, and the counter."""
        number = max(self.states[name]) + 1
        rows = self.states[name][number - 1].copy()
        for _ in range(rng.randint(1, 4)):
            key = rng.randrange(8)
            change_o(connection, rows, key, rng) if name == "north" else change_c(
                connection, rows, key, rng
            )
        connection.execute("UPDATE tick SET n = %s", (number,))
        self.states[name][number] = +rows
        connection.commit()

    # What must be seen ----------------------------------------------------------------------------

    def expected(self, x: int, y: int) -> dict[str, Rows]:
        """Every view at these counters."""
        o, c = self.states["north"][x], self.states["south"][y]
        found: dict[str, Rows] = {view: Counter() for view in VIEWS}
        for (key, at, amount), n in o.items():
            for (id_, name), m in c.items():
                if at == id_:
                    found["costs"][key, name, amount] += n * m
            for other, there, _ in o:
                if at is not None and at == there:
                    found["pairs"][key, other] += 1
        for (id_, name), n in c.items():
            if id_ > 1:
                found["names"][(name,)] += n
        found["ticks"][x, y] = 1
        return found

    def judge(self) -> list[Epoch]:
        """All epochs, each of which is a state of the databases; the states only go forward."""
        place, before = TableFolder.of(self.folder), (-1, -1)
        table, _ = open_group(place, GROUP)
        epochs = [one.epoch for one in all_epochs(table.place, table.version)]
        assert [one.epoch for one in epochs] == list(range(1, len(epochs) + 1))
        for epoch in epochs:
            state = at_epoch(place, GROUP, epoch.epoch)
            shown = {one.name: _counted(state.rows(one)) for one in view_tables(self)}
            ((now, _),) = shown["ticks"].items()
            assert now[0] >= before[0] and now[1] >= before[1], (epoch.epoch, before, now)
            wanted = self.expected(*now)
            for view in VIEWS.keys() - epoch.suspended.keys():
                assert shown[view] == wanted[view], (epoch, view, now)
            before = now
        return epochs


def change_o(connection: Any, rows: Rows, key: int, rng: random.Random) -> None:
    """One change of north.o, which has a key."""
    old = [row for row in rows if row[0] == key]
    if rng.random() < 0.03:
        connection.execute("TRUNCATE o")
        rows.clear()
        return
    for row in old:
        rows[row] = 0
    if old and rng.random() < 0.3:
        connection.execute("DELETE FROM o WHERE id = %s", (key,))
        return
    at = rng.choice([None, *range(5)])
    (amount,) = connection.execute("SELECT %s::numeric(18,2)", (rng.random() * 9,)).fetchone()
    connection.execute(
        "INSERT INTO o VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET c = excluded.c,"
        " amount = excluded.amount",
        (key, at, amount),
    )
    rows[key, at, amount] = 1


def change_c(connection: Any, rows: Rows, key: int, rng: random.Random) -> None:
    """One change of south.c, which has no key and holds rows more than once."""
    key %= 5
    if rng.random() < 0.4:
        connection.execute("DELETE FROM c WHERE id = %s", (key,))
        for row in [row for row in rows if row[0] == key]:
            rows[row] = 0
        return
    row = (key, f"n{rng.randrange(3)}")
    connection.execute("INSERT INTO c VALUES (%s, %s)", row)
    rows[row] += 1


def shown(pair: Pair, view: str) -> Rows:
    """A view's rows at the newest epoch."""
    (table,) = (one for one in view_tables(pair) if one.name == view)
    return _counted(at_latest(TableFolder.of(pair.folder), GROUP).rows(table))


def shown_counter(pair: Pair, name: str) -> int:
    """How many of a database's transactions the group's table shows."""
    try:
        ((north, south),) = shown(pair, "ticks")
    except (FrescoError, ValueError):
        return 0  # no epoch yet, or one without a row
    return int(north if name == "north" else south)


def _counted(rows: Any) -> Rows:
    return Counter(
        {
            tuple(values): count
            for *values, count in zip(*(c.to_pylist() for c in rows.columns), strict=True)
        }
    )


# The stage ----------------------------------------------------------------------------------------


def view_tables(pair: Pair) -> list[ViewTable]:
    return [ViewTable(name, tree.schema) for name, tree in trees(pair).items()]


def trees(pair: Pair) -> dict[str, Any]:
    found = [*pair.captured("north"), *pair.captured("south")]
    return {name: asked.view(sql, found) for name, sql in VIEWS.items()}


def stage_of(
    pair: Pair,
    planned: Mapping[str, Any] | None = None,
    broken: Mapping[str, FrescoError] | None = None,
) -> tuple[IsolatedStage, Stepper]:
    """The stage over the pair's warehouse, restored from its manifests.

    Args:
        planned: the views as they are known; as their SQL says now when not given.
        broken: those that no longer fit the tables.
    """
    known = planned or trees(pair)
    tables = [ViewTable(name, tree.schema) for name, tree in known.items()]
    writer = GroupWriter(str(pair.folder), "shop", GROUP, tables)
    connections = {name: (dsn, pair.captured(name)) for name, dsn in pair.dsns.items()}
    group = SessionGroup("shop", GROUP, known, tables, connections, broken or {})
    stage = IsolatedStage(group, writer, Upkeep(writer), Metrics(), pair.folder)
    state = pair.folder / "_state"
    store = ManifestStore(state / "isolated" / "manifests")
    fence = Fence(state / "generations", {})
    return stage, Stepper(stage, store, fence, lambda *_: None)


def session(stage: IsolatedStage, stepper: Stepper) -> None:
    """One session, to its end."""
    while True:
        stepper.batch(NOTHING)
        if not stage.busy:
            return


def killed_at(pair: Pair, moment: str, sessions: int) -> None:
    """Run in a child process: sessions until a moment of one of them, and there SIGKILL.

    Args:
        moment: "before" or "after" a manifest whose machine is at that step, as "after evaluate"; a
            table's commit, "commit changes"; or a deletion, "before deletion", "after deletion".
    """
    stage, stepper = stage_of(pair)
    left = [sessions]

    def die() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    put, delete = stepper.store.put, DeltaTableSource.delete

    def putting(manifest: Manifest) -> None:
        step = manifest.snapshot["machine"]["step"]
        if moment == f"before {step}":
            die()
        put(manifest)
        if moment == f"after {step}":
            die()

    def deleting(self: DeltaTableSource, *args: Any) -> int:
        if moment == "before deletion":
            die()
        gone = delete(self, *args)
        if moment == "after deletion":
            die()
        return gone

    stepper.store.put = putting  # type: ignore[method-assign]
    DeltaTableSource.delete = deleting  # type: ignore[method-assign]
    stage.writer.before_commit = lambda table: die() if moment == f"commit {table}" else None
    while True:
        session(stage, stepper)
