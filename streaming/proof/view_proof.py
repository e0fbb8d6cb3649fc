"""The proof for one view: its recorded states beside its SQL over the relations, number by number.

Bags are compared by their prints (`engine`). Equal prints settle it. Where they differ, the bags
themselves are compared row by row, until the view has its witness, and always when its values have
a tolerance: a print knows none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streaming.errors import FrescoError
from streaming.proof.proof_engine import Print
from streaming.proof.recomputed import Difference, Recomputed
from streaming.proof.recorded_levels import (
    EpochState,
    Judged,
    Observations,
    Witness,
    achieved,
    level_asked,
    reaches,
)
from streaming.proof.relation_history import History
from streaming.scalars.expression import Schema
from streaming.warehouse.epoch import Epoch


class ViewProof:
    """One view's recomputed and recorded states and what came of comparing them."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        recomputed: Recomputed,
        changes: History,
        after: int | None,
        unknown: str = "",
    ) -> None:
        self.name, self.sql = recomputed.name, str(spec["sql"])
        self.recomputed, self.changes = recomputed, changes
        self.every = int(spec.get("every") or 1)
        self.asked = level_asked(spec.get("level", "complete"), self.every)
        self.after = after
        """The last good number of a suspended view."""
        self.unknown = unknown
        """Why nothing recorded tells what it should hold: it began with what the source held."""
        self.since = int(spec.get("since", 0))
        """The number at which it joined its group."""
        self.absent: set[int] = set()
        """Epochs that do not show it yet."""
        self.wrong: list[int] = []
        self.states: dict[int, Print] = {}
        self.epochs: list[EpochState] = []
        self.witness: Witness | None = None
        self.numbers: list[int] = []
        """At which it was asked for, whether DuckDB could answer or not."""
        self.heard: dict[int, Print] = {}
        """Number -> the state that Spark gives its text."""
        self.refuted: set[int] = set()
        """Numbers at which Spark's state is not the recorded one."""
        self.only_spark = ""
        """Why DuckDB does not count, if so."""
        self._refutation: Witness | None = None
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
        if self.unknown or number < self.since or (self.after is not None and number > self.after):
            return
        self.numbers.append(number)
        expected = self._compared[0] if self._compared and not moved else self.recomputed.print()
        if expected is None:
            return
        pair = expected, self._recorded[number]
        if pair != self._compared:
            self._equal = self._are_equal(pair, lambda: self.changes.bag(number), number, None)
            self._compared = pair
        self.states[number] = expected
        if not self._equal:
            self.wrong.append(number)

    def at_epoch(self, epoch: Epoch, rows: pa.Table) -> None:
        """Compares one table state; rows are c0.. and, last, how often."""
        if self.unknown:
            return
        limit = epoch.suspended.get(self.name)
        if limit is not None and limit < epoch.covered[-1][1]:
            if self.since <= limit <= epoch.frontier:
                self.as_recorded(epoch, limit, rows)
            return
        number = epoch.frontier
        if number < self.since or (self.after is not None and number > self.after):
            return
        if self.recomputed.unable is not None or number not in self.states:
            return
        bag = self.recomputed.take_rows(rows)
        found = self.recomputed.print_of_bag(bag)
        expected = self.states[number] if epoch.is_prefix else self.recomputed.print()
        if expected is None:
            return
        equal = self._are_equal((expected, found), lambda: bag, number, epoch.epoch)
        self.epochs.append(EpochState(epoch.epoch, number, equal, found))

    def as_recorded(self, epoch: Epoch, number: int, rows: pa.Table) -> None:
        """Compares a table state with the changelog's at a number that has been judged.

        So a suspended view's table state must be that of its last good number, at every later epoch.
        Where that number is beyond the frontier, it has some of the numbers up there and not others.
        """
        bag = self.recomputed.take_rows(rows)
        found = self.recomputed.print_of_bag(bag)
        equal = found == self._recorded[number]
        if not equal and self.witness is None:
            one = self.recomputed.differences(bag, 1, self.changes.bag(number))[0]
            self._tell(one, number, epoch.epoch)
        right = equal and number in self.states and number not in self.wrong
        self.epochs.append(EpochState(epoch.epoch, number, right, found))

    def hear(self, schema: Schema, states: Mapping[int, pa.Table]) -> None:
        """Compares the changelog with what Spark says its text is at some numbers.

        Args:
            schema: the result's columns as Spark names and types them.
            states: number -> rows, not folded.

        Raises:
            FrescoError: VERIFY_SQL when Spark's columns are not the view's.
        """
        known = self.recomputed.schema
        if [one.name for one in schema] != [one.name for one in known]:
            names = ", ".join(one.name for one in schema)
            raise FrescoError("VERIFY_SQL", f"Spark names its columns {names}", where=self.name)
        for number, rows in sorted(states.items()):
            bag = self.recomputed.spark_bag(rows, schema)
            found = self.recomputed.spark_differences(bag, self.changes.bag(number), schema)
            self.heard[number] = self.recomputed.print_of_bag(bag)
            if found:
                self.refuted.add(number)
                one = found[0]
                if self._refutation is None or number < self._refutation.number:
                    self._refutation = Witness(number, None, one.row, one.expected, one.found)

    @property
    def doubted(self) -> str:
        """Why DuckDB is no judge of this view; "" where it agrees with Spark or was not contradicted."""
        if self.recomputed.unable is not None:
            return "DuckDB cannot run its text"
        if any((number in self.wrong) != (number in self.refuted) for number in self.heard):
            return "DuckDB, by way of sqlglot, reads its text otherwise"
        return ""

    def only_by_spark(self, why: str) -> None:
        """From here on what DuckDB said does not count; `as_recorded` is to be asked for epochs anew."""
        self.only_spark = why
        self.states, self.wrong = dict(self.heard), sorted(self.refuted)
        self.epochs, self.witness = [], self._refutation

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
        if self.unknown:
            note = f"not recomputed: {self.unknown}; `fresco verify --source` compares it"
            return Judged("view", self.name, self.asked, "unknown", True, 0, 0, 0, None, note)
        level = achieved(self.observations(), self.every)
        notes = [] if self.after is None else [f"suspended after {self.after}"]
        if self.only_spark:
            notes.append(f"judged by Spark alone: {self.only_spark}")
        last = self.states[max(self.states)] if self.states else (0, 0, 0)
        holds = reaches(level, self.asked)
        return Judged(
            "view", self.name, self.asked, level, holds, len(self.states), len(self.epochs),
            last[0], None if holds else self.witness, "; ".join(notes), tuple(sorted(self.heard)),
        )  # fmt: skip
