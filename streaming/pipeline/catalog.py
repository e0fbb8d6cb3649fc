"""The stored catalog: what a pipeline maintains, kept in its warehouse.

`<warehouse>/_catalog/views.json` is written at the first start, by put-if-absent; a later start whose
files differ from it is refused, because adding or dropping a view of a running pipeline is a step of
its own (`fresco view add`, `fresco view drop`) that has to reach a cut of the numbers. The merge stage
replaces it when such a step's commit is durable.

    {"views": [{"name", "group", "level", "every", "mode", "refresh", "sql",
                "schema": [{"name", "type"}], "key": [position] or null, "relations": [name],
                "since": n, "request": k, "column": name, "layout": g}],
     "relations": [{"name", "schema": [{"name", "type", ...}], "key": [position]}],
     "dropped": {name: n}}

`since`, `request` and `column` stand only with views that joined while the pipeline ran (`Joined`).
A relation's columns are those it has and those it had (`captured.layout`); `layout` is the generation as
of which a view is planned, where it is not the first.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from streaming.algebra.tree import Relation
from streaming.captured.layout import Layout, layout_of
from streaming.captured.layout import entry_of as layout_entry
from streaming.errors import FrescoError
from streaming.pipeline.view_specs import ViewSpec, load_views, parse_view, parse_view_file
from streaming.scalars.expression import Column, Schema
from streaming.sql.lexer import LexicalError, lexemes
from streaming.sql.parse import parse

__all__ = [
    "Catalog",
    "Joined",
    "ViewSpec",
    "catalog_held",
    "compare_catalog",
    "entry_of",
    "load_catalog",
    "load_views",
    "parse_view",
    "parse_view_file",
    "replace_catalog",
    "save_catalog",
    "spec_of",
    "tokens_of",
]
PATH = "_catalog/views.json"


@dataclass(frozen=True)
class Joined:
    """How a view came to a running pipeline.

    Attributes:
        since: the number at which it joined its group.
        request: the request that brought it, by which its stage is named.
        column: its column in the group's table, where it is not its name (`warehouse.delta_table`).
    """

    since: int
    request: int
    column: str = ""


@dataclass(frozen=True)
class Catalog:
    """What is maintained: the views, merge group -> view names, relations by name.

    Attributes:
        joined: of the views that were not there from the beginning.
        dropped: view -> the number after which it left, of those that have; for whoever asks for one.
        layouts: relation -> all columns that it has had; of the others, those that `relations` says.
    """

    views: tuple[ViewSpec, ...]
    groups: Mapping[str, tuple[str, ...]]
    relations: Mapping[str, Relation]
    joined: Mapping[str, Joined] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)

    @property
    def generation(self) -> int:
        """Of the newest layout."""
        return max((one.generation for one in self.layouts.values()), default=0)

    def known(self, generation: int) -> dict[str, Relation]:
        """What a view may scan that is planned as of a generation: relations, and views as such."""
        return {
            **self.relations,
            **{name: one.as_of(generation) for name, one in self.layouts.items()},
            **{view.name: view.relation for view in self.views},
        }

    def group_of(self, view: str) -> str:
        """The merge group of a view."""
        return next(group for group, views in self.groups.items() if view in views)

    def with_view(self, view: ViewSpec, group: str, joined: Joined) -> Catalog:
        """With a view that joins, for the first time or again: then at its place, parents first."""
        joins = {**self.joined, view.name: joined}
        if any(one.name == view.name for one in self.views):
            views = tuple(view if one.name == view.name else one for one in self.views)
            return replace(self, views=views, joined=joins)
        groups = {**self.groups, group: (*self.groups.get(group, ()), view.name)}
        dropped = {name: at for name, at in self.dropped.items() if name != view.name}
        views = (*self.views, view)
        return replace(self, views=views, groups=groups, joined=joins, dropped=dropped)

    def with_entry(self, entry: Mapping[str, Any], request: int) -> Catalog:
        """With a view that a request adds, which has not joined yet."""
        spec = spec_of(entry, self.known(entry.get("layout", 0)), f"request {request}")
        return self.with_view(spec, entry["group"], Joined(0, request))

    def without_view(self, name: str, after: int | None = None) -> Catalog:
        """Without a view, whether it was there or not; its group stays.

        Args:
            after: the number after which it left, where that is known.
        """
        return replace(
            self,
            views=tuple(view for view in self.views if view.name != name),
            groups={group: tuple(v for v in vs if v != name) for group, vs in self.groups.items()},
            joined={view: one for view, one in self.joined.items() if view != name},
            dropped=self.dropped if after is None else {**self.dropped, name: after},
        )


def save_catalog(
    warehouse: Path | str,
    views: Sequence[ViewSpec],
    groups: Mapping[str, Iterable[str]],
    relations: Mapping[str, Relation],
    layouts: Mapping[str, Layout] | None = None,
) -> None:
    """Store the catalog at the first start (put-if-absent), compare with it at every other.

    Raises:
        FrescoError: CATALOG_VIEWS_CHANGED naming the views that differ, CATALOG_DAMAGED.
    """
    held = {group: tuple(names) for group, names in groups.items()}
    catalog = Catalog(tuple(views), held, relations, layouts=layouts or {})
    path = Path(warehouse) / PATH
    if not path.exists() and _put_if_absent(path, _encoded(catalog)):
        return
    compare_catalog(load_catalog(warehouse), catalog, where=str(path))


def replace_catalog(warehouse: Path | str, catalog: Catalog) -> None:
    """Store what `view add` or `view drop` has made of the catalog, in one step.

    The caller holds the pipeline (its generation), so no one else writes.
    """
    path = Path(warehouse) / PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(_encoded(catalog))
    os.replace(draft, path)


@contextmanager
def catalog_held(warehouse: Path | str) -> Iterator[None]:
    """Nobody else changes the catalog meanwhile: groups have merges of their own, and one catalog.

    A crash lets go of it.
    """
    path = Path(warehouse) / PATH
    with open(path.with_name(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def load_catalog(warehouse: Path | str) -> Catalog:
    """The stored catalog, its views parsed anew from their SQL.

    Raises:
        FileNotFoundError: none is stored.
        FrescoError: CATALOG_DAMAGED.
    """
    path = Path(warehouse) / PATH
    try:
        value = json.loads(path.read_bytes())
        layouts = {entry["name"]: layout_of(entry) for entry in value["relations"]}
        relations = {name: layout.newest for name, layout in layouts.items()}
        known, views = dict(relations), []
        seen: dict[int, dict[str, Relation]] = {}
        groups: dict[str, list[str]] = {}
        joined = {}
        for entry in value["views"]:
            generation = entry.get("layout", 0)
            if generation not in seen:
                seen[generation] = {n: one.as_of(generation) for n, one in layouts.items()}
            origin = f"{path} ({entry['name']})"
            spec = spec_of(entry, {**known, **seen[generation]}, origin)
            views.append(spec)
            known[spec.name] = spec.relation
            groups.setdefault(entry["group"], []).append(spec.name)
            if "request" in entry:
                joined[spec.name] = Joined(entry["since"], entry["request"], entry["column"])
    except (ValueError, KeyError, TypeError) as error:
        raise FrescoError(
            "CATALOG_DAMAGED",
            f"the stored catalog cannot be read: {error!r}",
            where=str(path),
            todo="restore the file from a backup of the warehouse",
        ) from error
    held = {group: tuple(names) for group, names in groups.items()}
    dropped = dict(value.get("dropped", {}))
    return Catalog(tuple(views), held, relations, joined, dropped, layouts)


def known_catalog(warehouse: Path) -> Catalog:
    """The catalog. Raises FrescoError CATALOG_NONE when nothing has been started."""
    try:
        return load_catalog(warehouse)
    except FileNotFoundError:
        raise FrescoError(
            "CATALOG_NONE",
            "no pipeline has been started here",
            where=str(warehouse),
            todo="put view files into the pipeline's views folder and start it: `fresco run`",
        ) from None


def spec_of(entry: Mapping[str, Any], known: Mapping[str, Relation], origin: str = "") -> ViewSpec:
    """The view of a catalog's entry, its SQL parsed anew.

    Args:
        known: what it may scan: relations, and views as relations.

    Raises:
        FrescoError: SQL_*.
        KeyError, TypeError: not an entry.
    """
    return ViewSpec(
        **{k: entry[k] for k in ("name", "level", "every", "mode", "refresh", "sql")},
        tree=parse(entry["sql"], known, origin=origin),
        schema=_schema(entry["schema"]),
        relations=tuple(entry["relations"]),
        key=None if entry["key"] is None else tuple(entry["key"]),
        layout=entry.get("layout", 0),
    )


def compare_catalog(stored: Catalog, asked: Catalog, *, where: str = "") -> None:
    """Refuse a start whose views are not the stored ones.

    Raises:
        FrescoError: CATALOG_VIEWS_CHANGED.
    """
    before, after = _fingerprints(stored), _fingerprints(asked)
    differences = [f"{name} is new" for name in after if name not in before]
    differences += [f"{name} is gone" for name in before if name not in after]
    for name in after:
        if name in before and after[name] != before[name]:
            changed = [what for what in after[name] if after[name][what] != before[name][what]]
            differences.append(f"{name} differs in {', '.join(changed)}")
    if differences:
        raise FrescoError(
            "CATALOG_VIEWS_CHANGED",
            f"the view files are not what this pipeline maintains: {'; '.join(differences)}",
            where=where,
            todo="use `fresco view add FILE` and `fresco view drop NAME` (to change a view, drop "
            "and add it), or put the files back",
        )


def tokens_of(sql: str) -> tuple[tuple[str, str], ...]:
    """What makes SQL the same SQL: (kind, text) of each word, since 'a' is a text and a is a column.

    A text that no view may have is the same as itself only.
    """
    try:
        words = lexemes(sql.strip().rstrip(";"))
    except LexicalError:
        return (("text", sql.strip()),)
    return tuple((word.kind, word.text) for word in words)


def _fingerprints(catalog: Catalog) -> dict[str, dict[str, object]]:
    """What makes a view the same view; layout and comments of its SQL do not."""
    group_of = {name: group for group, names in catalog.groups.items() for name in names}
    return {
        view.name: {
            "its SQL": tokens_of(view.sql),
            "its consistency": (view.level, view.every),
            "its mode": (view.mode, view.refresh),
            "its columns": view.schema,
            "its merge group": group_of.get(view.name),
        }
        for view in catalog.views
    }


def _encoded(catalog: Catalog) -> bytes:
    group_of = {name: group for group, names in catalog.groups.items() for name in names}
    views = [
        entry_of(view, group_of[view.name], catalog.joined.get(view.name)) for view in catalog.views
    ]
    relations = [
        layout_entry(catalog.layouts.get(name, Layout.of(relation)))
        for name, relation in catalog.relations.items()
    ]
    value = {"views": views, "relations": relations, "dropped": dict(catalog.dropped)}
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def entry_of(view: ViewSpec, group: str, joined: Joined | None = None) -> dict[str, Any]:
    """A view's entry, JSON-able."""
    entry = {
        "name": view.name,
        "group": group,
        "level": view.level,
        "every": view.every,
        "mode": view.mode,
        "refresh": view.refresh,
        "sql": view.sql,
        "schema": _columns(view.schema),
        "key": None if view.key is None else list(view.key),
        "relations": list(view.relations),
    }
    if view.layout:
        entry["layout"] = view.layout
    return entry if joined is None else {**entry, **asdict(joined)}


def _columns(schema: Schema) -> list[dict[str, str]]:
    return [{"name": column.name, "type": column.type} for column in schema]


def _schema(columns: Iterable[Mapping[str, str]]) -> Schema:
    return tuple(Column(column["name"], column["type"]) for column in columns)


def _put_if_absent(path: Path, value: bytes) -> bool:
    """Whole or not at all: a draft is linked to the name, which fails when the name is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(value)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True
