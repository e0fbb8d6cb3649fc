"""A small database under a connector of its own, for tests that alter its table."""

from __future__ import annotations

import psycopg
from conftest import Bank

from streaming.demo.embedded.kafka_broker import create_topics
from streaming.demo.embedded.parts import POSTGRES_USER, StackSource, connector_config
from streaming.demo.embedded.ports import LOOPBACK
from streaming.demo.embedded.postgres_server import create_databases

SHOP = "shop"
ORDERS = """
CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(18,2), pieces int);
ALTER TABLE orders REPLICA IDENTITY FULL;
INSERT INTO orders VALUES (1, 9.50, 3);
"""


def capture_shop(bank: Bank, name: str = SHOP) -> str:
    """A database with orders under a connector of its own; returns its connection string."""
    stack, shop = bank.stack.stack, StackSource(name, tables=("public.orders",))
    create_databases(stack.dsn(POSTGRES_USER), [shop.name])
    with psycopg.connect(stack.dsn(shop.name)) as connection:
        connection.execute(ORDERS)
    create_topics(bank.bootstrap, shop.topics)
    config = connector_config(
        shop,
        host=LOOPBACK,
        port=stack.postgres.port,
        user=POSTGRES_USER,
        password=stack.connect.secret("password"),
    )
    stack.connect.rest.put(shop.connector, config)
    stack.connect.wait_running([shop.connector])
    return stack.dsn(shop.name)
