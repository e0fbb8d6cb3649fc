"""The shop whose MySQL events were recorded (tests/golden/record_mysql.py), as captured relations."""

from __future__ import annotations

from streaming.ask.mariadb.mysql_types import kind_of
from streaming.captured.captured_schema import CapturedRelation, captured


def relation(table: str, columns: dict[str, str]) -> CapturedRelation:
    return captured(
        f"shop.{table}",
        f"shop.shop.{table}",
        [(name, kind_of(text).captured) for name, text in columns.items()],
        key=["id"],
        collection=f"shop.{table}",
    )


SHOP = [
    relation("account", {"id": "bigint(20)", "owner": "varchar(40)"}),
    relation("entry", {"id": "bigint(20)", "account": "bigint(20)", "amount": "decimal(18,2)"}),
    relation("fresco_global", {"id": "varchar(40)", "parts": "int(11)"}),
]
