"""A shop over two databases: a till in PostgreSQL, captured by Debezium, and a store in MariaDB, captured
by `fresco capture`.

A sale is a global transaction: it takes an amount in one database and gives it in the other, so that the
entries of both together sum to zero in every state that counts.
"""

from __future__ import annotations

import random
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import yaml
from conftest import Bank
from services import BANK_CONFIG, Pipeline, Process, until, write_pipeline

from streaming.demo.embedded.kafka_broker import create_topics
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.demo.embedded.parts import POSTGRES_USER, StackSource, connector_config
from streaming.demo.embedded.ports import LOOPBACK
from streaming.demo.embedded.postgres_server import create_databases
from streaming.demo.marker import Marker

ACCOUNTS = 8
TILL_TABLES = ("public.account", "public.entry", "public.fresco_global")
_TILL = """
CREATE TABLE account (id bigint PRIMARY KEY, owner text);
CREATE TABLE entry (id bigint PRIMARY KEY, account bigint, amount numeric(18,2));
CREATE TABLE fresco_global (id text PRIMARY KEY, parts int);
ALTER TABLE account REPLICA IDENTITY FULL;
ALTER TABLE entry REPLICA IDENTITY FULL;
ALTER TABLE fresco_global REPLICA IDENTITY FULL;
"""
_STORE = (
    "CREATE DATABASE store",
    "CREATE TABLE store.entry (id BIGINT PRIMARY KEY, account BIGINT, amount DECIMAL(18,2),"
    " KEY (account))",
    "CREATE TABLE store.note (id INT, words VARCHAR(40))",
    "CREATE TABLE store.fresco_global (id VARCHAR(64) PRIMARY KEY, parts INT)",
    "CREATE TABLE store.unseen (n INT)",
)
JOINED = """SELECT e.id AS entry, a.id AS account, a.owner, e.amount
FROM till.account a JOIN store.entry e ON e.account = a.id"""
VIEWS = {
    "joined": ("COMPLETE CONSISTENCY USING replica", JOINED),
    "asked": ("COMPLETE CONSISTENCY USING compensating", JOINED),
    "total": (
        "COMPLETE CONSISTENCY USING replica",
        "SELECT SUM(amount) AS total FROM (SELECT amount FROM till.entry"
        " UNION ALL SELECT amount FROM store.entry) e",
    ),
    "noted": ("COMPLETE CONSISTENCY USING replica", "SELECT id, words FROM store.note"),
}


@contextmanager
def mariadb_server(folder: Path) -> Iterator[Mariadb]:
    """A server of its own."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    running = Mariadb(folder, port)
    running.start()
    try:
        yield running
    finally:
        running.stop()


@dataclass
class Shop:
    """Both databases.

    Attributes:
        till: PostgreSQL's connection string; store: MariaDB's server. Do not print them.
    """

    till: str = field(repr=False)
    store: Mariadb = field(repr=False)

    def at_till(self, *statements: str) -> None:
        """One transaction."""
        with psycopg.connect(self.till) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def at_store(self, *statements: str) -> None:
        """One transaction."""
        with store_connection(self.store) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    def sale(self, number: int, chance: random.Random) -> None:
        """A global transaction; its parts commit in a drawn order."""
        amount, tag = chance.randint(1, 9999) / 100, f"sale-{number}"
        till, store = parts(number, chance.randrange(ACCOUNTS), amount, tag)
        for at, statements in chance.sample([(self.at_till, till), (self.at_store, store)], 2):
            at(*statements)

    def sell(self, threads: int, each: int) -> None:
        """Sales from so many threads at once, with local work at the store between them."""
        failures: list[BaseException] = []

        def work(thread: int) -> None:
            chance = random.Random(thread)
            try:
                for n in range(each):
                    number = 1000 + thread * each + n
                    self.sale(number, chance)
                    self.at_store("INSERT INTO unseen VALUES (1)")
                    if n % 3 == 0:
                        self.at_store(*correction(number))
            except BaseException as failure:
                failures.append(failure)
                raise

        working = [threading.Thread(target=work, args=(one,)) for one in range(threads)]
        for one in working:
            one.start()
        for one in working:
            one.join()
        assert not failures, failures

    def rests(self, pipeline: Pipeline, service: Process) -> None:
        """Return when the views reflect everything both hold now."""
        ids = {name: f"marker-{uuid.uuid4().hex}" for name in ("till", "store")}
        self.at_till(f"INSERT INTO fresco_global VALUES ('{ids['till']}', 1)")
        self.at_store(f"INSERT INTO fresco_global VALUES ('{ids['store']}', 1)")
        marker = Marker(ids)
        until(pipeline.reflects(marker), "the views to rest", alive=service)


def parts(number: int, account: int, amount: float, tag: str) -> tuple[list[str], list[str]]:
    """The statements of a sale's two parts."""
    tagged = f"INSERT INTO fresco_global VALUES ('{tag}', 2)"
    return (
        [f"INSERT INTO entry VALUES ({number}, {account}, {-amount:.2f})", tagged],
        [tagged, f"INSERT INTO entry VALUES ({number}, {account}, {amount:.2f})"],
    )


