"""A real MariaDB as tests ask it: the relations of its database `shop`, and a source over them."""

from __future__ import annotations

from typing import Any

from streaming.algebra.duckops import DuckOperators
from streaming.embedded.mariadb import Mariadb
from streaming.sources.mysql import read_schemas
from streaming.sources.mysqlquery import MysqlSource


def captured(server: Mariadb, *tables: str) -> list[Any]:
    return read_schemas(server.url("shop"), "shop", "shop", {one: f"shop.{one}" for one in tables})


def source(server: Mariadb, ops: DuckOperators, *tables: str) -> MysqlSource:
    return MysqlSource("shop", server.url("shop"), captured(server, *tables), ops)
