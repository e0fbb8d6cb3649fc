"""Making and removing delta tables and their triggers at a PostgreSQL source (moro-sartori 5.5).

What is there and right is left as it is, so both may be run again at any time, also after one that
broke off; a reinstallation that touched a trigger would look like a gap (`deltawatch`). Each relation
is a transaction of its own: CREATE TRIGGER waits for the writers of the table and holds up those that
come after it, so it gives up after a moment and tries again.

**Rights.** Whoever installs owns the tables (ENABLE ALWAYS asks for it) and may create a schema in the
database. The service itself gets what it needs by the grants made here: USAGE on the schema, SELECT on
the tables, SELECT and DELETE on the delta tables.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors, sql

from streaming.ask.postgres.pg_catalog import connected
from streaming.errors import FrescoError
from streaming.isolated.delta_tables import (
    DeltaTable,
    body,
    creations,
    grants,
    removals,
    trigger_creations,
    trigger_enabling,
)
from streaming.isolated.delta_watch import RelationObjects, broken, refuse_unfit, watch

OLDEST = 130000
"""The first version with 64-bit transaction ids in SQL."""
LOCK_MS = 3000
"""How long one attempt waits for a table's writers, and holds up those that come after it."""
ATTEMPTS = 10


@dataclass(frozen=True)
class Done:
    """What became of one relation: "installed", "mended", "present", "removed" or "absent"."""

    source: str
    relation: str
    what: str

    def as_dict(self) -> dict[str, str]:
        return {"source": self.source, "relation": self.relation, "what": self.what}


def install(
    dsn: str, source: str, tables: Sequence[DeltaTable], reader: str, *, notify: bool = False
) -> list[Done]:
    """Make what is missing.

    Args:
        dsn: of the tables' owner.
        reader: the role that the service connects as.
        notify: whether the triggers send a notification; PostgreSQL then commits one transaction that
            changes these tables after the other (NOTIFY takes a lock until the commit is written).

    Raises:
        FrescoError: SOURCE_CONNECTION, SOURCE_UNREACHABLE, SOURCE_VERSION, SOURCE_TABLE_MISSING,
            SOURCE_TABLE_UNFIT, SOURCE_TABLE_LOCKED, SOURCE_INSTALL_REFUSED. Relations before the one
            named are done.
    """
    done = []
    with _connected(dsn, source) as connection:
        for one, found in zip(tables, watch(connection, tables).values(), strict=True):
            refuse_unfit(found)
            statements = _lacking(one, found, notify)
            _run(connection, source, one, [*statements, *grants(one, reader)])
            what = "present" if not statements else "mended" if found.delta else "installed"
            done.append(Done(source, one.relation, what))
    return done


def statements(one: DeltaTable, reader: str, notify: bool) -> list[str]:
    """All of it as text, for a person who wants to run it."""
    enabled = [trigger_enabling(one, name) for name in one.triggers]
    made = [*creations(one, notify), *trigger_creations(one), *enabled, *grants(one, reader)]
    return [each.as_string() for each in made]


def _lacking(one: DeltaTable, found: RelationObjects, notify: bool) -> list[sql.Composed]:
    """What is to be done; nothing where all is there and as it should be."""
    made: list[sql.Composed] = []
    if not found.delta:
        # A table without its row column is what DROP TYPE or DROP TABLE ... CASCADE has left.
        made.append(sql.SQL("DROP TABLE IF EXISTS {}").format(one.table_sql))
    if not (found.delta and found.text == body(one, notify)):
        made += creations(one, notify)
    for name, trigger, enabled in zip(
        one.triggers, trigger_creations(one), found.enabled, strict=True
    ):
        if enabled is None:
            made.append(_drop_trigger(one, name))
            made.append(trigger)
        if enabled != "A":
            made.append(trigger_enabling(one, name))
    return made


def _drop_trigger(one: DeltaTable, name: str) -> sql.Composed:
    """A trigger of that name may be there with another function."""
    return sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(sql.Identifier(name), one.base_sql)


def remove(dsn: str, source: str, tables: Sequence[DeltaTable]) -> list[Done]:
    """Take away what `install` made, and the schema when nothing else is in it.

    Raises:
        FrescoError: as `install`.
    """
    done = []
    with _connected(dsn, source) as connection:
        for one, found in zip(tables, watch(connection, tables).values(), strict=True):
            there = found.delta or found.function or any(found.enabled)
            _run(connection, source, one, removals(one, found.base is not None))
            done.append(Done(source, one.relation, "removed" if there else "absent"))
        for home in dict.fromkeys(one.home for one in tables):
            try:
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {}").format(sql.Identifier(home)))
            except errors.DependentObjectsStillExist:
                pass  # relations that the configuration no longer names, or someone else's things
            except psycopg.Error as error:
                raise _refused(source, home, error) from None
    return done


def check(dsn: str, source: str, tables: Sequence[DeltaTable]) -> str:
    """Says how many delta tables are there and work.

    Raises:
        FrescoError: SOURCE_CONNECTION, SOURCE_UNREACHABLE, SOURCE_VERSION, SOURCE_TRIGGER_MISSING.
    """
    with _connected(dsn, source) as connection:
        wrong = broken(watch(connection, tables), {})
    for error in wrong.values():
        raise error
    return f"{len(tables)} of source {source}"


def role_of(dsn: str, source: str) -> str:
    """The role that a connection string logs in as.

    Raises:
        FrescoError: see `postgres.connected`.
    """
    with _connected(dsn, source) as connection:
        found = connection.execute("SELECT current_user").fetchone()
    assert found is not None
    return str(found[0])


def _run(
    connection: psycopg.Connection[Any],
    source: str,
    one: DeltaTable,
    listed: Sequence[sql.Composed],
) -> None:
    """All statements in one transaction, tried again while writers hold the table."""
    for attempt in range(ATTEMPTS):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {LOCK_MS}")
                for statement in listed:
                    connection.execute(statement)
            return
        except errors.LockNotAvailable:
            time.sleep(0.2 * attempt)  # writers that were held up go on meanwhile
        except psycopg.Error as error:
            raise _refused(source, one.relation, error) from None
    raise FrescoError(
        "SOURCE_TABLE_LOCKED",
        f"transactions that change {one.relation} did not end within {LOCK_MS / 1000:g} s, {ATTEMPTS}"
        " times",
        where=f"source {source}",
        todo="end them (see pg_stat_activity, state 'idle in transaction'), then try again",
    )


@contextmanager
def _connected(dsn: str, source: str) -> Iterator[psycopg.Connection[Any]]:
    with connected(dsn, source) as connection:
        if connection.info.server_version < OLDEST:
            raise FrescoError(
                "SOURCE_VERSION",
                f"the server is version {connection.info.server_version // 10000}; delta tables need"
                f" PostgreSQL {OLDEST // 10000} or newer",
                where=f"source {source}",
                todo="use USING replica for the views over it",
            )
        yield connection


def _refused(source: str, what: str, error: psycopg.Error) -> FrescoError:
    text = " ".join(str(error).split())
    return FrescoError(
        "SOURCE_INSTALL_REFUSED",
        f"source {source} refuses a statement for {what}: {text}",
        where=f"source {source}",
        todo="connect as the owner of the tables who may create a schema in the database"
        " (`--owner-file`), or run what `fresco isolated install --sql` prints as one",
    )
