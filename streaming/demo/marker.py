"""A marker in the databases: when the views are past it, they are past everything before it.

The marker is a row of `fresco_global` with one part, an ordinary captured insert, so it comes through
the logs behind every transaction that was committed before it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pyarrow.compute as pc

from streaming.errors import FrescoError
from streaming.readers import Warehouse


@dataclass(frozen=True)
class Marker:
    """One marker per database: source name -> id."""

    ids: Mapping[str, str]

    @staticmethod
    def put(dsns: Mapping[str, str]) -> Marker:
        """Insert a marker into each database."""
        ids = {name: f"marker-{uuid.uuid4().hex}" for name in dsns}
        for name, dsn in dsns.items():
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("INSERT INTO fresco_global VALUES (%s, 1)", [ids[name]])
        return Marker(ids)

    def numbers(self, path: Path) -> dict[str, int]:
        """Source name -> transaction number, of the markers that have been recorded."""
        warehouse, found = Warehouse(path), dict[str, int]()
        for name, marker in self.ids.items():
            rows = warehouse.updates(f"{name}.fresco_global")
            mine = rows.filter(pc.equal(rows["id"], marker))["_number"].to_pylist()
            if mine:
                found[name] = mine[0]
        return found

    def recorded(self, path: Path) -> bool:
        """Whether every marker has a number."""
        return self.numbers(path).keys() == self.ids.keys()

    def reflected(self, path: Path) -> bool:
        """Whether every marker is at or below the frontier of every group's newest epoch."""
        warehouse = Warehouse(path)
        try:
            newest = [warehouse.epochs(group)[-1] for group in warehouse.groups()]
        except (FrescoError, IndexError):
            return False
        frontiers = [one.frontier for one in newest if not one.sessions]
        numbers = self.numbers(path)
        upto = max(numbers.values(), default=0)
        return numbers.keys() == self.ids.keys() and bool(frontiers) and upto <= min(frontiers)
