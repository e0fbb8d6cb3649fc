"""Every message between stages, as pydantic models; machines exchange exactly these (DESIGN 10).

A message travels as one Kafka record: the envelope in the headers, the body as JSON in the value.
Row values are Arrow IPC streams inside the body (base64) up to `INLINE_LIMIT`, else a path to
Parquet with row count and checksum. Numbers are the integrator's transaction numbers; 0 is the
initial state.
"""

from __future__ import annotations

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
    """REL_i for every i in [first..last]: the relevant views, sorted; `idle` need no work."""

    first: int
    last: int
    views: tuple[str, ...]
    idle: tuple[str, ...] = ()


class Control(Frozen):
    """What a number holds for a relation beside rows (DESIGN 5, 11).

    Attributes:
        kind: `truncate`: only a holder of the relation can turn it into rows; `tainted`: records of
            the relation could not be decoded, so views that use it stop before this number.
    """

    number: int
    relation: str
    kind: Literal["truncate", "tainted"]


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


class Updates(Frozen):
    """The numbered updates of [first..last] for one merge group, with the same runs as `Rel`."""

    type: Literal["updates"] = "updates"
    group: str
    first: int
    last: int
    runs: tuple[RelRun, ...]
    relations: dict[str, Rows]
    controls: tuple[Control, ...] = ()


class ActionList(Frozen):
    """AL of one view for the numbers in [first..last]; ends at or before a cut.

    Attributes:
        complete: the rows are tagged number by number, so each number's list can be applied alone;
            otherwise the list covers [first..last] as one (a strong manager's AL_last).
        delta: None for an empty list; empty lists are sent too (MVC 3.3).
    """

    type: Literal["actions"] = "actions"
    group: str
    view: str
    first: int
    last: int
    complete: bool = True
    delta: Rows | None = None


class Suspend(Frozen):
    """A view manager that cannot go on says so; later cells of its view are painted black."""

    type: Literal["suspend"] = "suspend"
    group: str
    view: str
    after: int
    """The view's last good number."""
    error: dict[str, str]


Message = Annotated[Rel | Updates | ActionList | Suspend, Field(discriminator="type")]
_ADAPTER: TypeAdapter[Message] = TypeAdapter(Message)


class Envelope(Frozen):
    """Kafka headers of a message; consumers drop (producer, sequence) pairs they have seen."""

    pipeline: str
    producer: str
    """Stage that wrote it: `integrator`, `view:<name>`, `merge:<group>`."""
    sequence: int
    """From 1, without gaps, per producer and topic."""
    generation: int
    """The producer's start; a consumer rejects one lower than it has seen from that producer."""


def encode(message: Message) -> bytes:
    """The message's value in Kafka."""
    return _ADAPTER.dump_json(message, exclude_defaults=False)


def decode(value: bytes) -> Message:
    """The message back from a Kafka value.

    Raises:
        pydantic.ValidationError: not a message of this format.
    """
    return _ADAPTER.validate_json(value)
