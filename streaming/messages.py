"""Every message between stages, as pydantic models; machines exchange exactly these (DESIGN 10).

A message travels as one Kafka record: the envelope in the headers, the body as JSON in the value.
Row values are Arrow IPC streams inside the body (base64) up to `INLINE_LIMIT`, else a path to
Parquet with row count and checksum. Numbers are the integrator's transaction numbers; 0 is the
initial state.
"""

from __future__ import annotations

from operator import not_
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

FORMAT_VERSION = 1
INLINE_LIMIT = 512 * 1024


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rows(Frozen):
    """A reference to a delta: (_number, _multiplicity, c0, c1, ...), see `algebra.tree`.

    Attributes:
        rows: how many.
        ipc: base64 of an Arrow IPC stream when the rows travel inside the message.
        path: a Parquet file, relative to the warehouse, when they do not.
        sha256: of the Parquet file's bytes.
    """

    rows: int
    ipc: str | None = None
    path: str | None = None
    sha256: str | None = None


class RelRun(Frozen):
    """REL_i for every i in [first..last]: the relevant views, sorted; `idle` need no work.

    Attributes:
        guarded: the transactions also change a captured relation that no view of the group uses. Two
            of them may share that relation only, so neither may overtake the other.
    """

    first: int
    last: int
    views: tuple[str, ...]
    idle: tuple[str, ...] = ()
    guarded: bool = Field(default=False, exclude_if=not_)


PRINTS = 1 << 62
"""Prints are added up modulo this."""


RETOLD = "a snapshot's rows take their place and tell all values"
"""What a truncate says that makes room for a snapshot after which no row has a value from before."""


class Control(Frozen):
    """What a number holds for a relation beside rows (DESIGN 5, 11).

    Attributes:
        kind: `truncate`: only a holder of the relation can turn it into rows; `tainted`: records of
            the relation could not be decoded, so views that use it stop before this number.
        columns: of a taint, the positions that could not be read and are NULL from here on: only
            views that read one of them stop. () is the whole relation, which lacks rows.
        adds: of a taint of columns, what its batch adds to the print of the column's images whose values
            cannot be read; where the prints add up to 0, all of them are gone and the column is whole
            again (`cdc.row_query`). None where nothing later can make it so.
        what: what is wrong with the first such record, a sentence; "" when it is not known; of a
            truncate, that it makes room for a snapshot's rows.
        where: the record's place.
    """

    number: int
    relation: str
    kind: Literal["truncate", "tainted"]
    columns: tuple[int, ...] = Field(default=(), exclude_if=not_)
    adds: int | None = Field(default=None, exclude_if=lambda adds: adds is None)
    what: str = Field(default="", exclude_if=not_)
    where: str = Field(default="", exclude_if=not_)


class Rel(Frozen):
    """The integrator's REL entries for [first..last], in order, without gaps; `last` is a cut."""

    type: Literal["rel"] = "rel"
    group: str
    first: int
    last: int
    runs: tuple[RelRun, ...]
    positions: dict[str, str] = Field(default_factory=dict)
    """Source positions after `last`, for the commit metadata."""
    committed_ms: int | None = None
    """Newest source commit time among the transactions, milliseconds since the epoch."""
    released: tuple[str, ...] = ()
    """Ids of global transactions released as local: the level is lower from here."""


class ViewChange(Frozen):
    """A view joins its group at the cut `number`, or leaves it there (MVC 1.2; DESIGN 5).

    It stands between the REL message that ends at `number` and the next one. REL above it may name a
    view that was added, and names no view that was dropped. The first list of an added view is
    [number..number], its whole content in the state after T_number. Its manager sends the message
    too, before that list, because its lists may overtake the integrator; the second to come is an
    echo and changes nothing.

    Attributes:
        manager: what the added view's manager sends; the merge's algorithm follows it.
        every: N of a complete-N manager.
    """

    type: Literal["view"] = "view"
    group: str
    view: str
    change: Literal["add", "drop"]
    number: int
    manager: Literal["complete", "complete-N", "strong", "convergent"] = "complete"
    every: int | None = None


class SourceLog(Frozen):
    """What became of one source's transactions: one entry for each, in the source's order.

    Attributes:
        numbers: the number given; parts of one global transaction share it.
        transactions: the source's own id.
        positions: the commit position.
    """

    numbers: tuple[int, ...]
    transactions: tuple[str, ...]
    positions: tuple[int, ...]


class GlobalPart(Frozen):
    """A number that is one of the `parts` of a global transaction, numbered apart from the others."""

    number: int
    id: str
    parts: int


class Updates(Frozen):
    """The numbered updates of [first..last] for one merge group, with the same runs as `Rel`.

    Attributes:
        logs: per source, its transactions among these numbers; for managers that ask the sources.
        delivered: per source, the commit position up to which every transaction has a number at or
            below `last`.
        parts: only where the integrator numbers the parts of global transactions apart.
        cut: whether `last` is a cut; a piece of a message that a stage has cut in two need not end at
            one. Such pieces do not travel.
        rel: only with `rel: with-actions` (MVC 3.2): what the merge must hear of these numbers, in
            order; a list of them carries it there.
    """

    type: Literal["updates"] = "updates"
    group: str
    first: int
    last: int
    runs: tuple[RelRun, ...]
    relations: dict[str, Rows]
    controls: tuple[Control, ...] = ()
    logs: dict[str, SourceLog] = Field(default_factory=dict, exclude_if=not_)
    delivered: dict[str, int] = Field(default_factory=dict, exclude_if=not_)
    parts: tuple[GlobalPart, ...] = Field(default=(), exclude_if=not_)
    cut: bool = Field(default=True, exclude_if=bool)
    rel: tuple[Rel | ViewChange, ...] = Field(default=(), exclude_if=not_)


class ActionList(Frozen):
    """AL of one view for the numbers in [first..last]; ends at or before a cut.

    Attributes:
        complete: the rows are tagged number by number, so each number's list can be applied alone;
            otherwise the list covers [first..last] as one (a strong manager's AL_last).
        across: the list crosses a cut, because the state at the cut can no longer be had: a truncate
            was seen too early, or a global transaction numbered in parts straddles the cut.
        delta: None for an empty list; empty lists are sent too (MVC 3.3).
        rel: only with `rel: with-actions`: the REL message of these numbers rides along (MVC 3.2).
    """

    type: Literal["actions"] = "actions"
    group: str
    view: str
    first: int
    last: int
    complete: bool = True
    delta: Rows | None = None
    across: bool = Field(default=False, exclude_if=not_)
    rel: tuple[Rel | ViewChange, ...] = Field(default=(), exclude_if=not_)


class Suspend(Frozen):
    """A view manager that cannot go on says so; later cells of its view are painted black."""

    type: Literal["suspend"] = "suspend"
    group: str
    view: str
    after: int
    """The view's last good number."""
    error: dict[str, str]


Message = Annotated[Rel | Updates | ActionList | Suspend | ViewChange, Field(discriminator="type")]
_ADAPTER: TypeAdapter[Message] = TypeAdapter(Message)


def encode(message: Message) -> bytes:
    """The message's value in Kafka."""
    return _ADAPTER.dump_json(message, exclude_defaults=False)


def decode(value: bytes) -> Message:
    """The message back from a Kafka value.

    Raises:
        pydantic.ValidationError: not a message of this format.
    """
    return _ADAPTER.validate_json(value)