def correction(number: int) -> Sequence[str]:
    """A local transaction at the store: a key change, and two changes that even out."""
    return (
        f"UPDATE entry SET id = -id, amount = amount + 1 WHERE id = {number}",
        f"INSERT INTO entry VALUES ({1_000_000 + number}, 0, -1)",
    )


def store_connection(server: Mariadb, **more: Any) -> pymysql.connections.Connection:
    return pymysql.connect(
        host=LOOPBACK,
        port=server.port,
        user="fresco",
        password=server.password,
        database="store",
        **more,
    )


@contextmanager
def open_shop(bank: Bank, folder: Path) -> Iterator[Shop]:
    """Both databases with rows in them, the till under a connector of its own."""
    stack, till = bank.stack.stack, StackSource("till", tables=TILL_TABLES)
    with mariadb_server(folder) as server:
        server.execute(*_STORE)
        create_databases(stack.dsn(POSTGRES_USER), [till.name])
        shop = Shop(stack.dsn(till.name), server)
        rows = ", ".join(f"({one}, 'owner {one}')" for one in range(ACCOUNTS))
        shop.at_till(_TILL, f"INSERT INTO account VALUES {rows}")
        for number in range(20):
            shop.sale(number, random.Random(number))
        shop.at_store("INSERT INTO note VALUES (1, 'one'), (1, 'one'), (2, NULL)")
        create_topics(bank.bootstrap, till.topics)
        config = connector_config(
            till,
            host=LOOPBACK,
            port=stack.postgres.port,
            user=POSTGRES_USER,
            password=stack.connect.secret("password"),
        )
        stack.connect.rest.put(till.connector, config)
        stack.connect.wait_running([till.connector])
        yield shop


def shop_pipeline(folder: Path, bank: Bank, shop: Shop, timeout_ms: int) -> Pipeline:
    """A pipeline over both, with the views above."""
    views = folder / "views"
    views.mkdir(parents=True)
    for view, (how, query) in VIEWS.items():
        text = f"CREATE MATERIALIZED VIEW {view}\nWITH {how}\nAS {query}\n"
        (views / f"{view}.sql").write_text(text)
    settings = yaml.safe_load(BANK_CONFIG.read_text())
    names = ("account", "entry", "fresco_global")
    settings |= {
        "pipeline": folder.name,
        "views": str(views),
        "metrics": {"port": 0},
        "limits": {"global_timeout_ms": "${SHOP_TIMEOUT}"},
        "sources": {
            "till": {
                "connection": "${SHOP_TILL}",
                "decimals": "string",
                "tables": {name: f"public.{name}" for name in names},
            },
            "store": {
                "database": "mariadb",
                "connection": "${SHOP_STORE}",
                "tables": {name: f"store.{name}" for name in ("entry", "note", "fresco_global")},
            },
        },
    }
    environment = {
        **bank.environment,
        "SHOP_TILL": shop.till,
        "SHOP_STORE": shop.store.url("store"),
        "SHOP_TIMEOUT": str(timeout_ms),
    }
    return write_pipeline(folder, settings, environment)


def start_capture(pipeline: Pipeline, name: str = "capture") -> Process:
    """`fresco capture` of the store, once it streams."""
    log = pipeline.config.parent / f"{name}.log"
    words = pipeline.command("capture", "--source", "store", "--json")
    running = Process(words, log, pipeline.environment)
    until(lambda: '"phase": "streaming"' in running.says, "the capture", alive=running)
    return running
