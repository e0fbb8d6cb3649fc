"""A source that locks rows, under figure 1's schedule (moro-sartori 4).

It keeps one version of each row. An update locks its row until its transaction commits; under read
committed a reader waits for a locked row and then reads what was committed, row by row, so what one
statement reads need not be a snapshot. An *atomic* statement waits for all rows first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Value = tuple[int]


@dataclass
class LockedSource:
    """Tuples by name, delta tables filled by triggers, and what has been sent to the warehouse.

    Attributes:
        committed: transactions in the order of their commits.
        channel: messages to the warehouse, in order: the network is reliable and FIFO.
    """

    rows: dict[str, Value]
    locks: dict[str, str] = field(default_factory=dict)
    undone: dict[str, list[tuple[str, Value, Value]]] = field(default_factory=dict)
    inserted: list[tuple[int, str]] = field(default_factory=list)
    deleted: list[tuple[int, str]] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    channel: list[str] = field(default_factory=list)

    def update(self, transaction: str, name: str, new: Value) -> None:
        """Locks the row and changes it in place."""
        assert self.locks.get(name, transaction) == transaction, "the row is locked"
        self.locks[name] = transaction
        self.undone.setdefault(transaction, []).append((name, self.rows[name], new))
        self.rows[name] = new

    def commit(self, transaction: str) -> None:
        """Unlocks its rows; the triggers' rows commit with it."""
        for name, old, new in self.undone.pop(transaction):
            self.deleted.append((*old, transaction))
            self.inserted.append((*new, transaction))
            del self.locks[name]
        self.committed.append(transaction)

    def notify(self, transaction: str) -> None:
        self.channel.append(transaction)

    def read(self, name: str) -> Value | None:
        """Read committed: the row as it is; None where the reader must wait."""
        return None if name in self.locks else self.rows[name]

    def ids(self) -> list[str]:
        """Read committed: ids in the delta tables, of committed transactions only."""
        return sorted({transaction for _, transaction in (*self.inserted, *self.deleted)})

    def atomic(self) -> list[Value] | None:
        """All rows at one moment; None while any is locked."""
        return None if self.locks else list(self.rows.values())
