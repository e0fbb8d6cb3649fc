"""The rows of one relation that can matter, out of one snapshot of MariaDB.

One statement per relation: its columns that are read, the conditions it is known to need (`mysqlfilter`)
and the keys it is restricted to. Keys of one column are an IN list, which its index answers; of several,
a list of rows besides one list for each column, since MariaDB looks rows up in no index. What would make
the statement longer than the server takes is left out: then more rows come than needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import pymysql

from streaming.ask.mariadb.mysql_filter import weaker
from streaming.ask.mariadb.mysql_state import quoted
from streaming.ask.mariadb.mysql_values import MysqlColumn
from streaming.ask.reduction import Input
from streaming.ask.restriction import Keys, signed_rows
from streaming.captured.captured_schema import CapturedRelation
from streaming.engines.duck.signed import Signed

LONGEST = 8 << 20
"""Characters of one restriction; the server takes 16 MiB a statement by default."""


class MysqlReader:
    """Fetches rows within one snapshot.

    Args:
        limit: keys above which reading the whole table is considered.
    """

    def __init__(self, connection: pymysql.connections.Connection, limit: int) -> None:
        self._connection = connection
        self._limit = limit
        self.statements = 0

    def covers(self, captured: CapturedRelation, keys: Keys) -> bool:
        """Whether so many keys are wanted that the whole table is as quickly read."""
        if keys.values.num_rows <= self._limit:
            return False
        database, _, table = captured.counted_as.partition(".")
        with self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_rows FROM information_schema.tables"
                " WHERE table_schema = %s AND table_name = %s",
                (database, table),
            )
            found = cursor.fetchone()
        return found is not None and int(found[0] or 0) < 2 * keys.values.num_rows

    def read(
        self,
        captured: CapturedRelation,
        columns: Sequence[MysqlColumn],
        one: Input,
        restricted: Sequence[Keys],
    ) -> Signed:
        """A relation's rows that pass the filters and have one of the keys of each restriction."""
        names = [column.name for column in columns]
        refs = [f"r.{quoted(name)}" for name in names]
        read = sorted(one.used)
        wanted = [columns[i] for i in read]
        cells = ", ".join(column.selected(refs[i]) for i, column in zip(read, wanted, strict=True))
        database, _, table = captured.counted_as.partition(".")
        query = f"SELECT {cells or '1'} FROM {quoted(database)}.{quoted(table)} r"
        conditions = weaker(one.filters, names)
        conditions += [self._restriction(keys, columns, refs) for keys in restricted]
        said = [condition for condition in conditions if condition]
        where = f" WHERE {' AND '.join(said)}" if said else ""
        self.statements += 1
        with self._connection.cursor() as cursor:
            cursor.execute(query + where)
            rows = cursor.fetchall()
        texts = list(zip(*rows, strict=True)) if rows else [()] * len(wanted)
        arrays = [column.read(values) for column, values in zip(wanted, texts, strict=False)]
        return signed_rows(one, read, arrays, len(rows))

    def _restriction(self, keys: Keys, columns: Sequence[MysqlColumn], refs: Sequence[str]) -> str:
        """The relation's columns are among the keys; "" where the statement would be too long."""
        lists = []
        for at, position in enumerate(keys.columns):
            literals = columns[position].key
            assert literals is not None
            lists.append(literals(keys.values.column(at).combine_chunks()))
        rows = [row for row in zip(*lists, strict=True) if None not in row]
        if not rows:
            return "FALSE"
        condition = _among([refs[position] for position in keys.columns], rows)
        return condition if len(condition) <= LONGEST else ""


def _among(refs: Sequence[str], rows: Sequence[Sequence[str | None]]) -> str:
    """The columns have the values of one of these rows."""
    tests = []
    for ref, values in zip(refs, zip(*rows, strict=True), strict=True):
        distinct = dict.fromkeys(str(value) for value in values)
        tests.append(f"{ref} IN ({', '.join(distinct)})")
    if len(refs) > 1:
        listed = ", ".join(f"({', '.join(map(str, row))})" for row in rows)
        tests.append(f"({', '.join(refs)}) IN ({listed})")
    return " AND ".join(tests)
