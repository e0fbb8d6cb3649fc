"""The proof for one merge group: one walk over its numbers, all views side by side (MVC 2.3).

At each number every view whose relations changed is recomputed, and its changelog must hold the
same bag there (`view`). A view of which nothing changed, and nothing is recorded, inherits the
verdict. An epoch is met at its frontier; where its rows overtook, the relations get the covered
numbers beyond it for a moment, because its state is that of exactly its covered transactions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from streaming.algebra.tree import Relation
from streaming.errors import FrescoError
from streaming.proof import recorded
from streaming.proof.conflict_order import Touched, overtaken, touched_rows
from streaming.proof.epoch_chain import problems_of
from streaming.proof.forgotten import Forgotten
from streaming.proof.layout_versions import LayoutVersions
from streaming.proof.proof_engine import open_engine, spare_threads, stand_at
from streaming.proof.recomputed import Recomputed, offer_relation, parents_first
from streaming.proof.recorded_levels import (
    EpochState,
    Judged,
    Observations,
    Overtaken,
    achieved,
    reaches,
    weakest,
    without_order,
    without_parts,
)
from streaming.proof.relation_history import History, Runs
from streaming.proof.spark_text import SparkText
from streaming.proof.view_proof import ViewProof
from streaming.readers import Warehouse
from streaming.scalars.expression import Column, Schema
from streaming.scalars.types import delta_schema
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.standing import standing, standing_in
from streaming.warehouse.updates import UpdatesReader

EPOCHS = 100
"""Of so many epochs the table state is read when only a sample is checked."""
APPEALS = 100
"""At so many numbers, at most, Spark judges a view that DuckDB reads otherwise."""
SPARK_ROWS = 20_000_000
"""Rows that Spark reads for a view at all its numbers together, about."""
MOST_TOLD = 3
"""Of so many retractions without a row each history tells."""


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
        reader = UpdatesReader(path)
        self._forgotten = Forgotten(path)
        relations = [one for one in warehouse.relations() if one.name in used]
        self._relations = {relation.name: relation for relation in relations}
        self._versions = LayoutVersions(warehouse.layouts(), specs)
        self._rows: dict[str, str] = {}
        self._histories = {
            relation.name: self._history(f"__r{at}", relation, truncated.get(relation.name, []))
            for at, relation in enumerate(relations)
        }
        names = parents_first(specs)
        lost = {one.name: self._forgotten.columns(one) for one in relations}
        self._unknown = self._versions.unknown({one: specs[one] for one in names}, truncated, lost)
        self._views = [self._view(at, specs[name]) for at, name in enumerate(names)]
        self._bases = _base_relations([specs[name] for name in names])
        touched = touched_rows(reader, warehouse.relations(), self._epochs)
        self.overtaken = self._first_overtaken(touched)
        changes = [view.changes for view in self._views]
        rows = sum(one.size for one in (*self._histories.values(), *changes))
        spare_threads(self._engine, rows)
        self.problems += problems_of(group, self._epochs, reader.numbered)
        self._checked = self._choose_epochs(sample, rng)
        self._numbers = self._choose_numbers(sample, rng)

    def _history(self, table: str, relation: Relation, truncated: list[int]) -> History:
        rows = self._forgotten.sound(relation, self._warehouse.updates(relation.name))
        rows = self._forgotten.exchanged(relation, rows, truncated)
        history = History(self._engine, table, relation.schema, rows, truncated)
        self._tell_below_zero(f"relation {relation.name}", history)
        self._rows[relation.name] = history.rows_now()
        self._offer(relation, self._rows[relation.name], history.columns)
        return history

    def _offer(self, relation: Relation, rows: str, columns: Sequence[str]) -> None:
        """To texts over the relation as it is, and to those over it as it was."""
        offer_relation(self._engine, relation, rows, columns)
        for generation, version in self._versions.of(relation).items():
            offer_relation(self._engine, version, rows, columns, generation)

    def _view(self, at: int, spec: Mapping[str, Any]) -> ViewProof:
        name = str(spec["name"])
        schema = tuple(Column(one["name"], one["type"]) for one in spec["schema"])
        generation = self._versions.generation(name)
        relations = self._versions.relations(generation) or self._relations
        recomputed = Recomputed(
            self._engine, name, f"__v{at}", schema, spec["sql"], relations, generation
        )
        changes = History(self._engine, f"__v{at}", schema, self._changes(name, schema))
        self._tell_below_zero(f"changelog of view {name}", changes)
        after = self._epochs[-1].suspended.get(name)
        return ViewProof(spec, recomputed, changes, after, self._unknown.get(name, ""))

    def _changes(self, name: str, schema: Schema) -> pa.Table:
        """A view's changelog; of one that was suspended before it had a state, none."""
        try:
            return self._warehouse.changes(name, suspended_as_of=True)
        except FrescoError as error:
            if error.code != "READ_VIEW_NO_STATE":
                raise
            return delta_schema(schema).empty_table()

    def _tell_below_zero(self, name: str, history: History) -> None:
        found = history.below_zero(MOST_TOLD + 1)
        self.problems += [
            f"{name}: at number {number} a retraction finds no row {row} (it stands {count} times then)"
            for number, row, count in found[:MOST_TOLD]
        ]
        if len(found) > MOST_TOLD:
            self.problems.append(f"{name}: more retractions find no row")

    def _first_overtaken(self, touched: Touched) -> Overtaken | None:
        """The first epoch that is no source state of the views that are not suspended."""
        for epoch in self._epochs:
            shown = (
                self._bases[view.name]
                for view in self._views
                if epoch.shows(view.name, view.since) and view.name not in epoch.suspended
            )
            found = overtaken(epoch, touched, frozenset[str]().union(*shown))
            if found is not None:
                return found
        return None

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
        checked = [epoch for ones in self._checked.values() for epoch in ones]
        good = {number for epoch in checked for number in epoch.suspended.values() if number >= 0}
        begun = {view.since for view in self._views if view.since <= self.frontier}
        always = {0, self.frontier, *self._checked, *good, *begun}
        if sample is None or sample >= len(everything):
            return list(everything)
        always = {number for number in always if number <= self.frontier}
        return sorted(always | set(rng.sample(everything, max(0, sample - len(always)))))

    def run(self, progress: Callable[[str, int, int], None] | None = None) -> None:
        """Compares every chosen number and epoch."""
        for view in self._views:
            view.look_up(self._numbers)
            view.recomputed.prepare()
        last = -1
        for done, number in enumerate(self._numbers, start=1):
            stand_at(self._engine, number)
            moved = {
                name for name, history in self._histories.items() if history.changes(last, number)
            }
            for view in self._views:
                view.at(number, bool(moved & self._bases[view.name]))
            for epoch in self._checked.get(number, ()):
                self._compare_epoch(epoch)
                for view in self._views:
                    view.recomputed.prepare()
            last = number
            if progress is not None:
                progress(self.group, done, len(self._numbers))

    @property
    def unable(self) -> FrescoError | None:
        """Why DuckDB cannot run a view's text."""
        return next((v.recomputed.unable for v in self._views if v.recomputed.unable), None)

    def hear(self, text: SparkText, most: int) -> None:
        """Has Spark run the views' text at some of the numbers; what it says is the law.

        At the first number and the last, at epochs' frontiers and between, and where DuckDB found
        something wrong. A view that DuckDB reads otherwise is judged by Spark alone.

        Args:
            most: numbers for each view, but for those that DuckDB found wrong.

        Raises:
            FrescoError: VERIFY_SQL.
        """
        for name, history in self._histories.items():
            relation = self._relations[name]
            text.offer(relation, history.all_times(), self._versions.of(relation))
        for view in self._views:
            text.read(view.name, view.sql, self._versions.generation(view.name))
        held = sum(history.size for history in self._histories.values())
        most = max(2, min(most, SPARK_ROWS // max(1, held)))
        ends = spread(sorted(self._checked), most // 2)
        common = {*ends, *spread(self._numbers, most - len(ends))}
        self._hear(text, {view: common | {*view.wrong[:2]} for view in self._views})
        doubted = {view: view.doubted for view in self._views if view.doubted}
        if not doubted:
            return
        many = max(most, min(APPEALS, SPARK_ROWS // max(1, held)))
        again = {*spread(sorted(self._checked), many // 2), *spread(self._numbers, many // 2)}
        self._hear(text, {view: again for view in doubted})
        for view, why in doubted.items():
            view.only_by_spark(why)
        for number, epochs in self._checked.items():
            for epoch in epochs:
                self._compare_as_recorded(epoch, [v for v in doubted if number in v.heard])

    def _hear(self, text: SparkText, asked: Mapping[ViewProof, set[int]]) -> None:
        """Spark's states of views, at those of the numbers that they have, and their first and last."""
        wanted = {}
        for view, numbers in asked.items():
            there = numbers.intersection(view.numbers) | {*view.numbers[:1], *view.numbers[-1:]}
            wanted[view.name] = sorted(there - view.heard.keys())
        found = text.bags({name: numbers for name, numbers in wanted.items() if numbers})
        for view in asked:
            if view.name in found:
                view.hear(*found[view.name])

    def _compare_as_recorded(self, epoch: Epoch, views: Sequence[ViewProof]) -> None:
        """An epoch's tables beside the changelog, for views of which only that has been judged."""
        if not views or not epoch.is_prefix:
            return
        state = recorded.epoch_state(self._path, self.group, epoch.epoch)
        if state is None:
            return
        for view in views:
            rows = recorded.view_rows(state, self._warehouse.table(view.name))
            if epoch.shows(view.name, view.since) and rows is not None:
                view.as_recorded(epoch, epoch.suspended.get(view.name, epoch.frontier), rows)

    def _compare_epoch(self, epoch: Epoch) -> None:
        ahead = [run for run in epoch.covered if run[0] > epoch.frontier]
        state = recorded.epoch_state(self._path, self.group, epoch.epoch)
        if state is None:
            return
        said = standing_in(state.table)
        if said and said != standing(epoch, [view.name for view in self._views]):
            self.problems.append(
                f"epoch {epoch.epoch}: fresco_views does not say of its views what the commit says"
            )
        with self._ahead(epoch.frontier, ahead):
            for view in self._views:
                if not epoch.shows(view.name, view.since):
                    view.absent.add(epoch.epoch)
                    continue
                rows = recorded.view_rows(state, self._warehouse.table(view.name))
                if rows is None:
                    continue
                view.at_epoch(epoch, rows)
                doubled = recorded.doubled_id(state, view.name)
                if doubled is not None:
                    self.problems.append(
                        f"view {view.name}: _id {doubled} stands twice at epoch {epoch.epoch}"
                    )

    @contextmanager
    def _ahead(self, number: int, runs: Runs) -> Iterator[None]:
        """The relations with these numbers beyond `number`, until the block ends."""
        for name, history in self._histories.items() if runs else ():
            rows = history.rows_ahead(number, runs)
            self._offer(self._relations[name], rows, history.columns)
        yield
        for name, history in self._histories.items() if runs else ():
            self._offer(self._relations[name], self._rows[name], history.columns)

    def lines(self) -> list[Judged]:
        """The group's line and its views'."""
        views = [view for view in self._views if view.after is None and not view.unknown]
        seen = _together(views)
        every = max((view.every for view in views), default=1)
        asked = weakest([view.asked for view in views])
        level, note = achieved(seen, every), ""
        if released := sum(len(epoch.released) for epoch in self._epochs):
            level = without_parts(level)
            note = f"{released} global transactions were released as local"
        if self.overtaken is not None:
            level = without_order(level)
        holds = reaches(level, asked)
        witness = self.overtaken or next((v.witness for v in views if v.witness is not None), None)
        rows = sum(view.line().rows for view in views)
        heard = [view.heard.keys() for view in views]
        by_spark = tuple(sorted(set[int]().union(*heard)))
        group = Judged(
            "group", self.group, asked, level, holds, len(seen.states), len(seen.epochs), rows,
            None if holds else witness, note, by_spark,
        )  # fmt: skip
        return [group, *(view.line() for view in self._views)]


def spread(numbers: Sequence[int], most: int) -> list[int]:
    """So many of the numbers at most, the first and the last among them, evenly spread."""
    if len(numbers) <= most:
        return list(numbers)
    if most < 2:
        return list(numbers[-1:])[:most]
    return [numbers[at * (len(numbers) - 1) // (most - 1)] for at in range(most)]


def _base_relations(specs: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """View -> the relations it depends on, by way of other views too; parents come first."""
    bases: dict[str, set[str]] = {}
    for spec in specs:
        found = (bases.get(one, {one}) for one in spec["relations"])
        bases[str(spec["name"])] = set[str]().union(*found)
    return bases


def _together(proofs: list[ViewProof]) -> Observations:
    """The group's states are vectors of its views' states; a view counts from where it joined.

    An epoch may be at that number, or above, and not show the view yet: then it says nothing of it.
    """
    if not proofs:
        return Observations([], {}, [], True)
    views = [proof.observations() for proof in proofs]
    states = {}
    for n in sorted({n for view in views for n in view.states}):
        there = [v for v, proof in zip(views, proofs, strict=True) if proof.since <= n]
        if all(n in view.states for view in there):
            states[n] = tuple(view.states[n] for view in there)
    epochs: dict[int, list[EpochState]] = {}
    for view, proof in zip(views, proofs, strict=True):
        number = {one.epoch: one.number for other in views for one in other.epochs}
        for epoch in proof.absent & number.keys():
            if (state := view.states.get(number[epoch])) is not None:
                unseen = EpochState(epoch, number[epoch], True, state)
                epochs.setdefault(epoch, []).append(unseen)
        for one in view.epochs:
            epochs.setdefault(one.epoch, []).append(one)
    met = []
    for epoch, ones in sorted(epochs.items()):
        if len(ones) == sum(proof.since <= ones[0].number for proof in proofs):
            prints = tuple(one.recorded for one in ones)
            met.append(EpochState(epoch, ones[0].number, all(o.equal for o in ones), prints))
    wrong = sorted({n for view in views for n in view.wrong})
    return Observations(wrong, states, met, all(view.final for view in views))
