"""The bank of the demo: accounts and double-entry bookkeeping, the same tables in every database.

Every transfer writes +amount and -amount, so the entries of all databases together sum to zero in
every source state. A view that shows another total shows a state no source was ever in: the anomaly
the papers begin with, made visible by one number.
"""

from __future__ import annotations

from decimal import Decimal

import psycopg
from psycopg import sql

BANK_ACCOUNT = 0
"""The account that every opening deposit is booked against."""

BRANCHES = ("Aarhus", "Bergen", "Cork", "Delft")
OPENING_DEPOSIT = Decimal("1000.00")

BULK_FIRST_ID = 1_000_000_000_000
"""Entries with this id and above come from `bulk_transfers`, those below from everyone else."""

_TABLES = """
CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, owner text, branch text);
CREATE TABLE IF NOT EXISTS entry (id bigint PRIMARY KEY, account bigint, amount numeric(18,2));
CREATE TABLE IF NOT EXISTS fresco_global (id text PRIMARY KEY, parts int);
ALTER TABLE account REPLICA IDENTITY FULL;
ALTER TABLE entry REPLICA IDENTITY FULL;
ALTER TABLE fresco_global REPLICA IDENTITY FULL;
"""

_BULK = """
CREATE OR REPLACE PROCEDURE fresco_bulk(first_id bigint, transfers int) LANGUAGE plpgsql AS $$
DECLARE
    ids bigint[] := ARRAY(SELECT id FROM account WHERE id <> {bank} ORDER BY id);
    amount numeric(18,2);
BEGIN
    FOR i IN 0 .. transfers - 1 LOOP
        amount := (1 + floor(random() * 10000)) / 100;
        INSERT INTO entry VALUES
            (first_id + 2 * i, ids[1 + floor(random() * cardinality(ids))], -amount),
            (first_id + 2 * i + 1, ids[1 + floor(random() * cardinality(ids))], amount);
        COMMIT;
    END LOOP;
END $$
"""


def create_bank(dsn: str, accounts: int = 100) -> None:
    """Create the tables with full row images and, the first time, `accounts` accounts.

    Account 0 is the bank's own; accounts 1..`accounts` get an opening deposit from it.
    """
    with psycopg.connect(dsn) as connection:
        connection.execute(_TABLES)
        if connection.execute("SELECT EXISTS (SELECT FROM account)").fetchone() == (True,):
            return
        everyone = range(1, accounts + 1)
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO account VALUES (%s, %s, %s)",
                [(BANK_ACCOUNT, "bank", BRANCHES[0])]
                + [(one, f"owner {one}", BRANCHES[one % len(BRANCHES)]) for one in everyone],
            )
            cursor.executemany(
                "INSERT INTO entry VALUES (%s, %s, %s), (%s, %s, %s)",
                [
                    (2 * one - 1, one, OPENING_DEPOSIT, 2 * one, BANK_ACCOUNT, -OPENING_DEPOSIT)
                    for one in everyone
                ],
            )


def bulk_transfers(dsn: str, transfers: int, seed: float = 0.5) -> None:
    """Run `transfers` transfers of one transaction each inside the server, as fast as it can.

    `seed` is in -1..1 (PostgreSQL's setseed). Commits are not awaited on disk one by one: the
    benchmark fills a backlog, it measures no commits.
    """
    procedure = sql.SQL(_BULK).format(bank=sql.Literal(BANK_ACCOUNT))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(procedure)
        connection.execute("SET synchronous_commit = off")
        connection.execute("SELECT setseed(%s)", [seed])
        first = connection.execute(
            "SELECT coalesce(max(id) + 1, %(bulk)s) FROM entry WHERE id >= %(bulk)s",
            {"bulk": BULK_FIRST_ID},
        ).fetchone()
        connection.execute("CALL fresco_bulk(%s, %s)", [first[0] if first else 0, transfers])
