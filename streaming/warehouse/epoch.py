"""The metadata of one warehouse commit of a group: which transactions its rows reflect.

It travels as JSON in the commit's `userMetadata`, the one place that Spark and delta-rs both
write, so that a reader needs only the Delta log. Covered numbers are runs (first, last), both ends
included, ascending, disjoint and never adjacent. The frontier is the largest n such that every
number <= n is covered; rows may overtake (MVC 4), so runs beyond the frontier can be covered too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

Runs = tuple[tuple[int, int], ...]

FORMAT = 1


@dataclass(frozen=True)
class Epoch:
    """One commit of a group's table.

    Attributes:
        epoch: 1, 2, ...; the application version of the commit.
        added: numbers that this commit covers and the one before did not.
        covered: all covered numbers; `frontier` follows from it (-1 when 0 is not covered).
        committed_ms: newest source commit time among the covered ones, milliseconds since 1970.
        written_ms: when the writer wrote it, milliseconds since 1970.
        positions: position reached in each source.
        suspended: view -> its last good number.
        causes: suspended view -> the error that suspended it: code, what, where and todo.
        views: view -> the number at which it joined, of those whose rows the table holds; {} in a
            commit that does not say.
        generation: the service start that wrote it.
        dependencies: earlier epochs that this one builds on.
        released: global transactions released as local from here on.
        complete: every number in `added` is a source state of every view (complete managers only);
            otherwise only the commit as a whole is.
        sessions: its numbers are those of sessions (`isolated`), not the integrator's.
    """

    group: str
    epoch: int
    added: Runs
    covered: Runs
    frontier: int
    committed_ms: int | None = None
    written_ms: int | None = None
    positions: Mapping[str, str] = field(default_factory=dict)
    suspended: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    dependencies: tuple[int, ...] = ()
    released: tuple[str, ...] = ()
    complete: bool = True
    sessions: bool = False
    views: Mapping[str, int] = field(default_factory=dict)
    causes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def shows(self, view: str, since: int) -> bool:
        """Whether the table holds the rows of the view that joined at `since`."""
        return self.views.get(view) == since if self.views else since == 0

    @property
    def is_prefix(self) -> bool:
        """Nothing beyond the frontier is covered."""
        return all(first <= self.frontier for first, _ in self.covered)

    def to_json(self) -> str:
        """Compact JSON for `userMetadata`."""
        return json.dumps({"fresco": FORMAT, **asdict(self)}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | None) -> Epoch | None:
        """The epoch in a commit's `userMetadata`; None when the commit is not Fresco's."""
        try:
            value: Any = json.loads(text or "null")
        except ValueError:
            return None
        if not isinstance(value, dict) or "fresco" not in value:
            return None
        known = {one.name for one in fields(Epoch)}
        given = {name: item for name, item in value.items() if name in known}
        for name in ("added", "covered"):
            given[name] = tuple((int(first), int(last)) for first, last in given[name])
        for name in ("dependencies", "released"):
            given[name] = tuple(given.get(name, ()))
        return Epoch(**given)


def merge_runs(*several: Iterable[tuple[int, int]]) -> Runs:
    """The union of runs in normal form: ascending, disjoint, not adjacent."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(run for runs in several for run in runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
