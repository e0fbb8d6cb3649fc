"""A small database under a connector of its own, for tests that alter its table."""

from __future__ import annotations

import psycopg
from conftest import Bank

from streaming.embedded.description import POSTGRES_USER, Source, connector_config
from streaming.embedded.kafka import create_topics
from streaming.embedded.ports import LOOPBACK
from streaming.embedded.postgres import create_databases

SHOP = Source("shop", tables=("public.orders",))
ORDERS = """
CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(18,2), pieces int);
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO orders VALUES (1, 9.50, 3);
"""


def capture_shop(bank: Bank) -> str:
    """A database with orders under a connector of its own; returns its connection string."""
    stack = bank.stack.stack
    create_databases(stack.dsn(POSTGRES_USER), [SHOP.name])
    with psycopg.connect(stack.dsn(SHOP.name)) as connection:
        connection.execute(ORDERS)
    create_topics(bank.bootstrap, SHOP.topics)
    config = connector_config(
        SHOP,
        host=LOOPBACK,
        port=stack.postgres.port,
        user=POSTGRES_USER,
        password=stack.connect.secret("password"),
    )
    stack.connect.rest.put(SHOP.connector, config)
    stack.connect.wait_running([SHOP.connector])
    return stack.dsn(SHOP.name)
