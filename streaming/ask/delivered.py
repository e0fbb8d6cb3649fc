"""Which transactions of a source a view manager has been given, as far as an answer can still miss one.

A source's statements see more and more: what one has seen, every statement sent after its answer came
sees too. So a transaction is kept until it has been seen and every statement sent before that has been
answered; then it need not be looked for again.
"""

from __future__ import annotations

from dataclasses import dataclass

from streaming.algebra.source_queries import SourceState
from streaming.messages import SourceLog

Entry = tuple[str, int]
"""A transaction's id and its commit position."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """One source's delivered transactions, counted from its first.

    Attributes:
        position: every transaction committed at or below it has been delivered.
        forgotten: how many at the front are no longer kept.
        entries: those that are, in the order of delivery.
        seen: so many at the front every statement from now on sees.
    """

    position: int = -1
    forgotten: int = 0
    entries: tuple[Entry, ...] = ()
    seen: int = 0

    def with_log(self, log: SourceLog | None, position: int) -> Delivered:
        """After one more message, with its position."""
        if log is None and position == self.position:
            return self
        more = tuple(zip(log.transactions, log.positions, strict=True)) if log else ()
        return Delivered(position, self.forgotten, self.entries + more, self.seen)

    def missed(self, state: SourceState, since: int) -> int | None:
        """The first transaction, counted from `since` on, that a state has not seen."""
        for index in range(max(since, self.forgotten), self.forgotten + len(self.entries)):
            transaction, position = self.entries[index - self.forgotten]
            if not state.saw(transaction, position):
                return index
        return None

    def shown(self, state: SourceState, since: int) -> Delivered:
        """After an answer to a statement that is sure to see what stands before `since`."""
        missed = self.missed(state, since)
        until = self.forgotten + len(self.entries) if missed is None else missed
        return Delivered(self.position, self.forgotten, self.entries, max(self.seen, until))

    def kept_from(self, index: int) -> Delivered:
        """Without the entries that neither a statement that is out nor a later one can miss."""
        index = max(self.forgotten, min(index, self.seen))
        entries = self.entries[index - self.forgotten :]
        return Delivered(self.position, index, entries, self.seen)
