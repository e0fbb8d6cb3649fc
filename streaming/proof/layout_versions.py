"""Relations as views were planned over them, whose tables have been altered since (`captured.layout`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streaming.algebra.scans import columns_read
from streaming.algebra.tree import Relation
from streaming.captured.layout import Layout, unrecorded
from streaming.scalars.expression import Column
from streaming.sql.parse import parse


class LayoutVersions:
    """The generations that views are over, where these do not see the columns that are there now.

    Args:
        specs: the views' entries in the catalog.
    """

    def __init__(
        self, layouts: Mapping[str, Layout], specs: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._layouts = layouts
        self._of: dict[str, int] = {}
        for name, spec in specs.items():
            generation = int(spec.get("layout", 0))
            over = [layouts[one] for one in spec["relations"] if one in layouts]
            if any(one.as_of(generation).schema != one.newest.schema for one in over):
                self._of[name] = generation

    def generation(self, view: str) -> int | None:
        """Of a view that is over older columns; None of another."""
        return self._of.get(view)

    def of(self, relation: Relation) -> dict[int, Relation]:
        """The relation in each of these generations."""
        layout = self._layouts.get(relation.name)
        wanted = sorted(set(self._of.values())) if layout is not None else ()
        return {one: layout.as_of(one) for one in wanted if layout is not None}

    def untold(self, relation: str, emptied: Sequence[int]) -> frozenset[str]:
        """Names of the columns that are recorded from a later number than the relation's rows.

        Args:
            emptied: the numbers under which it was emptied.
        """
        layout = self._layouts.get(relation)
        begin = max(emptied, default=0)
        columns = layout.columns if layout is not None else ()
        return frozenset(one.name for one in columns if one.until is None and one.first > begin)

    def unknown(
        self,
        specs: Mapping[str, Mapping[str, Any]],
        emptied: Mapping[str, Sequence[int]],
        lost: Mapping[str, Mapping[int, int]],
    ) -> dict[str, str]:
        """View -> which column it reads that nothing recorded tells, so that it cannot be recomputed.

        Args:
            specs: the views' entries, parents first.
            emptied: relation -> the numbers under which it was emptied.
            lost: relation -> the positions that are recorded no more, and from which number on.
        """
        changed = any(self.untold(name, emptied.get(name, ())) for name in self._layouts)
        if not (changed or any(lost.values())):
            return {}
        found: dict[str, str] = {}
        last = {name: max(numbers, default=0) for name, numbers in emptied.items()}
        for name, spec in specs.items():
            over = next((found[one] for one in spec["relations"] if one in found), None)
            said = over or self._unknown(spec, specs, last, lost)
            if said is not None:
                found[name] = said
        return found

    def _unknown(
        self,
        spec: Mapping[str, Any],
        specs: Mapping[str, Mapping[str, Any]],
        last: Mapping[str, int],
        lost: Mapping[str, Mapping[int, int]],
    ) -> str | None:
        since, reads = int(spec.get("since", 0)), self._reads(spec, specs)
        for relation, at in unrecorded(self._layouts, reads, last):
            column = self._layouts[relation].columns[at]
            return f"column {column.name} of {relation} is recorded from {column.first} on"
        for relation, positions in reads.items():
            for at in sorted(positions & lost.get(relation, {}).keys()):
                if since > lost[relation][at]:  # it has come back since, with what the source held
                    column = self._layouts[relation].columns[at]
                    return (
                        f"column {column.name} of {relation} is recorded up to {lost[relation][at]}"
                    )
        return None

    def returned(
        self,
        specs: Mapping[str, Mapping[str, Any]],
        lost: Mapping[str, Mapping[int, int]],
    ) -> dict[str, frozenset[int]]:
        """Relation -> lost positions of views that have come back since, with what the source held."""
        found: dict[str, frozenset[int]] = {}
        if not any(lost.values()):
            return found
        for spec in specs.values():
            if not (since := int(spec.get("since", 0))):
                continue
            for relation, positions in self._reads(spec, specs).items():
                numbers = lost.get(relation, {})
                again = frozenset(at for at in positions & numbers.keys() if since > numbers[at])
                found[relation] = found.get(relation, frozenset()) | again
        return found

    def _reads(
        self, spec: Mapping[str, Any], specs: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, frozenset[int]]:
        """The columns that a view reads of each relation or view, by position."""
        generation = int(spec.get("layout", 0))
        known = {one: layout.as_of(generation) for one, layout in self._layouts.items()}
        for one in specs.values():
            columns = tuple(Column(each["name"], each["type"]) for each in one["schema"])
            known[str(one["name"])] = Relation(str(one["name"]), columns)
        return columns_read(parse(spec["sql"], known))

    def relations(self, generation: int | None) -> dict[str, Relation]:
        """All relations in a generation; none for the newest."""
        if generation is None:
            return {}
        return {name: one.as_of(generation) for name, one in self._layouts.items()}
