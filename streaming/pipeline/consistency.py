"""Base and view consistency, judged from state change sequences (ryco-pyco 2.2).

A state of a view corresponds to states of its bases when the view's definition gives it over them. Base
consistent: every state in the view's sequence corresponds to one single state of each base (definition
4). View consistent: two such views correspond, step by step, to the same state of each common base
(definition 5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Generic, TypeVar

S = TypeVar("S")

Choice = Mapping[str, int]
"""Base -> position in its state change sequence."""


@dataclass(frozen=True)
class ReadersView(Generic[S]):
    """A view as its readers see it.

    Attributes:
        bases: its base-ancestors.
        define: the view over one state of each of them.
        states: its state change sequence (definition 3), the initial state first.
    """

    bases: tuple[str, ...]
    define: Callable[[Mapping[str, S]], S]
    states: Sequence[S]


def corresponding(
    view: ReadersView[S], state: S, sequences: Mapping[str, Sequence[S]]
) -> Iterator[Choice]:
    """The states of the bases, one of each, over which the view's definition gives a state."""
    for places in product(*(range(len(sequences[base])) for base in view.bases)):
        choice = dict(zip(view.bases, places, strict=True))
        if view.define({base: sequences[base][i] for base, i in choice.items()}) == state:
            yield choice


def base_inconsistency(view: ReadersView[S], sequences: Mapping[str, Sequence[S]]) -> int | None:
    """The first state of the view that corresponds to no state of the bases; None if all do."""
    for step, state in enumerate(view.states):
        if next(corresponding(view, state, sequences), None) is None:
            return step
    return None


def view_inconsistency(
    one: ReadersView[S], other: ReadersView[S], sequences: Mapping[str, Sequence[S]]
) -> int | None:
    """The first step at which two views show different states of a common base; None if none.

    Step k of both is what stands after the same data update.
    """
    common = [base for base in one.bases if base in other.bases]
    for step, (left, right) in enumerate(zip(one.states, other.states, strict=True)):
        seen = {tuple(c[b] for b in common) for c in corresponding(one, left, sequences)}
        if not any(
            tuple(c[b] for b in common) in seen for c in corresponding(other, right, sequences)
        ):
            return step
    return None
