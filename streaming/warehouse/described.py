"""What a warehouse says of itself: `<warehouse>/_catalog/views.json`, written by
`streaming.pipeline.catalog`.

Readers open a warehouse by its path alone, so they read the file and import nothing of the
pipeline.

    {"views": [{"name", "group", "schema": [{"name", "type"}], "key": [0], "sql", ...}],
     "relations": [{"name", "schema": [...], "key": [...]}], "dropped": {name: number}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming.algebra.tree import Relation
from streaming.captured.layout import Layout, layout_of
from streaming.errors import FrescoError
from streaming.scalars.expression import Column, Schema
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import ViewTable

PATH = "_catalog/views.json"


@dataclass(frozen=True)
class Described:
    """A warehouse's views (with their groups and whole catalog entries) and relations, by name.

    Attributes:
        layouts: relation -> its columns, those that it had once among them.
        dropped: view -> the number after which it left, of those that have.
    """

    views: Mapping[str, ViewTable]
    groups: Mapping[str, str]
    entries: Mapping[str, Mapping[str, Any]]
    layouts: Mapping[str, Layout]
    dropped: Mapping[str, int]

    @property
    def relations(self) -> dict[str, Relation]:
        """Every relation as a view would be planned over it now."""
        return {name: layout.newest for name, layout in self.layouts.items()}


def read_catalog(warehouse: TableFolder) -> Described:
    """The catalog as it is now.

    Raises FrescoError READ_NO_WAREHOUSE when there is none, READ_CATALOG when it cannot be read.
    """
    path = warehouse.path(PATH)
    try:
        with warehouse.filesystem.open_input_stream(path) as stream:
            return described(json.loads(stream.read()))
    except FileNotFoundError as error:
        raise FrescoError(
            "READ_NO_WAREHOUSE",
            "there is no catalog of views",
            where=path,
            todo="give the folder that the pipeline's `warehouse` setting names",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise FrescoError(
            "READ_CATALOG",
            f"the catalog cannot be read: {error!r}",
            where=path,
            todo="restore the file from a copy of the warehouse, or read with the version of Fresco"
            " that wrote it; the tables beside it are as they were",
        ) from error


def layouts_of(warehouse: Path) -> Mapping[str, Layout]:
    """All columns that relations have had, by relation; none before the first start."""
    place = TableFolder.of(str(warehouse))
    return read_catalog(place).layouts if (warehouse / PATH).exists() else {}


def described(value: Mapping[str, Any]) -> Described:
    """The catalog from its JSON value. Raises KeyError or TypeError for another format."""
    entries = {entry["name"]: entry for entry in _listed(value["views"])}
    views = {
        name: ViewTable(
            name,
            _schema(entry["schema"]),
            tuple(entry.get("key") or ()),
            entry.get("since", 0),
            entry.get("column", ""),
        )
        for name, entry in entries.items()
    }
    groups = {name: entry["group"] for name, entry in entries.items()}
    layouts = {
        entry["name"]: layout_of(
            {
                "name": entry["name"],
                "schema": _columns(entry["schema"]),
                "key": entry.get("key") or (),
            }
        )
        for entry in _listed(value.get("relations", ()))
    }
    return Described(views, groups, entries, layouts, dict(value.get("dropped", {})))


def _listed(value: Any) -> list[Mapping[str, Any]]:
    """A list of entries, or a mapping from name to entry."""
    if isinstance(value, Mapping):
        return [{"name": name, **entry} for name, entry in value.items()]
    return list(value)


def _columns(columns: Any) -> list[Mapping[str, Any]]:
    return [
        one if isinstance(one, Mapping) else dict(zip(("name", "type"), one, strict=True))
        for one in columns
    ]


def _schema(columns: Any) -> Schema:
    return tuple(Column(one["name"], one["type"]) for one in _columns(columns))
