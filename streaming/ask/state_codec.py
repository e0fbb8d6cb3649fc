"""Source states inside snapshots: how a state an answer was computed at becomes JSON and comes back.

The machines hold states as opaque as relations: they ask only what a state `saw` and `upto` where it
reaches. Each kind of source has its own states (a PostgreSQL snapshot, a position in a binary log), so
its codec is handed to the machines; `SeenCodec` is that of the simulator's and the tests' sources.
"""

from __future__ import annotations

from typing import Any, Protocol

from streaming.algebra.source_queries import Seen, SourceState


class StateCodec(Protocol):
    """States of one kind as JSON values."""

    def note(self, state: SourceState) -> Any:
        """The state as a JSON value."""

    def back(self, note: Any) -> SourceState:
        """The state that `note` described."""


class SeenCodec:
    """The codec of `Seen`."""

    def note(self, state: SourceState) -> Any:
        if not isinstance(state, Seen):
            raise TypeError(f"{type(state).__name__} is not a state named by positions")
        return [state.upto, sorted(state.missing)]

    def back(self, note: Any) -> SourceState:
        upto, missing = note
        return Seen(upto, frozenset(missing))
