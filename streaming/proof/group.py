"""The proof for one merge group: one walk over its numbers, all views side by side (MVC 2.3).

At each number the relations step forward, each view whose relations changed is recomputed, and its
changelog, stepped likewise, must hold the same bag. An epoch is met at its frontier; where its rows
overtook, the relations get the covered numbers beyond it for a moment, because its state is that of
exactly its covered transactions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from streaming.algebra.tree import Column, Relation
from streaming.proof import recorded
from streaming.proof.history import History
from streaming.proof.levels import (
    EpochState,
    Judged,
    Observations,
    Witness,
    achieved,
    level_asked,
    reaches,
    weakest,
)
from streaming.proof.recompute import (
    Difference,
    Recomputed,
    offer_relation,
    open_engine,
    parents_first,
)
from streaming.readers import Warehouse
from streaming.warehouse.epoch import Epoch

EPOCHS = 100
"""Of so many epochs the table state is read when only a sample is checked."""


class ViewProof:
    """One view's recomputed and recorded states and what came of comparing them."""

    def __init__(
        self, spec: Mapping[str, Any], recomputed: Recomputed, changes: History, after: int | None
    ) -> None:
        self.name = recomputed.name
        self.recomputed, self.changes = recomputed, changes
        self.relations = tuple(spec["relations"])
        self.every = int(spec.get("every") or 1)
        self.asked = level_asked(spec.get("level", "complete"), self.every)
        self.after = after
        """The last good number of a suspended view."""
        self.stale = True
        self.wrong: list[int] = []
        self.states: dict[int, tuple[Any, ...]] = {}
        self.epochs: list[EpochState] = []
        self.witness: Witness | None = None
        self._found: list[Difference] = []

    def at(self, number: int) -> None:
        """Compares the changelog's state at a number, up to a suspended view's last good one."""
        if self.after is not None and number > self.after:
            return
        moved = self.changes.seek(number) | self.stale
        self.refresh()
        if moved or not self.states:
            self._found = self.recomputed.differences(self.changes.bag)
            self._state = self.recomputed.fingerprint()
        self.states[number] = self._state
        if self._found:
            self.wrong.append(number)
            self._tell(self._found[0], number, None)

    def refresh(self) -> None:
        """Recomputes when a relation has changed since."""
        if self.stale:
            self.recomputed.refresh()
            self.stale = False

    def at_epoch(self, epoch: Epoch, rows: pa.Table) -> None:
        """Compares one table state; rows are c0.. and `_n`."""
        number = epoch.frontier
        if self.after is not None and number > self.after:
            return
        self.refresh()
        found = self.recomputed.differences(self.recomputed.take_rows(rows))
        if found:
            self._tell(found[0], number, epoch.epoch)
        print_ = self.recomputed.fingerprint_of_rows()
        self.epochs.append(EpochState(epoch.epoch, number, not found, print_))

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
        last = self.states[max(self.states)] if self.states else (0, 0)
        holds = reaches(level, self.asked)
        return Judged(
            "view", self.name, self.asked, level, holds, len(self.states), len(self.epochs),
            last[0], None if holds else self.witness, note,
        )  # fmt: skip


