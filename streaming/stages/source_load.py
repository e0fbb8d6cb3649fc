"""A view's relations as their sources hold them, brought to one number (DESIGN 5, 7).

Where `_updates` no longer has everything, the initial rows of a view come from the sources. Each source
is read in one snapshot S, which says of each of its transactions whether it shows it. Once every
transaction that S can show has a number and is recorded, let s be the last number recorded. Then

    R after number s  =  R in S  +  the recorded updates of R up to s that S does not show,

exactly: what S shows beyond its log position is nothing, so nothing has to be subtracted, and what it
misses is recent, so it is still in `_updates`. That is `compensate` for an answer that is a whole
relation (S -> s). A log that stands still is moved on by a mark of our own.

Two things cannot be told apart row by row, and then the snapshot is taken again: a number that holds
several transactions of the source of which S shows some, and a truncate that S does not show.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.algebra.source_queries import QueryPart, SourceQuery, SourceState
from streaming.algebra.tree import Project, Scan, Tree
from streaming.ask.asked import AskedSource
from streaming.ask.source_kinds import asked_source
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.errors import FrescoError
from streaming.packed_rows import pack, unpack
from streaming.scalars.expression import MULTIPLICITY, NUMBER, Col, Schema, column_name
from streaming.scalars.types import delta_schema
from streaming.stages.asking_stage import Access
from streaming.warehouse.initial import folded, nulled
from streaming.warehouse.updates import UpdatesReader

log = logging.getLogger("fresco")


@dataclass(frozen=True)
class LoadedSource:
    """One source's snapshot: its state, and the relations in it under number 0."""

    state: SourceState
    rows: Mapping[str, pa.Table]


class SourceLoad:
    """The initial rows of one view out of its sources.

    Args:
        access: source -> how it is asked.
        schemas: the view's relations.
        reads: the columns that it reads of each; the others come as NULL. All without.
    """

    def __init__(
        self,
        warehouse: Path,
        access: Mapping[str, Access],
        schemas: Mapping[str, Schema],
        reads: Mapping[str, frozenset[int]] | None = None,
    ) -> None:
        self._warehouse, self._schemas = warehouse, schemas
        every = {name: frozenset(range(len(schema))) for name, schema in schemas.items()}
        self._reads = {name: sorted((reads or {}).get(name, all_)) for name, all_ in every.items()}
        operators = DuckOperators(
            lambda table: pack(table, _no_stage), lambda rows: unpack(rows, warehouse)
        )
        self._sources: dict[str, AskedSource] = {
            name: asked_source(name, one.connection, one.relations, operators, timeout=one.timeout)
            for name, one in access.items()
        }
        self._taken: dict[str, LoadedSource] = {}

    def close(self) -> None:
        """Leave the sources."""
        for source in self._sources.values():
            source.close()

    def relations_at(self, reader: UpdatesReader) -> tuple[int, dict[str, pa.Table]] | None:
        """A number and the relations after it; None as long as the logs have not come so far.

        Raises:
            FrescoError: SOURCE_*, a source cannot be asked.
        """
        last = reader.last
        numbered = reader.transactions(max(reader.kept_from - 1, -1), last)
        behind = False
        for name, source in self._sources.items():
            if name not in self._taken:
                self._taken[name] = self._read(name, source)
                behind = True
                continue
            own = numbered.filter(pc.equal(numbered["source"], name))
            newest = pc.max(own["position"].cast(pa.int64())).as_py()
            if newest is None or newest < self._taken[name].state.upto:
                source.mark()
                behind = True
        if behind:
            return None
        found: dict[str, pa.Table] = {}
        for name, taken in self._taken.items():
            rows = self._brought(reader, name, taken, numbered, last)
            if rows is None:
                log.info("source %s is read again: its snapshot parts a transaction", name)
                del self._taken[name]
                return None
            found |= rows
        return last, found

    def _read(self, name: str, source: AskedSource) -> LoadedSource:
        """Every relation of one source, whole, in one snapshot."""
        own = [one for one in self._schemas if one.partition(".")[0] == name]
        parts: tuple[QueryPart[Signed], ...] = tuple(QueryPart(self._asked(one), {}) for one in own)
        answer = source.answer(SourceQuery("", 0, 1, name, parts))
        pairs = zip(own, answer.rows, strict=True)
        return LoadedSource(
            answer.state, {one: self._whole(one, value.table) for one, value in pairs}
        )

    def _asked(self, relation: str) -> Tree:
        """The columns that are read of a relation; one in any case, so that rows are counted."""
        schema = self._schemas[relation]
        read = self._reads[relation] or [next(i for i, c in enumerate(schema) if not c.hidden)]
        columns = tuple(Col(at, schema[at].type) for at in read)
        return Project(Scan(relation, schema), columns, tuple(schema[at] for at in read))

    def _whole(self, relation: str, rows: pa.Table) -> pa.Table:
        """The answer with every column of the relation, NULL where it was not asked."""
        wanted, read = delta_schema(self._schemas[relation]), self._reads[relation]
        cells = {name: rows.column(name) for name in (NUMBER, MULTIPLICITY)}
        for field in list(wanted)[2:]:
            cells[field.name] = pa.nulls(rows.num_rows, field.type)
        for place, at in enumerate(read):
            cells[column_name(at)] = rows.column(column_name(place))
        return pa.table([cells[field.name].cast(field.type) for field in wanted], schema=wanted)

    def _brought(
        self,
        reader: UpdatesReader,
        name: str,
        taken: LoadedSource,
        numbered: pa.Table,
        last: int,
    ) -> dict[str, pa.Table] | None:
        """The relations of one source after `last`; None when the snapshot parts what is one."""
        seen: dict[int, set[bool]] = {}
        own = numbered.filter(pc.equal(numbered["source"], name))
        columns = (own[one].to_pylist() for one in ("number", "transaction", "position"))
        for number, transaction, position in zip(*columns, strict=True):
            seen.setdefault(number, set()).add(taken.state.saw(transaction, int(position)))
        missed = sorted(number for number, saws in seen.items() if False in saws)
        if any(len(seen[number]) > 1 for number in missed):
            return None
        first = missed[0] if missed else last + 1
        if any(
            one.kind == "truncate" and one.relation in taken.rows and one.number in missed
            for one in reader.controls(first - 1, last)
        ):
            return None
        found = {}
        for relation, rows in taken.rows.items():
            schema = self._schemas[relation]
            recent = reader.updates(relation, schema, first - 1, last)
            recent = nulled(recent, set(range(len(schema))).difference(self._reads[relation]))
            mask = np.isin(recent.column(NUMBER).to_numpy(), np.array(missed, np.int64))
            both = pa.concat_tables([rows.cast(recent.schema), recent.filter(pa.array(mask))])
            found[relation] = folded(both, schema, last)
        return found


def needs(schemas: Mapping[str, Schema]) -> set[str]:
    """The sources of some relations."""
    return {relation.partition(".")[0] for relation in schemas}


def cannot_be_asked(missing: Sequence[str], why: str) -> FrescoError:
    """The error of a view whose initial rows are nowhere to be had."""
    return FrescoError(
        "VIEW_INITIAL_ROWS",
        f"{why}, and source {', '.join(missing)} cannot be asked for its rows",
        where="_updates",
        todo="give the source a connection, start the service again, and ask again",
    )


def _no_stage(content: bytes) -> str:
    raise AssertionError("whole relations are not packed")
