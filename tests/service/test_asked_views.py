"""The machines that ask, over a real PostgreSQL that people go on writing to: the view at every number.

The same classes as in the simulator. Updates come from PostgreSQL's own log (pgoutput), answers from its
tables; between a commit and its delivery the tables are ahead, so every kind of anomaly is there to be
compensated.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from functools import partial
from pathlib import Path

import askedpostgres as asked
import psycopg
import pytest
from askedview import MODES, AskedView
from pglog import Log
from writers import at_work

from streaming.algebra.bag import Bag, Numbered, evaluate, flat
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.tree import Tree
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.demo.embedded.postgres_server import Postgres
from streaming.demo.pace import Pace
from streaming.durable import as_json
from streaming.viewmanagers.base import ManagedView

TRANSACTIONS, AHEAD = 120, 30
PAUSE = 0.06
SEED = 20250
TABLES = """
DROP TABLE IF EXISTS o, c, p;
CREATE TABLE c (id bigint PRIMARY KEY, name text);
CREATE TABLE p (id bigint PRIMARY KEY, price numeric(18,2));
CREATE TABLE o (id bigint PRIMARY KEY, c bigint, p bigint, amount numeric(18,2));
CREATE INDEX ON o (c); CREATE INDEX ON o (p);
INSERT INTO c SELECT i, 'name ' || i FROM generate_series(0, 7) i;
INSERT INTO p SELECT i, i + 0.5 FROM generate_series(0, 7) i;
INSERT INTO o SELECT i, i % 8, i % 7, i FROM generate_series(0, 29) i;
"""
VIEW = """SELECT o.id, c.id AS cid, p.id AS pid, c.name, o.amount * p.price AS cost
FROM north.o o JOIN north.c c ON o.c = c.id JOIN north.p p ON o.p = p.id AND p.price < o.amount"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    with asked.server(tmp_path_factory.mktemp("views")) as running:
        yield running


def transaction(connection: psycopg.Connection, rng: random.Random) -> None:
    """A few inserts, updates, deletions and key changes, over several tables."""
    for _ in range(rng.randint(1, 3)):
        table, key = rng.choice("ocpoo"), rng.randrange(8)
        if table == "o":
            key = rng.randrange(40)
            values = (key, rng.randrange(9), rng.randrange(9), Decimal(rng.randrange(900)) / 100)
            connection.execute(
                "INSERT INTO o VALUES (%s, %s, %s, %s) ON CONFLICT (id)"
                " DO UPDATE SET c = excluded.c, p = excluded.p, amount = excluded.amount",
                values,
            )
        elif table == "c":
            connection.execute(
                "INSERT INTO c VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
                (key, f"n{rng.random():.3f}"),
            )
        else:
            price = Decimal(rng.randrange(900)) / 100
            connection.execute(
                "INSERT INTO p VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET price = excluded.price",
                (key, price),
            )
        if rng.random() < 0.25:
            connection.execute(f"DELETE FROM {table} WHERE id = %s".encode(), (key,))


def write(dsn: str, seed: int, pace: Pace) -> None:
    rng = random.Random(seed)
    with psycopg.connect(dsn) as connection:
        while pace.may_write():
            try:
                transaction(connection, rng)
                time.sleep(rng.random() * PAUSE)
                connection.commit()
                pace.wrote()
            except psycopg.errors.DeadlockDetected:
                connection.rollback()


def at(rows: Numbered, number: int) -> Bag:
    return flat({key: count for key, count in rows.items() if key[0] <= number})


def true_states(tree: Tree, log: Log) -> Iterator[tuple[int, Bag]]:
    """The view recomputed at every number."""
    states = {name: at(rows, 0) for name, rows in log.rows.items()}
    changes: dict[int, list[tuple[str, tuple[object, ...], int]]] = {}
    for name, rows in log.rows.items():
        for (number, row), count in rows.items():
            if number:
                changes.setdefault(number, []).append((name, row, count))
    for number in range(log.number + 1):
        for name, row, count in changes.get(number, ()):
            total = states[name].get(row, 0) + count
            states[name][row] = total
            if not total:
                del states[name][row]
        yield number, evaluate(tree, states)


def sent_states(view: AskedView) -> Iterator[tuple[int, Bag]]:
    """The view after every number that its lists make visible."""
    plain, have, expected = NumberedBags(), dict[object, int](), 0
    for one in view.lists:
        assert one.first == expected, (one.first, expected)
        expected = one.last + 1
        rows: Numbered = {}
        if one.delta is not None:
            rows = view.operators.open(one.delta).bag(10**9) or {}
        numbers = range(one.first, one.last + 1) if one.complete else [one.last]
        for number in numbers:
            now = rows if not one.complete else plain.between(rows, number, number)
            for (_, row), count in now.items():
                have[row] = have.get(row, 0) + count
                if not have[row]:
                    del have[row]
            yield number, dict(have)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("mode", "pins"), [*((mode, False) for mode in MODES), ("compensating", True), ("sweep", True)]
)
def test_every_state_of_the_view_is_the_source_s_at_its_number(
    mode: str, pins: bool, server: Postgres, tmp_path: Path
) -> None:
    """`pins`: answers are given at a state that the log has got past, so none need be held."""
    dsn = server.dsn("north")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLES.encode())
    found, ops = asked.captured(dsn, "o", "c", "p"), asked.operators(tmp_path)
    relations = asked.relations(found)
    spec = ManagedView("v", "g", asked.view(VIEW, found))
    view = AskedView(mode, spec, PostgresSource("north", dsn, found, ops), ops, relations)
    with closing(Log(dsn, relations, "v")) as log, closing(view.source):
        play(view, log, dsn, pins)
    truth = dict(true_states(spec.tree, log))
    seen = dict(sent_states(view))
    if mode != "t_strobe":
        assert seen.keys() == truth.keys(), "a complete mode shows every state"
    for number, rows in seen.items():
        assert rows == truth[number], (mode, number, SEED)
    held = view.counts["held"] / view.counts["statements"]
    assert log.number > 30 and (pins or held > 0.5), (log.number, view.counts)


def play(view: AskedView, log: Log, dsn: str, pins: bool) -> None:
    """Three writers and the view beside them, its manager restarted when an answer is on its way.

    They wait for the view: in the time in which it gets past `TRANSACTIONS` of them, there are more.
    """
    ops, pace, restarts = view.operators, Pace(AHEAD), 0
    view.deliver(log.begin(ops))
    with at_work(pace, [partial(write, dsn, SEED + k) for k in range(3)]):
        while view.lists[-1].last < TRANSACTIONS:
            if (updates := log.more(ops)) is not None:
                view.deliver_pinned(updates) if pins else view.deliver(updates)
            elif pace.waits:
                view.source.mark()  # nobody else moves the log past what an answer saw
            pace.read(view.lists[-1].last)
            if restarts < 3 and (view.waits or view.manager.uqs):
                json.dumps(as_json(view.manager.snapshot()))
                view.restart()
                restarts += 1
            time.sleep(0.02)
    view.release()
    for _ in range(2000):
        if not view.waits and view.lists[-1].last == log.number:
            break
        view.source.mark()  # nothing else moves the log past what the answer saw
        if (updates := log.more(ops)) is not None:
            view.deliver(updates)
    assert view.lists[-1].last == log.number, (view.lists[-1], log.number, view.counts)
    print(view.mode, log.number, view.counts, {k: round(v, 2) for k, v in view.spent.items()})
