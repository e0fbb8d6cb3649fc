"""Which level of consistency a recorded history reaches (strobe-family 3, MVC 2.2, 2.3), as data.

An observation compares one recorded state with the recomputed one. From all observations of a view
follows its level; from those of all views of a group, taken together, the group's: there the states
are vectors, one fingerprint per view, and an epoch counts only when all views agree at one number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

LEVELS = ("none", "convergent", "weak", "strong", "complete-N", "complete")
"""From the weakest; each includes those before it."""

Print = tuple[Any, ...]
"""A state's fingerprint; a group's is one fingerprint per view."""


@dataclass(frozen=True)
class Witness:
    """Why a level is not reached: at this state this row stands a wrong number of times.

    Attributes:
        number: the source state it was compared with.
        epoch: of the table state; None for a state of the changelog.
    """

    number: int
    epoch: int | None
    row: tuple[Any, ...]
    expected: int
    found: int

    def __str__(self) -> str:
        at = f"number {self.number}" + (f", epoch {self.epoch}" if self.epoch else "")
        return f"{at}: {self.row} expected {self.expected}, found {self.found}"


@dataclass(frozen=True)
class Overtaken:
    """Why an epoch is no source state: it covers a transaction and lacks one that comes before it.

    Attributes:
        number: the transaction that is lacking.
        covered: the later one that the epoch covers.
        relation, key: the row that `number` touched and `covered`, or one between them, after it; no
            key: every row of the relation (a truncate, records that could not be decoded).
    """

    epoch: int
    number: int
    covered: int
    relation: str
    key: tuple[Any, ...] | None

    def __str__(self) -> str:
        row = "every row" if self.key is None else f"row {self.key}"
        return (
            f"epoch {self.epoch} covers transaction {self.covered} and not {self.number}, which "
            f"comes before it: {row} of {self.relation}"
        )


@dataclass(frozen=True)
class EpochState:
    """One epoch of a view or a group.

    Attributes:
        number: its frontier, or the view's last good number when that is lower.
        equal: it equals the recomputed state with exactly its covered numbers.
        recorded: its fingerprint.
    """

    epoch: int
    number: int
    equal: bool
    recorded: Print


@dataclass(frozen=True)
class Observations:
    """What was compared.

    Attributes:
        wrong: numbers at which the changelog's state differs from the recomputed one.
        states: number -> the recomputed state's fingerprint, for each number checked.
        final: the changelog's state at the last number equals the recomputed one.
    """

    wrong: Sequence[int]
    states: Mapping[int, Print]
    epochs: Sequence[EpochState]
    final: bool


def achieved(seen: Observations, every: int = 1) -> str:
    """The highest level that the observations allow.

    Args:
        every: N of complete-N.
    """
    last_equal = seen.epochs[-1].equal if seen.epochs else True
    if not (seen.final and last_equal):
        return "none"
    if all(one.equal for one in seen.epochs):
        if not seen.wrong:
            return "complete"
        if every > 1 and not any(number % every == 0 for number in seen.wrong):
            return "complete-N"
        return "strong"
    order = -1
    ascending = True
    for one in seen.epochs:
        numbers = [n for n, state in seen.states.items() if state == one.recorded]
        if one.equal:
            numbers.append(one.number)
        if not numbers:
            return "convergent"
        later = [n for n in numbers if n >= order]
        ascending &= bool(later)
        order = min(later) if later else order
    return "strong" if ascending else "weak"


def without_parts(level: str) -> str:
    """What is left of a level where global transactions were released as local.

    Then each state still is one of every source by itself, but some hold one part of a global
    transaction and not the other: no state of the sources together (strobe-family, figure 9.3, of
    T-Strobe with global transactions).
    """
    return weakest((level, "weak"))


def without_order(level: str) -> str:
    """What is left of a level where an epoch is no source state: in the end all may still be right."""
    return weakest((level, "convergent"))


def reaches(level: str, asked: str) -> bool:
    """Whether a level is at least the one asked."""
    return LEVELS.index(level) >= LEVELS.index(asked)


def weakest(levels: Sequence[str]) -> str:
    """The lowest of several levels; "none" of none."""
    return min(levels, key=LEVELS.index, default="none")


def level_asked(text: str, every: int = 1) -> str:
    """The name in `LEVELS` of a level as the catalog writes it ("COMPLETE", "STRONG", ...)."""
    plain = str(text).strip().lower()
    if plain.startswith("complete") and (every > 1 or plain not in ("complete",)):
        return "complete-N"
    return plain if plain in LEVELS else "complete"


@dataclass(frozen=True)
class Judged:
    """One line of the verdict: a view, a group, or a relation at its database.

    Attributes:
        kind: "view", "group" or "relation".
        asked, achieved: levels; for a relation or a view at the databases "equal" or "different";
            "unknown" of a view that nothing recorded can judge.
        states: how many numbers were compared.
        epochs: how many table states.
        rows: in the last state compared.
        note: what a reader must know (suspended, released transactions, states that expired).
        by_spark: the numbers at which Spark itself ran the view's text.
    """

    kind: str
    name: str
    asked: str
    achieved: str
    holds: bool
    states: int
    epochs: int
    rows: int
    witness: Witness | Overtaken | None = None
    note: str = ""
    by_spark: tuple[int, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What was proved, for programs (`as_dict`) and people.

    Attributes:
        against: "updates" (recomputed from `_updates`) or "databases".
        lines: views, groups and relations, in the catalog's order.
        problems: what is wrong beside levels: epochs that do not advance, doubled `_id`s,
            multiplicities below zero.
        frontier: group -> the last number compared.
        text: by whom the views' text was read, a sentence.
    """

    against: str
    lines: tuple[Judged, ...]
    problems: tuple[str, ...]
    frontier: Mapping[str, int]
    seed: int
    seconds: float
    text: str = ""

    @property
    def holds(self) -> bool:
        """Every line at the level asked, and no problems."""
        return not self.problems and all(line.holds for line in self.lines)

    def as_dict(self) -> dict[str, Any]:
        """The verdict as JSON values, except for the witness rows' values."""
        return {"holds": self.holds, **asdict(self)}
