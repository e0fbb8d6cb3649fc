"""Queries over texts whose plans are kept: planning one of 1,600 columns takes seconds (oddity 38).

DuckDB keeps the plan of a prepared statement until the catalog of a database that it reads changes, and
each registered Arrow table changes one. So the texts go into a table that stays, in a database of its own
inside the engine. That copies them: a batch that is so large that reading it takes longer than planning
is handed over as the Arrow table that it is, and planned anew.
"""

from __future__ import annotations

from collections import OrderedDict

import duckdb
import pyarrow as pa

COPIED = 10_000
"""Texts of a batch at most whose query's plan is kept."""
KEPT = 16 << 20
"""Characters of the kept plans' queries together; the one that was not used for longest goes first. A
plan takes more memory than its text, by some ten times."""


class TextPlans:
    """Runs queries that read FROM texts, a table of p, o and v (`debezium`).

    Args:
        engine: its statements in between are nobody's business.
    """

    def __init__(self, engine: duckdb.DuckDBPyConnection) -> None:
        self._engine = engine
        self._names: OrderedDict[str, str] = OrderedDict()
        self._next = 0
        engine.execute("ATTACH IF NOT EXISTS ':memory:' AS plans")
        engine.execute("CREATE TABLE IF NOT EXISTS plans.texts (p INTEGER, o BIGINT, v VARCHAR)")

    def run(self, sql: str, texts: pa.Table) -> pa.Table:
        """The query's answer over these texts.

        Raises:
            duckdb.Error: a text is not what the query reads.
        """
        self._engine.register("texts", texts)
        try:
            if texts.num_rows > COPIED:
                return self._engine.execute(sql).to_arrow_table()
            self._engine.execute("INSERT INTO plans.main.texts SELECT p, o, v FROM texts")
            return self._engine.execute(f"EXECUTE {self._prepared(sql)}").to_arrow_table()
        finally:
            self._engine.unregister("texts")
            if texts.num_rows <= COPIED:
                self._engine.execute("TRUNCATE plans.main.texts")

    def _prepared(self, sql: str) -> str:
        """The name of the query's plan, which is made where there is none."""
        if sql in self._names:
            self._names.move_to_end(sql)
            return self._names[sql]
        name, self._next = f"texts_{self._next}", self._next + 1
        self._engine.execute(
            f"PREPARE {name} AS {sql.replace('FROM texts', 'FROM plans.main.texts')}"
        )
        self._names[sql] = name
        while len(self._names) > 1 and sum(map(len, self._names)) > KEPT:
            self._engine.execute(f"DEALLOCATE {self._names.popitem(last=False)[1]}")
        return name
