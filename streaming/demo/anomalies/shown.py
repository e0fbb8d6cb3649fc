"""What a view shows over time, and whether the sources were ever in such a state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streaming.algebra.bag import Bag

Shown = tuple[Bag, ...]
"""The views of a group side by side, mostly one."""


def bag(*rows: tuple[Any, ...]) -> Bag:
    """Rows, each as often as it is named."""
    found: dict[Any, int] = {}
    for row in rows:
        found[row] = found.get(row, 0) + 1
    return found


def row_text(row: Iterable[Any]) -> str:
    """[1,2]."""
    return f"[{','.join(map(str, row))}]"


def bag_text(rows: Mapping[Any, int]) -> str:
    """{[1,2], 2[3,4]}: rows with how often they stand, where that is not once."""
    found = [f"{'' if n == 1 else n}{row_text(row)}" for row, n in sorted(rows.items())]
    return f"{{{', '.join(found)}}}"


def shown_text(shown: Shown, views: Sequence[str]) -> str:
    """{...} of one view, v={...} w={...} of several."""
    if len(shown) == 1:
        return bag_text(shown[0])
    return " ".join(f"{view}={bag_text(rows)}" for view, rows in zip(views, shown, strict=True))


@dataclass(frozen=True)
class Side:
    """One way to maintain the views under the history.

    Attributes:
        name: of the manager or the merge.
        states: what was visible, one after the other, repeats left out.
        expected: the same as the paper has it.
    """

    name: str
    states: tuple[Shown, ...]
    expected: tuple[Shown, ...]

    @property
    def as_expected(self) -> bool:
        return self.states == self.expected


@dataclass(frozen=True)
class StoryLine:
    """One line of the story, as text.

    Attributes:
        naive, right: what each side shows, one after the other where there are several states.
        sources: their state.
    """

    what: str
    naive: tuple[str, ...]
    right: tuple[str, ...]
    sources: str


@dataclass(frozen=True)
class Anomaly:
    """What there is to see.

    Attributes:
        key: its name.
        paper: where it is from.
        says: what goes wrong, in a sentence.
    """

    key: str
    title: str
    paper: str
    says: str


@dataclass(frozen=True)
class AnomalyShown:
    """An anomaly as it happened.

    Attributes:
        views: their names, in the order of `Shown`.
        history: one event a line, in the short notation.
        steps: the story.
        sources: every state that the sources' transactions, as wholes, may have been in, in some order
            that they can have had; the last is the one at the end.
    """

    anomaly: Anomaly
    seed: int
    views: tuple[str, ...]
    history: tuple[str, ...]
    steps: tuple[StoryLine, ...]
    naive: Side
    right: Side
    sources: tuple[Shown, ...]

    @property
    def naive_is_wrong(self) -> bool:
        """It showed what the paper says, and that is no state of the sources, or not the last one."""
        strange = [one for one in self.naive.states if one not in self.sources]
        ends_wrong = self.naive.states[-1] != self.sources[-1]
        return self.naive.as_expected and (bool(strange) or ends_wrong)

    @property
    def right_is_right(self) -> bool:
        """It showed what the paper says: states of the sources only, the last one at the end."""
        good = all(one in self.sources for one in self.right.states)
        return self.right.as_expected and good and self.right.states[-1] == self.sources[-1]

    @property
    def holds(self) -> bool:
        return self.naive_is_wrong and self.right_is_right

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        sides = {"naive": self.naive, "right": self.right}
        return {
            **asdict(self.anomaly),
            "seed": self.seed,
            "holds": self.holds,
            "history": list(self.history),
            "steps": [asdict(step) for step in self.steps],
            "sources": [shown_text(one, self.views) for one in self.sources],
            **{
                word: {
                    "manager": side.name,
                    "states": [shown_text(one, self.views) for one in side.states],
                    "expected": [shown_text(one, self.views) for one in side.expected],
                }
                for word, side in sides.items()
            },
            "naive_is_wrong": self.naive_is_wrong,
            "right_is_right": self.right_is_right,
        }


def changes_only(states: Iterable[Shown]) -> tuple[Shown, ...]:
    """The states with what follows an equal one left out."""
    found: list[Shown] = []
    for one in states:
        if not found or found[-1] != one:
            found.append(one)
    return tuple(found)
