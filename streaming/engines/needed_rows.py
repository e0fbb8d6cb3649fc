"""Which rows of a large side a small side can need: SQL conditions that go down to the state's tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """Only rows whose columns have a value found in a table: (column, the table's column) each.

    For a join; for groups and equal rows (`nulls`) rows with a NULL are kept too, as NULL is a
    value like any other there.
    """

    table: str
    pairs: tuple[tuple[int, int], ...]
    nulls: bool = False

    def to(self, pairs: list[tuple[int, int]]) -> Limit | None:
        return Limit(self.table, tuple(pairs), self.nulls) if pairs else None

    def tests(self, prefix: str) -> list[str]:
        """SQL conditions on columns named by the prefix and a position."""
        found = []
        for mine, other in self.pairs:
            test = f"{prefix}{mine} IN (SELECT c{other} FROM {self.table})"
            found.append(f"({test} OR {prefix}{mine} IS NULL)" if self.nulls else test)
        return found
