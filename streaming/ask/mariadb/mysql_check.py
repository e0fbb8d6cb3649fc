"""What a MariaDB or MySQL and its captured tables must be like for the log to hold every change of them.

One list: `fresco doctor`, each start and `fresco capture` judge a server by it, and docs/doctor.md shows
it. A row's old version is in the log in full under binlog_format=ROW with binlog_row_image=FULL
only, and binlog_row_metadata=FULL puts each table's column names and types beside its rows, so that they
are read right whatever the table has become since (DESIGN 6). A setting or an option that is not in the
list may be as it likes: checksums and compression of MariaDB's log, time zones, letter case of names,
tables without a key, triggers, temporary tables. What nobody can see: a session that switches its log off
(sql_log_bin).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pymysql

from streaming.ask.mariadb.mysql_catalog import split_table
from streaming.ask.mariadb.mysql_state import quoted
from streaming.ask.mariadb.mysql_url import asking, parse_url
from streaming.captured.checked import Checked, Rule
from streaming.errors import FrescoError

_DAY, _WEEK = 86_400, 7 * 86_400
Named = tuple[str, str]
"""Database and table."""


@dataclass(frozen=True)
class Server:
    """What a server says of itself.

    Attributes:
        variables: global variables of the list that it has, by name, as it spells them.
        follows: whether it takes changes from another server, as a replica or a node of a cluster.
        logged, unlogged: databases of binlog_do_db and binlog_ignore_db; None where they may not be read.
        reads_log: whether its user may read the log.
    """

    mariadb: bool
    variables: Mapping[str, str]
    follows: bool = False
    logged: frozenset[str] | None = frozenset()
    unlogged: frozenset[str] | None = frozenset()
    reads_log: bool = True


@dataclass(frozen=True)
class Cascade:
    """A foreign key whose action changes rows of its own table.

    Attributes:
        columns, parent_columns: as the catalog quotes them, in pairs.
        parent: database and table that are referred to, quoted.
        delete, update: "", "CASCADE" or "SET NULL".
    """

    name: str
    columns: tuple[str, ...]
    parent: tuple[str, str]
    parent_columns: tuple[str, ...]
    delete: str
    update: str


@dataclass(frozen=True)
class CheckedTable:
    """A captured table as the catalog has it.

    Attributes:
        kind: BASE TABLE, SYSTEM VERSIONED, VIEW, ...
        engine: in capital letters.
        row_start, row_end: columns of its system time, where it declares them.
        by_transaction: whether its system time is told in numbers of transactions.
        old: columns in the format of MariaDB 5.3 whose length no log says.
    """

    name: Named
    kind: str
    engine: str = ""
    partitioned: bool = False
    cascades: tuple[Cascade, ...] = ()
    row_start: str = ""
    row_end: str = ""
    by_transaction: bool = False
    old: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return ".".join(self.name)

    @property
    def quoted(self) -> str:
        return ".".join(quoted(part) for part in self.name)


# Settings of the server ---------------------------------------------------------------------------

Judge = Callable[[str, Server, Sequence[CheckedTable]], bool]


@dataclass(frozen=True)
class Variable:
    """One variable of a server.

    Attributes:
        right: whether a value keeps every change of the captured tables in the log.
        make: the value to set.
        otherwise: what another value means.
        needed: whether a server without the variable is wrong; others are judged where they have it.
        restart: whether it is set in the server's configuration only.
    """

    name: str
    right: Judge
    make: str
    otherwise: str
    rule: Rule
    needed: bool = False
    restart: bool = False

    def found(self, server: Server, tables: Sequence[CheckedTable]) -> str | None:
        """Its value where that is wrong."""
        value = server.variables.get(self.name)
        if value is None:
            return "not known there" if self.needed else None
        return None if self.right(value, server, tables) else value

    @property
    def statement(self) -> str:
        """What sets it."""
        if self.restart:
            return f"set {self.name}={self.make} in the server's configuration and restart it;"
        value = self.make if self.make.isdigit() or self.make == "DEFAULT" else f"'{self.make}'"
        return f"SET GLOBAL {self.name} = {value};"


def among(*values: str) -> Judge:
    """One of the values, in any case."""
    return lambda value, server, tables: value.upper() in values


def _seconds(value: str, server: Server, tables: Sequence[CheckedTable]) -> bool:
    return not 0 < int(value) < _DAY


def _no_bytes(value: str, server: Server, tables: Sequence[CheckedTable]) -> bool:
    return int(value) == 0


def _logs_what_it_takes(value: str, server: Server, tables: Sequence[CheckedTable]) -> bool:
    return value.upper() == "ON" or not server.follows


def _now(value: str, server: Server, tables: Sequence[CheckedTable]) -> bool:
    return value.upper() == "DEFAULT" or not any(one.kind == _VERSIONED for one in tables)


LOG = Rule("SOURCE_ROW_IMAGE", "wrong", "the log does not hold whole rows")
FOLLOWS = Rule("SOURCE_LOG_PARTS", "wrong", "changes of captured tables are kept out of the log")
PAST = Rule("SOURCE_PAST_ROWS", "wrong", "a snapshot and an answer show rows of another time")
KEPT = Rule("SOURCE_LOG_RETENTION", "warning", "a capture that is away for longer cannot go on")
DURABLE = Rule(
    "SOURCE_LOG_DURABILITY",
    "warning",
    "after a crash of its machine the server's log and tables may differ by the last transactions",
)
RIGHTS = Rule("SOURCE_LOG_RIGHTS", "warning", "the user may not read the log, which a capture must")

_VERSIONED = "SYSTEM VERSIONED"
_FULL = "values that did not change, or that no key needs, are not in the log"
SETTINGS: tuple[Variable, ...] = (
    Variable("log_bin", among("ON", "1"), "binlog", "there is no log", LOG, True, True),
    Variable("binlog_format", among("ROW"), "ROW", "statements are logged, not rows", LOG, True),
    Variable("binlog_row_image", among("FULL"), "FULL", _FULL, LOG, True),
    Variable("binlog_row_metadata", among("FULL"), "FULL", "no row says its columns' names and types",
            LOG, True),
    Variable("binlog_row_value_options", among(""), "", "JSON values are logged in part", LOG),
    Variable("binlog_transaction_compression", among("OFF", "0"), "OFF",
            "transactions are compressed as a whole", LOG),
    Variable("log_slave_updates", _logs_what_it_takes, "ON",
            "what a replica or a node of a cluster takes from others is not in its log", FOLLOWS,
            restart=True),
    Variable("log_replica_updates", _logs_what_it_takes, "ON",
            "what a replica takes from others is not in its log", FOLLOWS, restart=True),
    Variable("system_versioning_asof", _now, "DEFAULT",
            "of tables with system versioning every SELECT shows another time", PAST),
    Variable("binlog_expire_logs_seconds", _seconds, str(_WEEK), "the log is kept for less than a day",
            KEPT),
    Variable("max_binlog_total_size", _no_bytes, "0", "the log is deleted by its size, read or not",
            KEPT),
    Variable("sync_binlog", among("1"), "1", "a commit does not wait for its log to be on disk", DURABLE),
    Variable("innodb_flush_log_at_trx_commit", among("1", "3"), "1",
            "a commit does not wait for its rows to be on disk", DURABLE),
)  # fmt: skip


def _filtered(server: Server, tables: Sequence[CheckedTable]) -> list[str]:
    """Databases of captured tables that the log leaves out."""
    if server.logged is None or server.unlogged is None:
        return []
    mine = dict.fromkeys(database for database, _ in (one.name for one in tables))
    return [
        one
        for one in mine
        if (server.logged and one not in server.logged)
        or (not server.logged and one in server.unlogged)
    ]


def _server_checks(check: str, server: Server, tables: Sequence[CheckedTable]) -> Iterator[Checked]:
    for one in SETTINGS:
        value = one.found(server, tables)
        if value is not None:
            says = f"{one.name} is {value or 'empty'}: {one.otherwise}"
            yield one.rule.found(check, says, one.statement)
    for database in _filtered(server, tables):
        yield FOLLOWS.found(
            check,
            f"the log leaves database {database} out (binlog_do_db, binlog_ignore_db)",
            "take binlog_do_db and binlog_ignore_db out of the server's configuration and restart it",
        )


def variables_table() -> str:
    """`SETTINGS` as docs/doctor.md shows them."""
    lines = ["| setting | right | otherwise | code |", "|---|---|---|---|"]
    for one in SETTINGS:
        how = " (at the server's start)" if one.restart else ""
        value = f"`{one.make}`" if one.make else "empty"
        right = _RIGHT.get(one.name, value)
        lines.append(f"| `{one.name}`{how} | {right} | {one.otherwise} | `{one.rule.code}` |")
    return "\n".join(lines) + "\n"


_RIGHT = {
    "log_bin": "set",
    "log_slave_updates": "`ON` on a replica or in a cluster",
    "log_replica_updates": "`ON` on a replica",
    "system_versioning_asof": "`DEFAULT` where a table with system versioning is captured",
    "binlog_expire_logs_seconds": "0, or a day at least",
}
"""Where more than one value is right."""


# Captured tables ----------------------------------------------------------------------------------

NO_TABLE = Rule(
    "SOURCE_TABLE_KIND", "wrong", "a view, a sequence or the like has no rows in the log"
)
CASCADES = Rule(
    "SOURCE_CASCADES",
    "wrong",
    "ON DELETE or ON UPDATE CASCADE or SET NULL of a captured table's foreign key: the server does not"
    " log what it does (MySQL does from 9.6 on)",
)
BY_TRANSACTION = Rule(
    "SOURCE_VERSIONED_BY_TRANSACTION",
    "wrong",
    "system versioning by numbers of transactions: the server logs statements of it, not rows",
)
VERSIONED = Rule(
    "SOURCE_VERSIONED",
    "either",
    "system versioning under another capture than `fresco capture --source S`: the log has past rows"
    " beside the present ones, and Debezium gives out both",
)
PAST_THE_LOG = Rule(
    "SOURCE_ENGINE", "wrong", "an engine whose rows change or vanish without a word in the log"
)
NOT_ATOMIC = Rule(
    "SOURCE_ENGINE_TRANSACTIONS",
    "warning",
    "an engine without transactions (MyISAM, Aria, CSV, ARCHIVE): a snapshot is no moment of it",
)
PARTITIONED = Rule(
    "SOURCE_PARTITIONS",
    "warning",
    "a partitioned table under another capture than `fresco capture --source S`: TRUNCATE, DROP and"
    " EXCHANGE PARTITION are in the log as statements only",
)
OLD_MOMENTS = Rule(
    "SOURCE_OLD_MOMENTS",
    "wrong",
    "DATETIME, TIME or TIMESTAMP with decimals in the format of MariaDB 5.3: the log does not say how"
    " long its values are",
)
RULES = (
    LOG, FOLLOWS, PAST, KEPT, DURABLE, RIGHTS, NO_TABLE, CASCADES, BY_TRANSACTION, VERSIONED,
    PAST_THE_LOG, NOT_ATOMIC, PARTITIONED, OLD_MOMENTS,
)  # fmt: skip
_ATOMIC = ("INNODB", "ROCKSDB", "TOKUDB", "NDBCLUSTER")
_IN_THE_LOG = ("MYISAM", "ARIA", "CSV", "ARCHIVE")
_AGAIN = "then capture anew: what has changed until then is not in the log"


def _table_checks(
    check: str, server: Server, table: CheckedTable, ours: bool | None
) -> Iterator[Checked]:
    """What is wrong or doubtful of a table.

    Args:
        ours: whether `fresco capture` reads the log; None where nobody knows.
    """
    if table.kind not in ("BASE TABLE", _VERSIONED):
        yield NO_TABLE.found(
            check,
            f"{table.text} is no table but {table.kind.lower()}: its rows are in no log",
            "capture the tables that it reads and write the view's SQL in a view of Fresco",
        )
        return
    for one in () if _logs_cascades(server) else table.cascades:
        yield CASCADES.found(check, *_cascade(table, one))
    if table.by_transaction:
        columns = ", ".join(
            f"DROP COLUMN {quoted(one)}" for one in (table.row_start, table.row_end)
        )
        yield BY_TRANSACTION.found(
            check,
            f"{table.text} has system versioning by numbers of transactions, which is logged as"
            " statements",
            "SET system_versioning_alter_history = KEEP;"
            f" ALTER TABLE {table.quoted} DROP SYSTEM VERSIONING, DROP PERIOD FOR SYSTEM_TIME, {columns};"
            f" ALTER TABLE {table.quoted} ADD SYSTEM VERSIONING; {_AGAIN} (and"
            " its history is gone)",
        )
    elif table.kind == _VERSIONED and not ours:
        yield VERSIONED.found(
            check,
            f"{table.text} has system versioning: the log has its past rows, too",
            "let `fresco capture --source S` capture it, which gives out present rows only, or take"
            f" it away: ALTER TABLE {table.quoted} DROP SYSTEM VERSIONING;",
            "wrong" if ours is False else "warning",
        )
    if table.old:
        yield OLD_MOMENTS.found(
            check,
            f"{table.text} has columns in the format of MariaDB 5.3, whose length no log says:"
            f" {', '.join(table.old)}",
            f"SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE {table.quoted} FORCE; {_AGAIN}",
        )
    mend = f"ALTER TABLE {table.quoted} ENGINE = InnoDB; {_AGAIN}"
    if table.engine in _IN_THE_LOG:
        yield NOT_ATOMIC.found(
            check,
            f"{table.text} has the engine {table.engine}, which knows no transactions: a snapshot"
            " that is taken while somebody writes into it is no moment of it, and a crash loses rows",
            mend,
        )
    elif table.engine not in _ATOMIC:
        yield PAST_THE_LOG.found(
            check,
            f"{table.text} has the engine {table.engine or 'none'}, whose rows change or vanish"
            " without a word in the log",
            mend,
        )
    if table.partitioned and table.kind != _VERSIONED and not ours:
        yield PARTITIONED.found(
            check,
            f"{table.text} is partitioned: TRUNCATE, DROP and EXCHANGE PARTITION have no rows in the log",
            "DELETE the rows of a partition first; `fresco verify --source` finds a difference",
        )


def _logs_cascades(server: Server) -> bool:
    """MySQL's own foreign keys are those of its SQL layer since 9.6, which logs what they do."""
    value = server.variables.get("innodb_native_foreign_keys", "ON")
    return not server.mariadb and value.upper() in ("OFF", "0")