class GroupProof:
    """Walks one group's numbers; `run` first, then `lines` and `problems`.

    Args:
        sample: how many numbers at most; None for all.
        rng: draws the sample.
    """

    def __init__(
        self,
        warehouse: Warehouse,
        path: str,
        group: str,
        sample: int | None,
        rng: random.Random,
    ) -> None:
        self.group = group
        self.problems: list[str] = []
        self._warehouse, self._path = warehouse, path
        self._epochs = warehouse.epochs(group)
        self.frontier = self._epochs[-1].frontier
        self._engine = open_engine()
        specs = {name: warehouse.spec(name) for name in warehouse.views()}
        specs = {name: spec for name, spec in specs.items() if spec["group"] == group}
        used = {name for spec in specs.values() for name in spec["relations"]}
        truncated = recorded.truncations(path)
        relations = [one for one in warehouse.relations() if one.name in used]
        self._histories = {
            relation.name: self._history(f"__r{at}", relation, truncated.get(relation.name, []))
            for at, relation in enumerate(relations)
        }
        by_name = {relation.name: relation for relation in relations}
        self._views = [
            self._view(at, specs[name], by_name) for at, name in enumerate(parents_first(specs))
        ]
        self._check_epochs()
        self._checked = self._choose_epochs(sample, rng)
        self._numbers = self._choose_numbers(sample, rng)

    def _history(self, table: str, relation: Relation, truncated: list[int]) -> History:
        rows = self._warehouse.updates(relation.name)
        history = History(self._engine, table, relation.schema, rows, truncated)
        if (below := history.below_zero()) is not None:
            number, row, count = below
            self.problems.append(
                f"relation {relation.name}: row {row} stands {count} times at number {number}"
            )
        offer_relation(self._engine, relation, history.bag, history.columns)
        return history

    def _view(
        self, at: int, spec: Mapping[str, Any], relations: Mapping[str, Relation]
    ) -> ViewProof:
        name = str(spec["name"])
        schema = tuple(Column(one["name"], one["type"]) for one in spec["schema"])
        recomputed = Recomputed(self._engine, name, f"__v{at}", schema, spec["sql"], relations)
        changes = History(self._engine, f"__v{at}", schema, self._warehouse.changes(name))
        if (below := changes.below_zero()) is not None:
            number, row, count = below
            self.problems.append(
                f"view {name}: row {row} stands {count} times at number {number} of the changelog"
            )
        return ViewProof(spec, recomputed, changes, self._epochs[-1].suspended.get(name))

    def _check_epochs(self) -> None:
        for before, after in zip(self._epochs, self._epochs[1:], strict=False):
            lost = [run for run in before.covered if not _inside(run, after.covered)]
            if lost or after.frontier < before.frontier:
                self.problems.append(
                    f"group {self.group}: epoch {after.epoch} no longer covers {lost or 'a prefix'}"
                    f" of epoch {before.epoch}"
                )

    def _choose_epochs(self, sample: int | None, rng: random.Random) -> dict[int, list[Epoch]]:
        epochs = [epoch for epoch in self._epochs if epoch.frontier >= 0]
        limit = len(epochs) if sample is None else min(sample, EPOCHS)
        if len(epochs) > limit:
            newest = epochs[-(limit // 2 or 1) :]
            epochs = newest + rng.sample(epochs[: -len(newest)], limit - len(newest))
        chosen: dict[int, list[Epoch]] = {}
        for epoch in sorted(epochs, key=lambda one: one.epoch):
            chosen.setdefault(epoch.frontier, []).append(epoch)
        return chosen

    def _choose_numbers(self, sample: int | None, rng: random.Random) -> list[int]:
        if self.frontier < 0:
            return []
        everything = range(self.frontier + 1)
        good = {view.after for view in self._views if view.after is not None and view.after >= 0}
        always = {0, self.frontier, *self._checked, *good}
        if sample is None or sample >= len(everything):
            return list(everything)
        return sorted(always | set(rng.sample(everything, max(0, sample - len(always)))))

    def run(self, progress: Callable[[str, int, int], None] | None = None) -> None:
        """Compares every chosen number and epoch."""
        for done, number in enumerate(self._numbers, start=1):
            for name, history in self._histories.items():
                if history.seek(number):
                    self._make_stale(name)
            for view in self._views:
                view.at(number)
            for epoch in self._checked.get(number, ()):
                self._compare_epoch(epoch)
            if progress is not None:
                progress(self.group, done, len(self._numbers))

    def _make_stale(self, relation: str) -> None:
        for view in self._views:
            # a view over views depends on whatever they depend on
            if relation in view.relations or not set(view.relations) <= self._histories.keys():
                view.stale = True

    def _compare_epoch(self, epoch: Epoch) -> None:
        ahead = [run for run in epoch.covered if run[0] > epoch.frontier]
        if any(history.rewrites(ahead) for history in self._histories.values()):
            return
        self._shift(ahead, +1)
        for view in self._views:
            rows = recorded.epoch_rows(self._warehouse, view.name, epoch.epoch)
            if rows is None:
                continue
            view.at_epoch(epoch, rows)
            version = int((rows.schema.metadata or {}).get(b"fresco.version", b"-1"))
            doubled = recorded.doubled_id(self._path, self.group, view.name, version)
            if doubled is not None:
                self.problems.append(
                    f"view {view.name}: _id {doubled} stands twice at epoch {epoch.epoch}"
                )
        self._shift(ahead, -1)

    def _shift(self, runs: list[tuple[int, int]], sign: int) -> None:
        for name, history in self._histories.items():
            if history.shift(runs, sign):
                self._make_stale(name)

    def lines(self) -> list[Judged]:
        """The group's line and its views'."""
        views = [view for view in self._views if view.after is None]
        seen = _together([view.observations() for view in views])
        every = max((view.every for view in views), default=1)
        asked = weakest([view.asked for view in views])
        level = achieved(seen, every)
        released = sum(len(epoch.released) for epoch in self._epochs)
        note = f"{released} global transactions were released as local" if released else ""
        holds = reaches(level, asked)
        witness = next((view.witness for view in views if view.witness is not None), None)
        rows = sum(view.line().rows for view in views)
        group = Judged(
            "group", self.group, asked, level, holds, len(seen.states), len(seen.epochs), rows,
            None if holds else witness, note,
        )  # fmt: skip
        return [group, *(view.line() for view in self._views)]


def _inside(run: tuple[int, int], runs: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= run[0] and run[1] <= last for first, last in runs)


def _together(views: list[Observations]) -> Observations:
    """The group's states are vectors of its views' states."""
    if not views:
        return Observations([], {}, [], True)
    numbers = set.intersection(*(set(view.states) for view in views))
    states = {n: tuple(view.states[n] for view in views) for n in sorted(numbers)}
    by_epoch = [{one.epoch: one for one in view.epochs} for view in views]
    epochs = []
    for epoch in sorted(set.intersection(*(set(each) for each in by_epoch))):
        ones = [each[epoch] for each in by_epoch]
        prints = tuple(one.recorded for one in ones)
        epochs.append(EpochState(epoch, ones[0].number, all(o.equal for o in ones), prints))
    wrong = sorted({n for view in views for n in view.wrong})
    return Observations(wrong, states, epochs, all(view.final for view in views))
