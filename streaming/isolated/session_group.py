"""A group of isolated views as its stage is given it, and what the group's table shows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from streaming.algebra.tree import Tree
from streaming.captured.captured_schema import CapturedRelation
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed
from streaming.errors import FrescoError
from streaming.scalars.expression import MULTIPLICITY
from streaming.scalars.types import delta_schema
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.snapshot import at_latest


@dataclass(frozen=True)
class SessionGroup:
    """A group of isolated views.

    Attributes:
        trees: by view.
        tables: the same views as the warehouse knows them.
        connections: source -> connection string and the relations that the views use.
        broken: views that no longer fit their relations, whose trees are those of before.
    """

    pipeline: str
    group: str
    trees: Mapping[str, Tree]
    tables: Sequence[ViewTable]
    connections: Mapping[str, tuple[str, Sequence[CapturedRelation]]]
    broken: Mapping[str, FrescoError] = field(default_factory=dict)


def shown_rows(place: TableFolder, group: str, view: ViewTable, operators: DuckOperators) -> Signed:
    """A view's rows at the newest epoch."""
    rows = at_latest(place, group).rows(view)
    columns = rows.drop_columns([MULTIPLICITY]).columns
    numbers = pa.chunked_array([pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)])
    arrays = [numbers, rows.column(MULTIPLICITY), *columns]
    return operators.value(pa.Table.from_arrays(arrays, schema=delta_schema(view.schema)), net=True)


class ViewFailed(Exception):
    """A view has no value somewhere; the others go on."""

    def __init__(self, view: str, error: FrescoError) -> None:
        super().__init__(str(error))
        self.view, self.error = view, error