def _cascade(table: CheckedTable, key: Cascade) -> tuple[str, str]:
    """What a foreign key does past the log, and the statements that have the log hold it: its action
    becomes a trigger's, whose rows are logged; a changed key, or a row that refers to its own table,
    cannot be followed by a trigger, and is refused by the server then."""
    actions = [f"ON DELETE {key.delete}"] if key.delete else []
    actions += [f"ON UPDATE {key.update}"] if key.update else []
    says = (
        f"foreign key {key.name} of {table.text} has {' and '.join(actions)}, which is not logged"
    )
    columns, referred = ", ".join(key.columns), ", ".join(key.parent_columns)
    name, parent = quoted(key.name), ".".join(key.parent)
    mend = (
        f"ALTER TABLE {table.quoted} DROP FOREIGN KEY {name};"
        f" ALTER TABLE {table.quoted} ADD CONSTRAINT {name} FOREIGN KEY ({columns}) REFERENCES"
        f" {parent} ({referred});"
    )
    pairs = zip(key.columns, key.parent_columns, strict=True)
    where = " AND ".join(f"{child} = OLD.{parent}" for child, parent in pairs)
    change = {
        "CASCADE": f"DELETE FROM {table.quoted}",
        "SET NULL": f"UPDATE {table.quoted} SET {', '.join(f'{one} = NULL' for one in key.columns)}",
    }.get(key.delete)
    if change and parent != table.quoted:
        trigger = f"{key.parent[0]}.{quoted(f'log {key.name}'[:64])}"
        mend += f" CREATE TRIGGER {trigger} BEFORE DELETE ON {parent} FOR EACH ROW {change}"
        mend += f" WHERE {where};"
    return says, f"{mend} {_AGAIN}"


