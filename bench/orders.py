"""The keyed three-relation join that `bench.asking` maintains, and the people who change it.

Orders name a customer and a product: of n base rows nine in ten are orders, one in a hundred is a
product, the rest customers. All columns that are joined on have an index.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

START_SECONDS = 120.0
TABLES = ("orders", "customer", "product")
VIEW = """SELECT o.id, c.id AS customer, p.id AS product, c.name, o.amount * p.price AS cost
FROM {source}.orders o JOIN {source}.customer c ON o.customer = c.id
JOIN {source}.product p ON o.product = p.id"""
_MAKE = """
DROP TABLE IF EXISTS orders, customer, product;
CREATE TABLE customer (id bigint PRIMARY KEY, name text);
CREATE TABLE product (id bigint PRIMARY KEY, price numeric(18,2));
CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, product bigint, amount numeric(18,2));
INSERT INTO customer SELECT i, 'name ' || i FROM generate_series(0, {customers} - 1) i;
INSERT INTO product SELECT i, i + 0.5 FROM generate_series(0, {products} - 1) i;
INSERT INTO orders SELECT i, i % {customers}, i % {products}, i % 1000
    FROM generate_series(0, {orders} - 1) i;
CREATE INDEX ON orders (customer); CREATE INDEX ON orders (product);
ALTER TABLE orders REPLICA IDENTITY FULL; ALTER TABLE customer REPLICA IDENTITY FULL;
ALTER TABLE product REPLICA IDENTITY FULL;
"""
_DO = (
    (0.70, "UPDATE orders SET amount = amount + 1 WHERE id = {order}"),
    (0.80, "UPDATE orders SET customer = {customer} WHERE id = {order}"),
    (0.90, "INSERT INTO orders VALUES ({new}, {customer}, {product}, 5)"),
    (1.00, "UPDATE customer SET name = left(name, 40) || 'x' WHERE id = {customer}"),
)
"""What one transaction does, and up to where of a drawn number in [0, 1)."""


@dataclass(frozen=True)
class Sizes:
    """Rows of each table."""

    orders: int
    customers: int
    products: int

    @classmethod
    def of(cls, rows: int) -> Sizes:
        """The tables of so many base rows together."""
        return cls(rows * 90 // 100, rows * 9 // 100, rows // 100)


def fill(dsn: str, rows: int) -> Sizes:
    """Make the tables anew."""
    sizes = Sizes.of(rows)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_MAKE.format(**vars(sizes)).encode())
        for table in TABLES:
            connection.execute(f"VACUUM ANALYZE {table}".encode())
    return sizes


@dataclass
class Work:
    """What those who write have done, known once they have ended."""

    transactions: int = 0
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Transactions that were committed in a second."""
        return self.transactions / self.seconds if self.seconds else 0.0


@contextmanager
def at_work(dsn: str, sizes: Sizes, rate: float, writers: int = 2) -> Iterator[Work]:
    """So many transactions a second from other processes, each one update, until the block ends.

    Args:
        rate: asked of all writers together; one that falls behind catches up as fast as it can.
        writers: processes, each with a connection of its own.
    """
    context = multiprocessing.get_context("spawn")
    stop, ready, work = context.Event(), context.Semaphore(0), Work()
    done = [context.Value("q", 0, lock=False) for _ in range(writers)]
    with psycopg.connect(dsn) as connection:
        (free,) = connection.execute("SELECT max(id) + 1 FROM orders").fetchone() or (0,)
    people = [
        context.Process(
            target=_write,
            args=(
                dsn,
                sizes,
                rate / writers,
                range(free + k, 1 << 62, writers),
                stop,
                ready,
                done[k],
            ),
            daemon=True,
        )
        for k in range(writers)
    ]
    for one in people:
        one.start()
    for _ in people:
        if not ready.acquire(timeout=START_SECONDS):
            raise TimeoutError("those who write have not begun")
    began, before = time.perf_counter(), sum(one.value for one in done)
    try:
        yield work
    finally:
        work.transactions = sum(one.value for one in done) - before
        work.seconds = time.perf_counter() - began
        stop.set()
        for one in people:
            one.join()


def _write(
    dsn: str, sizes: Sizes, rate: float, free: range, stop: Any, ready: Any, done: Any
) -> None:
    """One writer; `free` are the numbers of its new orders, and no two writers draw alike."""
    rng, numbers = random.Random(free.start), iter(free)
    with psycopg.connect(dsn, autocommit=True) as connection:
        ready.release()
        due = time.perf_counter()
        while not stop.is_set():
            drawn = rng.random()
            statement = next(text for below, text in _DO if drawn < below)
            connection.execute(
                statement.format(
                    order=rng.randrange(sizes.orders),
                    customer=rng.randrange(sizes.customers),
                    product=rng.randrange(sizes.products),
                    new=next(numbers) if "{new}" in statement else 0,
                ).encode()
            )
            done.value += 1
            due += 1 / rate
            stop.wait(max(0.0, due - time.perf_counter()))
