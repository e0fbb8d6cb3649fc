"""What sessions ask of a PostgreSQL source with delta tables (moro-sartori 5.4 and 5.6).

**TID(old)** is kept as the snapshot that step 1 was answered in, in place of the list of ids it stands
for: the ids in the delta tables are then those it shows (`pg_visible_in_snapshot`), however many they
are.

**Equation (3)** as printed builds the whole table in its old state before anything is joined with it.
Over signed bags it is a sum, R(old) = R - D, where D has what the delta tables say of transactions
after old (insertions at +1, deletions at -1); likewise R(past) = R - D of all, and a join with a sum is
the sum of the joins. So the join goes down to the parts: the table is asked for the rows that match
what is known, through its index, and the delta table, which is small, is read once. What came and what
went are D of the ids read, netted, by sign; what stays is R(past) less what went.

Everything a statement reads, the triggers' catalog rows included, is read in one REPEATABLE READ
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors, sql

from streaming.algebra.source_queries import QueryPart
from streaming.ask.postgres.pg_reader import PgReader
from streaming.ask.postgres.pg_source import ARRAY_LIMIT, TIMEOUT, PostgresSource
from streaming.ask.postgres.pg_state import PgState
from streaming.ask.reduction import Input, Reduction, reduction
from streaming.captured.captured_schema import CapturedRelation
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.errors import FrescoError
from streaming.isolated.add_del import IDS, TID, State
from streaming.isolated.delta_reader import DeltaReader
from streaming.isolated.delta_tables import DeltaTable, delta_table_of
from streaming.isolated.delta_watch import RelationObjects, broken, watch
from streaming.scalars.expression import column_name
from streaming.scalars.types import delta_schema

CHANGES = ("added", "deleted")
"""States of which only the delta table has rows."""
NOTHING = "1:1:"
"""A snapshot that shows no transaction."""


class Gap(Exception):
    """Triggers were not in place all the time: by relation, the error that says so."""

    def __init__(self, wrong: Mapping[str, FrescoError]) -> None:
        super().__init__(", ".join(wrong))
        self.wrong = dict(wrong)


class PartFailed(Exception):
    """One part of a statement has no value; the others may have."""

    def __init__(self, index: int, error: FrescoError) -> None:
        super().__init__(str(error))
        self.index, self.error = index, error


@dataclass(frozen=True)
class Looked:
    """What step 1 finds.

    Attributes:
        watched: by relation, its objects.
        filled: the relations whose delta tables have rows.
        state: of the source; its snapshot is TID(old).
    """

    watched: Mapping[str, RelationObjects]
    filled: frozenset[str]
    state: PgState

    def ids(self, relations: Iterable[str]) -> Signed:
        """TID(old) of these relations: one row, or none where there is nothing to do."""
        some = any(name in self.filled for name in relations)
        rows = {(0, (snapshot_text(self.state),)): 1} if some else {}
        return Signed(delta_schema((TID,)), bag=rows)


def snapshot_text(state: PgState) -> str:
    """As `pg_current_snapshot()` writes it."""
    return f"{state.xmin}:{state.xmax}:{','.join(map(str, sorted(state.xip)))}"


class DeltaTableSource(PostgresSource):
    """Answers the sessions of one merge group; belongs to the group's thread.

    Args:
        pipeline: whose delta tables are read.
        relations: those that the group's views use.
    """

    def __init__(
        self,
        name: str,
        dsn: str,
        relations: Sequence[CapturedRelation],
        operators: DuckOperators,
        *,
        pipeline: str,
        timeout: float = TIMEOUT,
        remembered: int = 0,
    ) -> None:
        super().__init__(name, dsn, relations, operators, timeout=timeout, remembered=remembered)
        self.deltas: dict[str, DeltaTable] = {
            one.relation.name: delta_table_of(one, pipeline) for one in relations
        }
        self._read: dict[tuple[Any, ...], tuple[Signed, Signed]] = {}
        self._old = NOTHING

    # Step 1 ---------------------------------------------------------------------------------------

    def look(self) -> Looked:
        """The triggers, and which delta tables have rows, in one snapshot.

        Raises:
            FrescoError: SOURCE_*, see `Session.snapshot`.
        """
        return self.session.again(self._look)

    def _look(self) -> Looked:
        with self.session.snapshot() as (connection, state):
            watched = watch(connection, list(self.deltas.values()))
            there = [one for name, one in self.deltas.items() if watched[name].delta]
            filled = frozenset[str]()
            if there:
                each = sql.SQL(", ").join(
                    sql.SQL("EXISTS (SELECT FROM {})").format(one.table_sql) for one in there
                )
                row = connection.execute(sql.SQL("SELECT {}").format(each)).fetchone() or ()
                filled = frozenset(
                    one.relation for one, some in zip(there, row, strict=True) if some
                )
        self.statements += 2
        return Looked(watched, filled, state)

    # Step 2 ---------------------------------------------------------------------------------------

    def evaluate(
        self, parts: Sequence[QueryPart[Signed]], marks: Mapping[str, str]
    ) -> tuple[Signed, ...]:
        """The rows of each part, all in one snapshot.

        Args:
            marks: what `look` saw of the triggers, by relation.

        Raises:
            Gap: triggers were not in place from then on; what is read cannot be relied on.
            PartFailed: an expression, or a value, of one part.
            FrescoError: SOURCE_*, see `Session.snapshot`.
        """
        shapes = [reduction(part.tree) for part in parts]
        fetched = self.session.again(lambda: self._evaluated(shapes, parts, marks))
        rows = []
        for index, (shape, inputs) in enumerate(zip(shapes, fetched, strict=True)):
            try:
                rows.append(self._operators.evaluate(shape.tree, inputs))
            except FrescoError as error:
                raise PartFailed(index, error) from error
        return tuple(rows)

    def _evaluated(
        self,
        shapes: Sequence[Reduction],
        parts: Sequence[QueryPart[Signed]],
        marks: Mapping[str, str],
    ) -> list[dict[str, Signed]]:
        self._read = {}
        many = any(v.held > ARRAY_LIMIT for part in parts for v in part.inputs.values())
        fetched = []
        used = {self._state_of(one.relation)[0] for shape in shapes for one in shape.inputs}
        tables = [self.deltas[name] for name in sorted(used - {""})]
        locked = ", ".join(f"ONLY {one.base_sql.as_string()}" for one in tables)
        with self.session.snapshot(writes=many, locked=locked) as (connection, _):
            watched = watch(connection, tables)
            if wrong := broken(watched, marks):
                raise Gap(wrong)
            connection.execute("SET LOCAL row_security = off")  # an error, not a part of the rows
            reader = DeltaReader(connection, ARRAY_LIMIT, writes=many)
            for index, (shape, part) in enumerate(zip(shapes, parts, strict=True)):
                self._old = _only_text(part.inputs[IDS])
                known = {name: rows for name, rows in part.inputs.items() if name != IDS}
                try:
                    fetched.append(self._inputs(reader, shape, known))
                except errors.UndefinedColumn as error:
                    raise PartFailed(index, self._lost(error)) from error
                except FrescoError as error:
                    if error.code != "SOURCE_VALUE_UNFIT":
                        raise
                    raise PartFailed(index, error) from error
        self.statements += reader.statements
        self._read = {}
        return fetched

    def _lost(self, error: psycopg.Error) -> FrescoError:
        return FrescoError(
            "VIEW_COLUMN_CHANGED",
            f"a column that the view reads is gone: {str(error).splitlines()[0]}",
            where=f"source {self.name}",
            todo="put the column back, and the view comes back by itself; or write its SQL for the table"
            " as it is now, in a new pipeline",
        )

    def _turn(self, shape: Reduction, waiting: Sequence[int], have: Mapping[int, Signed]) -> int:
        """Changes come first: they are few, and restrict the tables that they are joined with."""
        for index in waiting:
            if self._state_of(shape.inputs[index].relation)[1] in CHANGES:
                return index
        return super()._turn(shape, waiting, have)

    def _rows(
        self, reader: PgReader, shape: Reduction, index: int, have: Mapping[int, Signed]
    ) -> Signed:
        """A relation in the state that its name says."""
        one, ops = shape.inputs[index], self._operators
        name, state = self._state_of(one.relation)
        assert isinstance(reader, DeltaReader)
        now, later = self._changes(reader, name, one)
        if state == "added":
            return ops.inserted(now)
        if state == "deleted":
            return ops.minus(ops.empty(one.schema), ops.deleted(now))
        plain = super()._rows(reader, shape, index, have)
        if not plain.held and not now.held and not later.held:
            return plain
        rows = ops.minus(plain, self._matching(shape, index, have, later))
        if state != "old":
            changed = self._matching(shape, index, have, now)
            rows = ops.minus(rows, ops.inserted(changed) if state == "kept" else changed)
        return rows

    def _matching(
        self, shape: Reduction, index: int, have: Mapping[int, Signed], rows: Signed
    ) -> Signed:
        """The rows of a delta table that the table itself was asked for."""
        for other, pairs in shape.linked(index).items():
            if other in have and rows.held:
                own, theirs = zip(*dict.fromkeys(pairs), strict=True)
                rows = self._operators.matching(rows, own, have[other], theirs)
        return rows

    def _changes(self, reader: DeltaReader, name: str, one: Input) -> tuple[Signed, Signed]:
        """The changes of the ids read, netted, and those of later transactions."""
        key = (name, self._old, tuple(sorted(one.used)), tuple(one.filters))
        if key not in self._read:
            columns = self._columns[name]
            now, later = reader.changes(self.deltas[name], columns, one, self._old)
            self._read[key] = (self._operators.netted(now), later)
        return self._read[key]

    def _state_of(self, relation: str) -> tuple[str, State | None]:
        """(relation, its state); ("", None) of known rows."""
        name, _, state = relation.rpartition("@")
        return (name, state) if name else ("", None)  # type: ignore[return-value]

    def table(self, relation: str) -> CapturedRelation:
        return super().table(self._state_of(relation)[0] or relation)

    # Step 4 ---------------------------------------------------------------------------------------

    def delete(self, relations: Iterable[str], ids: Signed) -> int:
        """Deletes the rows of these ids; returns how many there still were.

        Raises:
            FrescoError: SOURCE_*, see `Session.snapshot`.
        """
        return self.session.again(lambda: self._delete(list(relations), _only_text(ids)))

    def _delete(self, relations: Sequence[str], old: str) -> int:
        gone = 0
        with self.session.transaction() as connection:
            watched = watch(connection, [self.deltas[name] for name in relations])
            for name in relations:
                if watched[name].delta:
                    statement = sql.SQL(
                        "DELETE FROM {} WHERE _tid < pg_snapshot_xmax({old}::pg_snapshot)"
                        " AND pg_visible_in_snapshot(_tid, {old}::pg_snapshot)"
                    ).format(self.deltas[name].table_sql, old=sql.Literal(old))
                    gone += connection.execute(statement).rowcount
        self.statements += len(relations)
        return gone


def _only_text(ids: Signed) -> str:
    """The snapshot in a value that `Looked.ids` made."""
    found = ids.table.column(column_name(0)).to_pylist()
    return str(found[0]) if found else NOTHING
