"""The state of a PostgreSQL source that an answer was computed at (DESIGN 7; FACTS, exactness).

In REPEATABLE READ `pg_current_snapshot()` names exactly which transactions a query sees: those below
`xmin`, and those below `xmax` that are not in `xip`, as far as they committed; a transaction in the log
did. Log positions do not say that: a transaction may be in the log before a snapshot shows it. The
position here only bounds from above: it is read after the snapshot was taken, and what the snapshot
shows was in the log by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming.algebra.source_queries import SourceState

_EPOCH = 1 << 32


@dataclass(frozen=True, slots=True)
class PgState:
    """A snapshot; see `query.SourceState`.

    Attributes:
        upto: an LSN at or above the commit of everything the snapshot shows.
        xmin, xmax, xip: of `pg_current_snapshot()`, 64 bits wide.
    """

    upto: int
    xmin: int
    xmax: int
    xip: frozenset[int] = frozenset()

    @classmethod
    def parsed(cls, snapshot: str, upto: int) -> PgState:
        """From `pg_current_snapshot()` as text, "xmin:xmax:xip,xip"."""
        xmin, xmax, running = snapshot.split(":")
        return cls(upto, int(xmin), int(xmax), frozenset(int(x) for x in running.split(",") if x))

    def saw(self, transaction: str, position: int) -> bool:
        """Whether the snapshot shows a committed transaction, by its id as the log gives it.

        The log's ids have 32 bits; the epoch is the one that brings the id nearest to the snapshot.
        """
        xid = widened(int(transaction), self.xmax)
        return xid < self.xmin or (xid < self.xmax and xid not in self.xip)


def widened(xid: int, near: int) -> int:
    """The 64-bit transaction id with the low 32 bits of `xid` that is nearest to `near`."""
    ahead = (xid - near) % _EPOCH
    return near + (ahead if ahead < _EPOCH // 2 else ahead - _EPOCH)


class PgStateCodec:
    """Snapshots inside machines' snapshots; see `ask.state_codec.StateCodec`."""

    def note(self, state: SourceState) -> Any:
        if not isinstance(state, PgState):
            raise TypeError(f"{type(state).__name__} is not a snapshot of PostgreSQL")
        return [state.upto, state.xmin, state.xmax, sorted(state.xip)]

    def back(self, note: Any) -> SourceState:
        upto, xmin, xmax, xip = note
        return PgState(upto, xmin, xmax, frozenset(xip))
