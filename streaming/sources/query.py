"""Answers of a PostgreSQL source to a view manager's queries, at a state that is known exactly.

All parts of a statement are answered in one REPEATABLE READ transaction. For each part the rows that
can matter are fetched, relation by relation (`reduction`), each with one statement that carries the keys
it is restricted to: as arrays up to `ARRAY_LIMIT` keys, beyond that as a temporary table, which the
planner has statistics of (FACTS: 291 instead of 431 ms for 100,000 keys). Then the part's expression is
computed over these rows and the known ones by the view manager's own operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streaming.algebra.duckops import DuckOperators
from streaming.algebra.query import Part, SourceAnswer, SourceQuery
from streaming.algebra.signed import Signed
from streaming.errors import FrescoError
from streaming.sources.pgreader import Reader, keys_of
from streaming.sources.pgsession import Session
from streaming.sources.pgstate import PgState
from streaming.sources.pgvalues import columns_of
from streaming.sources.reduction import Reduction, reduction
from streaming.sources.schema import CapturedRelation

ARRAY_LIMIT = 10_000
"""Keys up to which they go as arrays."""
TIMEOUT = 60.0
"""Seconds a statement may take."""


class PostgresSource:
    """Answers statements of one view manager to one source; belongs to the manager's thread.

    Args:
        dsn: a libpq connection string; a reader of the tables is enough.
        relations: the captured relations of this source.
        operators: the view manager's.
        timeout: seconds a statement may take.
        remembered: `durable` of an earlier run.
    """

    def __init__(
        self,
        name: str,
        dsn: str,
        relations: Sequence[CapturedRelation],
        operators: DuckOperators,
        *,
        timeout: float = TIMEOUT,
        array_limit: int = ARRAY_LIMIT,
        remembered: int = 0,
    ) -> None:
        self.name = name
        self.statements = 0
        self.session = Session(name, dsn, timeout=timeout, remembered=remembered)
        self._marks = Session(name, dsn, timeout=timeout)
        self._operators = operators
        self._array_limit = array_limit
        self._tables = {one.relation.name: one for one in relations}
        self._columns = {one.relation.name: columns_of(one) for one in relations}

    @property
    def durable(self) -> int:
        """An LSN that the source has written durably; it must never be behind it again."""
        return self.session.durable

    def close(self) -> None:
        self.session.close()
        self._marks.close()

    def mark(self) -> None:
        """See `Session.mark`: for an answer that is held although nothing happens at the source."""
        self._marks.again(self._marks.mark)

    def pin(self) -> PgState:
        """See `Session.pin`."""
        return self.session.again(self.session.pin)

    def release(self) -> None:
        """See `Session.release`."""
        self.session.release()

    def answer(self, query: SourceQuery[Signed]) -> SourceAnswer[Signed]:
        """All parts at one state of the source; without parts the state alone.

        Raises:
            FrescoError: see `Session.snapshot`; SOURCE_VALUE_UNFIT, SOURCE_TABLE_UNKNOWN;
                an expression without a value at a row. The source can be asked again.
        """
        shapes = [reduction(part.tree) for part in query.parts]
        fetched, state = self.session.again(lambda: self._fetch(shapes, query.parts))
        rows = tuple(
            self._operators.evaluate(shape.tree, inputs)
            for shape, inputs in zip(shapes, fetched, strict=True)
        )
        return SourceAnswer(query.view, query.id, query.step, self.name, rows, state)

    def _fetch(
        self, shapes: Sequence[Reduction], parts: Sequence[Part[Signed]]
    ) -> tuple[list[dict[str, Signed]], PgState]:
        many = any(v.held > self._array_limit for part in parts for v in part.inputs.values())
        with self.session.snapshot(writes=many) as (connection, state):
            reader = Reader(connection, self._array_limit, writes=many and not self.session.pinned)
            fetched = [
                self._inputs(reader, shape, part.inputs)
                for shape, part in zip(shapes, parts, strict=True)
            ]
        self.statements += reader.statements
        return fetched, state

    def _inputs(
        self, reader: Reader, shape: Reduction, known: Mapping[str, Signed]
    ) -> dict[str, Signed]:
        """All inputs of a part by their names: known rows first, then what they reduce."""
        have = {
            index: known[one.relation]
            for index, one in enumerate(shape.inputs)
            if one.relation in known
        }
        waiting = [index for index in range(len(shape.inputs)) if index not in have]
        while waiting:
            near = [i for i in waiting if shape.linked(i).keys() & have.keys()]
            filtered = [i for i in waiting if shape.inputs[i].filters]
            index = (near or filtered or waiting)[0]
            waiting.remove(index)
            have[index] = self._rows(reader, shape, index, have)
        return {one.name: have[index] for index, one in enumerate(shape.inputs)}

    def _rows(
        self, reader: Reader, shape: Reduction, index: int, have: Mapping[int, Signed]
    ) -> Signed:
        one = shape.inputs[index]
        captured = self.table(one.relation)
        columns = self._columns[captured.relation.name]
        restricted = []
        for other, pairs in shape.linked(index).items():
            if other not in have:
                continue
            if not have[other].held:
                return self._operators.empty(one.schema)
            keys = keys_of(columns, pairs, shape.inputs[other], have[other])
            if keys is not None and not reader.covers(captured, keys):
                restricted.append(keys)
        return reader.read(captured, columns, one, restricted)

    def table(self, relation: str) -> CapturedRelation:
        """The captured table.

        Raises:
            FrescoError: SOURCE_TABLE_UNKNOWN.
        """
        if relation not in self._tables:
            raise FrescoError(
                "SOURCE_TABLE_UNKNOWN",
                f"source {self.name} has no captured table for {relation}",
                where=f"source {self.name}",
                todo=f"add it under sources.{self.name}.tables",
            )
        return self._tables[relation]
