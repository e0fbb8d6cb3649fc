"""Levels of consistency (strobe-family 4.2, painting-mvc 2.2 and 6.3), from the weakest."""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    """Each includes all before it."""

    NONE = 0
    CONVERGENT = 1
    WEAK = 2
    STRONG = 3
    COMPLETE_N = 4
    COMPLETE = 5

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    Level.NONE: "none",
    Level.CONVERGENT: "convergent",
    Level.WEAK: "weak",
    Level.STRONG: "strong",
    Level.COMPLETE_N: "complete-N",
    Level.COMPLETE: "complete",
}


def level_of(text: str) -> Level:
    """The level of that name.

    Raises:
        KeyError: no such level.
    """
    return {name: level for level, name in _TEXTS.items()}[text]