# Reading ------------------------------------------------------------------------------------------

_IDENTIFIER = r"`(?:[^`]|``)+`"
_FOREIGN_KEY = re.compile(
    rf"^  CONSTRAINT ({_IDENTIFIER}) FOREIGN KEY \(([^\n]*?)\) REFERENCES"
    rf" (?:({_IDENTIFIER})\.)?({_IDENTIFIER}) \(([^\n]*?)\)([^\n]*)$",
    re.MULTILINE,
)
_TABLE = """
SELECT table_type, engine, create_options FROM information_schema.tables
WHERE table_schema = %s AND table_name = %s
"""
_PERIOD = """
SELECT generation_expression, column_name, column_type FROM information_schema.columns
WHERE table_schema = %s AND table_name = %s AND generation_expression IN ('ROW START', 'ROW END')
"""


_OLD = """
SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s
AND column_type LIKE '%%(_) /* mariadb-5.3 */' ORDER BY ordinal_position
"""


def read_server(cursor: Any) -> Server:
    """The server behind a cursor."""
    cursor.execute("SELECT VERSION()")
    mariadb = "mariadb" in _text(cursor.fetchone()[0]).lower()
    names = [one.name for one in SETTINGS] + ["innodb_native_foreign_keys", "wsrep_on"]
    listed = ", ".join(f"'{name}'" for name in names)
    cursor.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
    variables = {_text(name).lower(): _text(value) for name, value in cursor.fetchall()}
    if "log_replica_updates" in variables:
        variables.pop("log_slave_updates", None)  # its other name
    follows = variables.pop("wsrep_on", "OFF").upper() == "ON" or _is_replica(cursor, mariadb)
    logged: frozenset[str] | None = None
    unlogged: frozenset[str] | None = None
    status = _rows(cursor, "SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
    if status is not None:
        do, ignore = (status[0][2], status[0][3]) if status else ("", "")
        logged, unlogged = (frozenset(filter(None, _text(one).split(","))) for one in (do, ignore))
    cursor.execute("SHOW GRANTS")
    grants = " ".join(_text(row[0]).upper() for row in cursor.fetchall())
    reads = "REPLICATION SLAVE" in grants or "ALL PRIVILEGES ON *.*" in grants
    return Server(mariadb, variables, follows, logged, unlogged, reads)


def _is_replica(cursor: Any, mariadb: bool) -> bool:
    """Whether it is told to follow another server; where nobody may ask, whether it does now."""
    first = "SHOW ALL SLAVES STATUS" if mariadb else "SHOW REPLICA STATUS"
    rows = _rows(cursor, first)
    if rows is None:
        rows = _rows(cursor, "SHOW GLOBAL STATUS LIKE 'Slaves_running'") or ()
        return any(_text(row[1]) not in ("", "0") for row in rows)
    return bool(rows)


def _rows(cursor: Any, *queries: str) -> Sequence[Any] | None:
    """The answer to the first query that the server knows and allows; None where it does none."""
    for query in queries:
        with suppress(pymysql.ProgrammingError, pymysql.OperationalError):
            cursor.execute(query)
            rows: Sequence[Any] = cursor.fetchall()
            return rows
    return None


def read_table(cursor: Any, name: Named) -> CheckedTable | None:
    """A table in the catalog; None where it is not there."""
    cursor.execute(_TABLE, name)
    row = cursor.fetchone()
    if row is None:
        return None
    kind, engine, options = (_text(one) for one in row)
    if kind not in ("BASE TABLE", _VERSIONED):
        return CheckedTable(name, kind)
    cursor.execute(f"SHOW CREATE TABLE {'.'.join(quoted(part) for part in name)}")
    cascades = tuple(_cascades(_text(cursor.fetchone()[1]), name[0]))
    cursor.execute(_PERIOD, name)
    period = {
        _text(what): (_text(column), _text(type_)) for what, column, type_ in cursor.fetchall()
    }
    start, end = period.get("ROW START", ("", "")), period.get("ROW END", ("", ""))
    partitioned = "partitioned" in options
    by_transaction = end[1].startswith("bigint")
    cursor.execute(_OLD, name)
    old = tuple(_text(column) for (column,) in cursor.fetchall())
    return CheckedTable(
        name, kind, engine.upper(), partitioned, cascades, start[0], end[0], by_transaction, old
    )


def _cascades(text: str, database: str) -> Iterator[Cascade]:
    for name, columns, home, parent, referred, actions in _FOREIGN_KEY.findall(text):
        delete = re.search(r" ON DELETE (CASCADE|SET NULL)", actions)
        update = re.search(r" ON UPDATE (CASCADE|SET NULL)", actions)
        if delete or update:
            yield Cascade(
                name[1:-1].replace("``", "`"),
                tuple(re.findall(_IDENTIFIER, columns)),
                (home or quoted(database), parent),
                tuple(re.findall(_IDENTIFIER, referred)),
                delete[1] if delete else "",
                update[1] if update else "",
            )


def read_facts(
    connection: str, source: str, tables: Collection[str]
) -> tuple[Server, list[CheckedTable]]:
    """The server, and those of the captured tables that are there.

    Raises:
        FrescoError: SOURCE_CONNECTION, SOURCE_UNREACHABLE, SOURCE_CREDENTIALS, SOURCE_TABLE_LOCKED,
            SOURCE_QUERY_REFUSED.
    """
    url = parse_url(connection, source)
    with asking(url, source) as cursor:
        cursor.execute("SET SESSION sql_mode = '', sql_quote_show_create = 1")
        server = read_server(cursor)
        found = [read_table(cursor, split_table(one, url, source)) for one in tables]
    return server, [one for one in found if one is not None]


# Judging ------------------------------------------------------------------------------------------


def check_server(
    connection: str, source: str, tables: Collection[str], ours: bool | None = None
) -> list[Checked]:
    """The checks of a server and its captured tables.

    Args:
        tables: "database.table" of each.
        ours: whether `fresco capture` reads its log; None where nobody knows.

    Raises:
        FrescoError: see `read_facts`.
    """
    server, known = read_facts(connection, source, tables)
    found = list(_server_checks(f"log of {source}", server, known))
    for table in known:
        found += _table_checks(f"table {table.text} of {source}", server, table, ours)
    return found or [
        Checked(f"log of {source}", "ok", f"{len(known)} tables, every change of them")
    ]


def require(source: str, found: Sequence[Checked]) -> None:
    """Refuse a server or a table some of whose changes are not in the log.

    Raises:
        FrescoError: the code of the first that is wrong, with all that have it.
    """
    wrong = [one for one in found if one.bad]
    same = [one for one in wrong if one.code == wrong[0].code]
    if same:
        raise FrescoError(
            same[0].code,
            f"source {source}: {'; '.join(one.says for one in same)}",
            where=f"source {source}",
            todo=f"run: {' '.join(one.todo for one in same)}",
        )


def check_rights(connection: str, source: str) -> Checked:
    """Whether the user may read the log, as a capture's must."""
    server, _ = read_facts(connection, source, ())
    if server.reads_log:
        return Checked(f"rights at {source}", "ok", "the user may read the log")
    return RIGHTS.found(
        f"rights at {source}",
        "the user has no REPLICATION SLAVE",
        "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO the capture's user",
    )


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")
