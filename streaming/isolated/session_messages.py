"""What `isolated` and the sources say to each other in a session (moro-sartori 5.6).

An answer names its session or its number, so one that was lost can be sent again, and one that was
repeated or comes late is known for what it is. Relations are opaque values; so are ids, a relation of one
column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from streaming.algebra.source_queries import QueryPart

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class StartSession:
    """A notification, or the clock's: there may be something to do. It carries nothing else."""


@dataclass(frozen=True, slots=True)
class ReadIds(Generic[V]):
    """Step 1, to a source: evaluate the part in one statement."""

    session: int
    source: str
    part: QueryPart[V]


@dataclass(frozen=True, slots=True)
class Ids(Generic[V]):
    """Its answer: the ids of the transactions committed and not yet handled, TID(old) at the source."""

    session: int
    source: str
    ids: V


@dataclass(frozen=True, slots=True)
class Evaluate(Generic[V]):
    """Step 2, to a source: evaluate each part, the current tables and the delta tables in one snapshot.

    Attributes:
        request: counts from 1 within the session.
    """

    session: int
    request: int
    source: str
    parts: tuple[QueryPart[V], ...]


@dataclass(frozen=True, slots=True)
class Evaluated(Generic[V]):
    """Its answer: the rows of each part."""

    session: int
    request: int
    source: str
    rows: tuple[V, ...]


@dataclass(frozen=True, slots=True)
class Installed:
    """The warehouse transaction with the lists of a number is durable (step 3).

    Lists of that number that come again are dropped by the warehouse.
    """

    number: int


@dataclass(frozen=True, slots=True)
class DeleteIds(Generic[V]):
    """Step 4, to a source: delete the rows of these transactions from the relations' delta tables."""

    session: int
    source: str
    relations: tuple[str, ...]
    ids: V


@dataclass(frozen=True, slots=True)
class Deleted:
    """Its answer: that has committed."""

    session: int
    source: str


Answer = Ids[V] | Evaluated[V] | Installed | Deleted
