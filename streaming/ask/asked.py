"""Answers of a source to a view manager's queries, at a state that is known exactly.

All parts of a statement are answered in one snapshot of the source. For each part the rows that can
matter are fetched, relation by relation (`reduction`), each with one statement that carries the keys it
is restricted to. Then the part's expression is computed over these rows and the known ones by the view
manager's own operators. What differs between kinds of sources is the connection whose snapshots name
their state (`Connected`), and how a relation's rows are read in one (`RowReader`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from streaming.algebra.source_queries import QueryPart, SourceAnswer, SourceQuery, SourceState
from streaming.ask.reduction import Reduction, reduction
from streaming.ask.restriction import Keys, keys_of
from streaming.captured.captured_schema import CapturedRelation
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.errors import FrescoError

TIMEOUT = 60.0
"""Seconds a statement may take."""
T = TypeVar("T")


class Connected(Protocol):
    """The connection of one thread to one source; `pgsession.Session` says what each does."""

    durable: int

    @property
    def pinned(self) -> bool: ...
    def again(self, work: Callable[[], T]) -> T: ...
    def pin(self) -> SourceState: ...
    def release(self) -> None: ...
    def close(self) -> None: ...


class RowReader(Protocol):
    """Reads relations' rows within one snapshot; `statements` counts what was sent."""

    statements: int

    def covers(self, captured: CapturedRelation, keys: Keys) -> bool: ...
    def read(self, captured: Any, columns: Any, one: Any, restricted: Any) -> Signed: ...


class AskedSource(ABC):
    """Answers statements of one view manager to one source; belongs to the manager's thread.

    Args:
        relations: the captured relations of this source.
        columns: theirs, as the source's kind reads them.
        operators: the view manager's.
    """

    def __init__(
        self,
        name: str,
        session: Connected,
        relations: Sequence[CapturedRelation],
        columns: Callable[[CapturedRelation], Sequence[Any]],
        operators: DuckOperators,
    ) -> None:
        self.name = name
        self.statements = 0
        self._connected = session
        self._operators = operators
        self._tables = {one.relation.name: one for one in relations}
        self._columns = {one.relation.name: columns(one) for one in relations}

    @property
    def durable(self) -> int:
        """A position that the source has written durably; it must never be behind it again."""
        return self._connected.durable

    @abstractmethod
    def mark(self) -> None:
        """Move the log on, for an answer that is held although nothing happens at the source."""

    @abstractmethod
    def _in_snapshot(
        self, parts: Sequence[QueryPart[Signed]], each: Callable[[RowReader], T]
    ) -> tuple[T, SourceState]:
        """What `each` makes of a reader in one snapshot, and the snapshot's state."""

    def close(self) -> None:
        self._connected.close()

    def pin(self) -> SourceState:
        """See `pgsession.Session.pin`."""
        return self._connected.again(self._connected.pin)

    def release(self) -> None:
        """See `pgsession.Session.release`."""
        self._connected.release()

    def answer(self, query: SourceQuery[Signed]) -> SourceAnswer[Signed]:
        """All parts at one state of the source; without parts the state alone.

        Raises:
            FrescoError: the session's; SOURCE_VALUE_UNFIT, SOURCE_TABLE_UNKNOWN; an expression
                without a value at a row. The source can be asked again.
        """
        shapes = [reduction(part.tree) for part in query.parts]
        fetched, state = self._connected.again(lambda: self._fetch(shapes, query.parts))
        rows = tuple(
            self._operators.evaluate(shape.tree, inputs)
            for shape, inputs in zip(shapes, fetched, strict=True)
        )
        return SourceAnswer(query.view, query.id, query.step, self.name, rows, state)

    def _fetch(
        self, shapes: Sequence[Reduction], parts: Sequence[QueryPart[Signed]]
    ) -> tuple[list[dict[str, Signed]], SourceState]:
        return self._in_snapshot(
            parts,
            lambda reader: [
                self._inputs(reader, shape, part.inputs)
                for shape, part in zip(shapes, parts, strict=True)
            ],
        )

    def _inputs(
        self, reader: Any, shape: Reduction, known: Mapping[str, Signed]
    ) -> dict[str, Signed]:
        """All inputs of a part by their names: known rows first, then what they reduce."""
        have = {
            index: known[one.relation]
            for index, one in enumerate(shape.inputs)
            if one.relation in known
        }
        waiting = [index for index in range(len(shape.inputs)) if index not in have]
        while waiting:
            index = self._turn(shape, waiting, have)
            waiting.remove(index)
            have[index] = self._rows(reader, shape, index, have)
        return {one.name: have[index] for index, one in enumerate(shape.inputs)}

    def _turn(self, shape: Reduction, waiting: Sequence[int], have: Mapping[int, Signed]) -> int:
        """Which input is read next."""
        near = [i for i in waiting if shape.linked(i).keys() & have.keys()]
        filtered = [i for i in waiting if shape.inputs[i].filters]
        return (near or filtered or waiting)[0]

    def _rows(
        self, reader: Any, shape: Reduction, index: int, have: Mapping[int, Signed]
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
        rows: Signed = reader.read(captured, columns, one, restricted)
        return rows

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
                todo=f"add it under sources.{self.name}.tables and start the service again",
            )
        return self._tables[relation]
