"""The proof for one view: its recorded states beside its SQL over the relations, number by number.

Bags are compared by their prints (`engine`). Equal prints settle it. Where they differ, the bags
themselves are compared row by row, until the view has its witness, and always when its values have
a tolerance: a print knows none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streaming.proof.engine import Print
from streaming.proof.history import History
from streaming.proof.levels import (
    EpochState,
    Judged,
    Observations,
    Witness,
    achieved,
    level_asked,
    reaches,
)
from streaming.proof.recompute import Difference, Recomputed
from streaming.warehouse.epoch import Epoch


class ViewProof:
    """One view's recomputed and recorded states and what came of comparing them."""

    def __init__(
        self, spec: Mapping[str, Any], recomputed: Recomputed, changes: History, after: int | None
    ) -> None:
        self.name = recomputed.name
        self.recomputed, self.changes = recomputed, changes
        self.every = int(spec.get("every") or 1)
        self.asked = level_asked(spec.get("level", "complete"), self.every)
        self.after = after
        """The last good number of a suspended view."""
        self.since = int(spec.get("since", 0))
        """The number at which it joined its group."""
        self.absent: set[int] = set()
        """Epochs that do not show it yet."""
        self.wrong: list[int] = []
        self.states: dict[int, Print] = {}
        self.epochs: list[EpochState] = []
        self.witness: Witness | None = None
        self._recorded: Mapping[int, Print] = {}
        self._compared: tuple[Print, Print] | None = None
        self._equal = True

    def look_up(self, numbers: Sequence[int]) -> None:
        """Makes ready to be asked `at` these numbers."""
        self._recorded = self.changes.prints(numbers)

    def at(self, number: int, moved: bool) -> None:
        """Compares the changelog's state at a number, up to a suspended view's last good one.

        Args:
            moved: its relations have changed since the number before.
        """
        if number < self.since or (self.after is not None and number > self.after):
            return
        expected = self._compared[0] if self._compared and not moved else self.recomputed.print()
        pair = expected, self._recorded[number]
        if pair != self._compared:
            self._equal = self._are_equal(pair, lambda: self.changes.bag(number), number, None)
            self._compared = pair
        self.states[number] = expected
        if not self._equal:
            self.wrong.append(number)

    def at_epoch(self, epoch: Epoch, rows: pa.Table) -> None:
        """Compares one table state; rows are c0.. and, last, how often."""
        limit = epoch.suspended.get(self.name)
        if limit is not None and limit < epoch.covered[-1][1]:
            self._stands_still(epoch, limit, rows)
            return
        number = epoch.frontier
        if number < self.since or (self.after is not None and number > self.after):
            return
        bag = self.recomputed.take_rows(rows)
        found = self.recomputed.print_of_bag(bag)
        expected = self.states[number] if epoch.is_prefix else self.recomputed.print()
        equal = self._are_equal((expected, found), lambda: bag, number, epoch.epoch)
        self.epochs.append(EpochState(epoch.epoch, number, equal, found))

    def _stands_still(self, epoch: Epoch, limit: int, rows: pa.Table) -> None:
        """A suspended view's table state must be that of its changelog at its last good number.

        Where that number is beyond the frontier, it has some of the numbers up there and not others.
        """
        if not self.since <= limit <= epoch.frontier:
            return
        bag = self.recomputed.take_rows(rows)
        found = self.recomputed.print_of_bag(bag)
        equal = found == self._recorded[limit]
        if not equal and self.witness is None:
            one = self.recomputed.differences(bag, 1, self.changes.bag(limit))[0]
            self._tell(one, limit, epoch.epoch)
        right = equal and limit not in self.wrong
        self.epochs.append(EpochState(epoch.epoch, limit, right, found))

    def _are_equal(
        self, pair: tuple[Print, Print], bag: Callable[[], str], number: int, epoch: int | None
    ) -> bool:
        """By print, else by row; tells the first witness."""
        if pair[0] == pair[1]:
            return True
        if self.witness is not None and not self.recomputed.loose:
            return False
        found = self.recomputed.differences(bag())
        if found:
            self._tell(found[0], number, epoch)
        return not found

    def _tell(self, one: Difference, number: int, epoch: int | None) -> None:
        if self.witness is None:
            self.witness = Witness(number, epoch, one.row, one.expected, one.found)

    def observations(self) -> Observations:
        """All that was seen."""
        final = not self.states or max(self.states) not in self.wrong
        return Observations(self.wrong, self.states, self.epochs, final)

    def line(self) -> Judged:
        """The view's line of the verdict."""
        level = achieved(self.observations(), self.every)
        note = "" if self.after is None else f"suspended after {self.after}"
        last = self.states[max(self.states)] if self.states else (0, 0, 0)
        holds = reaches(level, self.asked)
        return Judged(
            "view", self.name, self.asked, level, holds, len(self.states), len(self.epochs),
            last[0], None if holds else self.witness, note,
        )  # fmt: skip
