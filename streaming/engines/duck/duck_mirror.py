"""A view's rows in the driver, found by key without a pass over them (`viewmanagers.mirror`).

`key_delete` looks up a few rows by key many times a second, in views of a million rows. The rows are in a
DuckDB table that only grows: signed rows, a hash column and an index for every set of columns that was
asked for. What was added last is a dict beside it (the *tail*), so that most changes cost no statement.
When retractions have made enough of the table useless it is folded.

A snapshot names packed pieces: the *base*, the flushed tails since, and the tail. So its size does not
grow with the view, and a change is packed once. When the tails outweigh the base, a new base is packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count

import pyarrow as pa

from streaming.algebra.bag import Numbered
from streaming.algebra.operators import Positions
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.messages import Rows
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Lit, Schema, column_name
from streaming.scalars.renderings import literal
from streaming.scalars.types import delta_schema

TAIL = 2_000
"""Rows of the tail; more go into the table."""
FOLD_LEAST = 50_000
"""Useless rows below which folding is not worth a statement."""
BASE_LEAST = 100_000
"""Rows of flushed tails below which no new base is packed."""
LOOKED_UP = 200
"""Rows up to whose keys an index is used; more are joined with the hashes in one pass."""
_NAMES = count()


class DuckMirror:
    """The rows of MV; see `viewmanagers.mirror.Mirror`.

    Args:
        operators: whose DuckDB holds the table.
        schema: of the view.
        keep: packs a piece so that it stays out of messages; by default as any value is packed.
        tail, looked_up: in place of `TAIL` and `LOOKED_UP`.
    """

    def __init__(
        self,
        operators: DuckOperators,
        schema: Schema,
        *,
        keep: Callable[[pa.Table], Rows] | None = None,
        tail: int = TAIL,
        looked_up: int = LOOKED_UP,
    ) -> None:
        self._operators = operators
        self._types = [column.type for column in schema]
        self._schema = delta_schema(schema)
        self._keep = keep
        self._limit, self._most = tail, looked_up
        self._table = f"mirror{next(_NAMES)}"
        self._indexes: list[Positions] = []
        self._clear()

    def _clear(self) -> None:
        """No rows."""
        self._tail: Numbered = {}
        self._by_key: dict[Positions, dict[tuple[object, ...], dict[tuple[object, ...], None]]] = {}
        self._base: Rows | None = None
        self._pieces: list[Rows] = []
        self._rows = self._useless = 0
        empty = self._schema.empty_table()
        self._make(f"SELECT {MULTIPLICITY}{self._cells()} FROM empty_rows", empty_rows=empty)

    # Reading --------------------------------------------------------------------------------------

    def rows(self) -> Signed:
        query = f"SELECT {self._zero()}, {MULTIPLICITY}{self._cells()} FROM {self._table}"
        found = self._operators.db.execute(query).to_arrow_table().cast(self._schema)
        stored = self._operators.netted(Signed(self._schema, found, net=not self._useless))
        return self._operators.plus(stored, self._tail_value())

    def matching(self, at: Positions, rows: Signed, rows_at: Positions) -> Signed:
        if not at:
            return self._operators.matching(self.rows(), at, rows, rows_at)
        bag = rows.bag(self._most)
        keys = None if bag is None else {tuple(row[i] for i in rows_at) for _, row in bag}
        if keys is None or any(isinstance(value, bytes) for key in keys for value in key):
            found = self._operators.matching(self._tail_value(), at, rows, rows_at)
            looked_up = self._met(at, rows, rows_at)
        elif not keys:
            return Signed(self._schema, bag={})
        else:
            found = self._tail_matching(at, keys)
            looked_up = self._looked_up(at, keys)
        stored = self._operators.matching(looked_up, at, rows, rows_at)
        return self._operators.plus(self._operators.netted(stored), found)

    def _looked_up(self, at: Positions, keys: Iterable[tuple[object, ...]]) -> Signed:
        """Rows of the table by an index; a hash may be met by chance, so there may be others too."""
        if not self._rows:
            return Signed(self._schema, bag={})
        texts = [self._texts(at, key) for key in keys]
        hashes = ", ".join(f"hash({', '.join(cells)})" for cells in texts)
        return self._read(f"WHERE {self._indexed(at)} IN ({hashes})")

    def _met(self, at: Positions, rows: Signed, rows_at: Positions) -> Signed:
        """The same for many keys: one pass over the hashes alone."""
        if not self._rows:
            return Signed(self._schema, bag={})
        sought = rows.table
        columns = [sought[column_name(j)] for j in rows_at]
        if any(
            column.type != self._schema.field(column_name(i)).type
            for i, column in zip(at, columns, strict=True)
        ):
            return self._read("")
        names = [f"k{n}" for n in range(len(columns))]
        hashed = self._indexed(at)
        self._operators.db.register("sought", pa.table(columns, names=names))
        try:
            keys = f"(SELECT hash({', '.join(names)}) AS h FROM sought)"
            return self._read(f"SEMI JOIN {keys} s ON {hashed} = s.h")
        finally:
            self._operators.db.unregister("sought")

    def _read(self, which: str) -> Signed:
        cells = f"{self._zero()}, {MULTIPLICITY}{self._cells()}"
        query = f"SELECT {cells} FROM {self._table} {which}"
        table = self._operators.db.execute(query).to_arrow_table().cast(self._schema)
        return Signed(self._schema, table, net=False)

    def _indexed(self, at: Positions) -> str:
        """The column of hashes of these columns; it is made when it is first asked for."""
        self.index(at)
        return f"_h{self._indexes.index(at)}"

    def _texts(self, at: Positions, key: tuple[object, ...]) -> list[str]:
        pairs = zip(at, key, strict=True)
        return [literal(Lit(value, self._types[i]), "duckdb") for i, value in pairs]

    def _tail_matching(self, at: Positions, keys: Iterable[tuple[object, ...]]) -> Signed:
        if at not in self._by_key:
            self._by_key[at] = {}
            for _, row in self._tail:
                self._by_key[at].setdefault(tuple(row[i] for i in at), {})[row] = None
        held = self._by_key[at]
        found = [row for key in keys for row in held.get(key, ())]
        return Signed(self._schema, bag={(0, row): self._tail[0, row] for row in found})

    def index(self, *ats: Positions) -> None:
        new = [at for at in dict.fromkeys(ats) if at and at not in self._indexes]
        if new:
            self._indexes += new
            self._make(f"SELECT {MULTIPLICITY}{self._cells()} FROM {self._table}")

    # Changing -------------------------------------------------------------------------------------

    def add(self, delta: Signed) -> None:
        flat = self._operators.renumbered(delta, 0)
        bag = flat.bag(self._limit)
        if bag is None:
            self._flush()
            self._append(flat)
            return
        for (_, row), many in bag.items():
            total = self._tail.get((0, row), 0) + many
            if total:
                self._tail[0, row] = total
            else:
                self._tail.pop((0, row), None)
            for at, held in self._by_key.items():
                key = tuple(row[i] for i in at)
                if total:
                    held.setdefault(key, {})[row] = None
                else:
                    held.get(key, {}).pop(row, None)
        if len(self._tail) > self._limit:
            self._flush()

    def _tail_value(self) -> Signed:
        return Signed(self._schema, bag=dict(self._tail))

    def _flush(self) -> None:
        if self._tail:
            value = self._tail_value()
            self._tail, self._by_key = {}, {}
            self._append(value)

    def _append(self, value: Signed) -> None:
        value = self._operators.netted(value)
        if value.held:
            packed = self._packed(value)
            if self._base is None:
                self._base = packed
            else:
                self._pieces.append(packed)
            self._insert(value.table)
            self._tidy()

    def _packed(self, value: Signed) -> Rows:
        return self._operators.pack(value) if self._keep is None else self._keep(value.table)

    def _insert(self, table: pa.Table) -> None:
        db = self._operators.db
        db.register("mirrored", table)
        hashes = "".join(f", {self._hash(at)}" for at in self._indexes)
        cells = f"{MULTIPLICITY}{self._cells()}{hashes}"
        db.execute(f"INSERT INTO {self._table} SELECT {cells} FROM mirrored")
        gone = db.execute(f"SELECT count(*) FROM mirrored WHERE {MULTIPLICITY} < 0").fetchone()
        db.unregister("mirrored")
        assert gone is not None
        self._rows += table.num_rows
        self._useless += int(gone[0])

    def _tidy(self) -> None:
        """Fold the table, or pack a new base, where either has become worth it."""
        since = sum(piece.rows for piece in self._pieces)
        based = self._base.rows if self._base is not None else 0
        if since > max(BASE_LEAST, based // 2):
            self._base, self._pieces = self._packed(self.rows()), []
        if self._useless > max(FOLD_LEAST, self._rows // 4):
            cells = self._cells()
            total = f"CAST(sum({MULTIPLICITY}) AS BIGINT) AS {MULTIPLICITY}"
            group = f" GROUP BY {cells[2:]}" if cells else ""
            self._make(
                f"SELECT {total}{cells} FROM {self._table}{group} HAVING sum({MULTIPLICITY}) <> 0"
            )
            self._useless = 0

    def _make(self, query: str, **tables: pa.Table) -> None:
        """The table anew from a query, with its hashes and indexes."""
        db = self._operators.db
        for name, table in tables.items():
            db.register(name, table)
        hashes = "".join(f", {self._hash(at)} AS _h{k}" for k, at in enumerate(self._indexes))
        db.execute(
            f"CREATE OR REPLACE TABLE {self._table}_new AS SELECT *{hashes} FROM ({query}) q"
        )
        for name in tables:
            db.unregister(name)
        db.execute(f"DROP TABLE IF EXISTS {self._table}")
        db.execute(f"ALTER TABLE {self._table}_new RENAME TO {self._table}")
        for k in range(len(self._indexes)):
            db.execute(f"CREATE INDEX {self._table}_{next(_NAMES)} ON {self._table}(_h{k})")
        found = db.execute(f"SELECT count(*) FROM {self._table}").fetchone()
        assert found is not None
        self._rows = int(found[0])

    def _hash(self, at: Positions) -> str:
        return f"hash({', '.join(column_name(i) for i in at)})"

    def _cells(self) -> str:
        return "".join(f", {column_name(i)}" for i in range(len(self._types)))

    def _zero(self) -> str:
        return f"CAST(0 AS BIGINT) AS {NUMBER}"

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, object]:
        """References to the pieces, for JSON."""
        tail = self._operators.pack(self._tail_value()) if self._tail else None
        return {"base": self._base, "pieces": list(self._pieces), "tail": tail}

    def restore(self, saved: dict[str, object]) -> None:
        """The rows back from `snapshot`."""
        self._clear()
        noted = [saved["base"]] if saved["base"] else []
        pieces = saved["pieces"]
        assert isinstance(pieces, list)
        for note in [*noted, *pieces]:
            self._insert(self._operators.open(Rows.model_validate(note)).table)
        self._base = Rows.model_validate(saved["base"]) if saved["base"] else None
        self._pieces = [Rows.model_validate(note) for note in pieces]
        if saved["tail"]:
            self.add(self._operators.open(Rows.model_validate(saved["tail"])))
