"""The deltas that an answer may have seen too early or missed (DESIGN 7).

An exact manager wants an answer at the state P = "all numbers up to p" and gets it at a state S of the
source, which may lack delivered transactions and have seen later ones (those are delivered too: the
answer is held until they are). What S and P differ in is made of deltas that have been delivered; here
they are remembered, as the leaves' rows with their numbers.

How long: a transaction numbered above the batch in hand, always. One at or below it, until an answer
of its source has seen it and no query sent before that answer came is still open: snapshots of a source
only grow, so every query sent later sees it too. The manager says when that is (`forget`); a source
that is not asked confirms nothing, so `confirm` also takes the state of any other snapshot of it.

Three things cannot be compensated, and are said instead of a difference: `Again`: the state parts the
transactions that share one number, whose rows are not kept apart, or lacks a truncate that is wanted
(a later snapshot will not); `LostByTruncate`: the state is after a truncate that is not wanted,
the rows before it are gone for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from streaming.algebra.operators import Operators
from streaming.algebra.psj import Psj, source_of
from streaming.algebra.source_queries import Copied, SourceState
from streaming.messages import Rows, Updates
from streaming.viewmanagers.asking.asking_manager import PlaceChange

V = TypeVar("V")

FOREVER = 2**62
"""Above every number."""


@dataclass(frozen=True)
class Again:
    """The state will not do; a later one will."""


@dataclass(frozen=True)
class LostByTruncate:
    """The state is after truncates that are not wanted: the numbers of the first and the last."""

    first: int
    last: int


class Recent(Generic[V]):
    """The recent deltas at the places of a view.

    Args:
        psj: the view.
        operators: what can be done with relations.
        start: the number of the initial state; rows up to it are not kept.
    """

    def __init__(self, psj: Psj, operators: Operators[V], start: int) -> None:
        self.psj = psj
        self.operators = operators
        self.start = start
        self.relations = psj.relations
        self.sources = sorted({source_of(relation) for relation in self.relations})
        self.deltas: dict[int, V] = {
            place: operators.empty(psj.leaves[place].schema) for place in psj.places
        }
        self.log: dict[str, dict[int, list[tuple[str, int]]]] = {s: {} for s in self.sources}
        """source -> number, ascending -> (transaction, position) of each that has the number."""
        self.confirmed: dict[str, set[int]] = {s: set() for s in self.sources}
        """source -> numbers that an answer has seen."""
        self.truncates: dict[str, list[int]] = {r: [] for r in self.relations}

    def deliver(self, updates: Updates, change: PlaceChange[V] | None, numbers: set[int]) -> None:
        """Remember a message's deltas.

        Args:
            change: of all its numbers; None for the initial state, which every answer must have seen.
            numbers: those that leave the view work.
        """
        for source in self.sources:
            log = updates.logs.get(source)
            if log is None:
                continue
            entries = zip(log.numbers, log.transactions, log.positions, strict=True)
            for number, transaction, position in sorted(entries):  # crossing globals: not in order
                if number in numbers:
                    self.log[source].setdefault(number, []).append((transaction, position))
        if change is not None:
            for place, delta in change.deltas.items():
                self.deltas[place] = self.operators.plus(self.deltas[place], delta)
            for number, relation in change.truncated:
                self.truncates[relation].append(number)

    def rows(self, place: int, first: int, last: int) -> V:
        """The rows of the numbers [first..last] at a place."""
        return self.operators.between(self.deltas[place], first, last)

    def difference(self, place: int, state: SourceState, number: int) -> V | Again | LostByTruncate:
        """R(S) - R(P), all under number 0: S the state, P all numbers up to `number`."""
        relation = self.relations[place]
        log = self.log[source_of(relation)]
        since = self.start
        seen_later = []
        for truncate in self.truncates[relation]:
            seen = _seen(state, log.get(truncate, []))
            if truncate > number and seen is not False:
                seen_later.append(truncate)
            elif truncate <= number:
                if seen is not True:
                    return Again()
                since = truncate
        if seen_later:
            return LostByTruncate(seen_later[0], seen_later[-1])
        result = self.operators.empty(self.psj.leaves[place].schema)
        for first, last, seen, wanted in _runs(log, state, number):
            if first <= self.start and not seen:
                return Again()
            if last <= since or seen == wanted:
                continue
            if seen is None:
                return Again()
            rows = self.operators.between(self.deltas[place], max(first, since + 1), last)
            add = self.operators.plus if seen else self.operators.minus
            result = add(result, rows)
        return self.operators.renumbered(result, 0)

    def confirm(self, source: str, state: SourceState) -> None:
        """A snapshot of the source had this state, and later ones have seen what it had."""
        if isinstance(state, Copied) and not state.whole:
            return
        confirmed = self.confirmed[source]
        for number, entries in self.log[source].items():
            if number not in confirmed and _seen(state, entries):
                confirmed.add(number)

    def forget(self, number: int) -> None:
        """No query is open, and none will want a state before `number`."""
        for source in self.sources:
            log, floor = self.log[source], number
            if len(self.psj.places) > 1:
                unseen = (n for n in log if n not in self.confirmed[source])
                floor = min(number, next(unseen, FOREVER) - 1)
            for old in [n for n in log if n <= floor]:
                del log[old]
            self.confirmed[source] = {n for n in self.confirmed[source] if n > floor}
            for place, relation in enumerate(self.relations):
                if source_of(relation) == source:
                    self.deltas[place] = self.rows(place, floor + 1, FOREVER)
                    self.truncates[relation] = [n for n in self.truncates[relation] if n > floor]

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        return {
            "deltas": [self.operators.pack(v) for v in self.deltas.values()],
            "log": {s: [[n, list(e)] for n, e in log.items()] for s, log in self.log.items()},
            "confirmed": {s: sorted(numbers) for s, numbers in self.confirmed.items()},
            "truncates": {r: list(numbers) for r, numbers in self.truncates.items()},
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described."""
        opened = [self.operators.open(Rows.model_validate(rows)) for rows in saved["deltas"]]
        self.deltas = dict(enumerate(opened))
        self.log = {
            source: {n: [(t, p) for t, p in entries] for n, entries in log}
            for source, log in saved["log"].items()
        }
        self.confirmed = {s: set(numbers) for s, numbers in saved["confirmed"].items()}
        self.truncates = {r: list(numbers) for r, numbers in saved["truncates"].items()}


def _seen(state: SourceState, entries: list[tuple[str, int]]) -> bool | None:
    """Whether the state has seen all transactions of a number (True), none (False) or some."""
    saw = {state.saw(transaction, position) for transaction, position in entries}
    return True if not saw else saw.pop() if len(saw) == 1 else None


def _runs(
    log: Mapping[int, list[tuple[str, int]]], state: SourceState, number: int
) -> Iterator[tuple[int, int, bool | None, bool]]:
    """(first, last, seen, wanted) of neighbouring numbers of a source that are alike.

    Numbers in between that the source's log has not hold no rows of the source.
    """
    run: tuple[int, int, bool | None, bool] | None = None
    for n, entries in log.items():
        seen, wanted = _seen(state, entries), n <= number
        if run is not None and run[2:] == (seen, wanted):
            run = (run[0], n, seen, wanted)
            continue
        if run is not None:
            yield run
        run = (n, n, seen, wanted)
    if run is not None:
        yield run
