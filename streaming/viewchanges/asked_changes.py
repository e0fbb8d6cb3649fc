"""What `fresco view` does: checks a change as a start would, and writes it down as a request.

A view is planned over the relations as the catalog has them, which are those that the running service
captures. What can be refused is refused here, before anything is written; the rest is the service's.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from streaming.captured.captured_schema import CapturedRelation
from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.catalog import Catalog, ViewSpec, entry_of, known_catalog, parse_view_file
from streaming.pipeline.choosing import Choice, choose
from streaming.pipeline.configured_groups import block_size
from streaming.pipeline.plan import layouts_now
from streaming.pipeline.session_plan import refuse_isolated, without_isolated
from streaming.pipeline.source_schemas import source_relations
from streaming.pipeline.view_file import read_header
from streaming.runtime.manifests import ManifestStore
from streaming.runtime.snapshots import MergingState
from streaming.viewchanges.announcements import refused_routing
from streaming.viewchanges.requests import Request, Requests
from streaming.warehouse.snapshot import suspended_views

DROPPED = ".dropped"
"""Ending that a dropped view's file gets, so that no start reads it; a number may follow."""


def ask_to_add(config: Config, file: Path) -> Request:
    """Request that the view of a file joins; the file is copied to the pipeline's views.

    Raises:
        FrescoError: whatever is wrong with the file, or with the view (as at a start); VIEW_EXISTS,
            VIEW_CHANGE_PENDING, VIEW_ADD_MODE, VIEW_ADD_GROUP, VIEW_CHANGE_ROUTING, CATALOG_NONE.
    """
    catalog = known_catalog(config.warehouse)
    if not file.is_file():
        raise FrescoError("VIEW_FILE", "there is no such file", where=str(file))
    catalog = with_columns_of_now(config, catalog)
    spec = parse_view_file(file, catalog.known(catalog.generation))
    spec = replace(spec, layout=catalog.generation)
    for view in catalog.views:
        if view.name.lower() == spec.name.lower():
            raise FrescoError(
                "VIEW_EXISTS",
                f"the pipeline has a view {view.name}",
                where=str(file),
                todo=f"use another name, or `fresco view drop {view.name}` first; a suspended view "
                f"comes back by `fresco view resume {view.name}`",
            )
    choices: dict[str, Choice] = {}
    for view in (*catalog.views, spec):
        choices[view.name] = choose(config, view, catalog.relations, choices)
    choice = choices[spec.name]
    _check_mode(spec, choice)
    group = _group_for(config, without_isolated(catalog), choices, spec)
    _refuse_fixed(config.warehouse, catalog, group)
    requests = Requests(config.warehouse)
    coming = {one.view for one in requests.open() if one.view.lower() == spec.name.lower()}
    for name in (spec.name, *coming, *spec.relations):
        requests.refuse_pending("add", name)
    _take_over(file, config.views / f"{spec.name}.sql", config.views)
    return requests.put("add", spec.name, entry_of(spec, group), manager=choice.manager)


def ask_to_drop(warehouse: Path, name: str, views: Path | None = None) -> Request:
    """Request that a view leaves; its file in the folder `views` is set aside.

    Raises:
        FrescoError: VIEW_UNKNOWN, VIEW_HAS_CHILDREN, VIEW_LAST, VIEW_CHANGE_PENDING, VIEW_CHANGE_ROUTING,
            CATALOG_NONE.
    """
    catalog, requests = known_catalog(warehouse), Requests(warehouse)
    coming = [one for one in requests.open() if one.change == "add" and one.view == name]
    if not coming:
        _known(catalog, name)
        _refuse_fixed(warehouse, catalog, catalog.group_of(name))
        children = [view.name for view in catalog.views if name in view.relations]
        children += [
            one.view for one in requests.open() if one.entry and name in one.entry["relations"]
        ]
        if children:
            raise FrescoError(
                "VIEW_HAS_CHILDREN",
                f"other views scan it: {', '.join(children)}",
                where=f"view {name}",
                todo="drop them first",
            )
        leaving = {one.view for one in requests.open() if one.change == "drop"}
        group = catalog.group_of(name)
        if set(catalog.groups[group]) <= leaving | {name}:
            raise FrescoError(
                "VIEW_LAST",
                f"it is the last view of group {group}",
                where=f"view {name}",
                todo="add another one first, or end the pipeline: stop the service, remove the warehouse",
            )
    request = requests.put("drop", name)
    if views is not None:
        set_aside(views, name)
    return request


def ask_to_resume(warehouse: Path, name: str) -> Request:
    """Request that a suspended view joins its group again; where it has asked by itself, that request.

    Raises:
        FrescoError: VIEW_UNKNOWN, VIEW_NOT_SUSPENDED, VIEW_CHANGE_PENDING, VIEW_CHANGE_ROUTING,
            CATALOG_NONE.
    """
    catalog = known_catalog(warehouse)
    _known(catalog, name)
    _refuse_fixed(warehouse, catalog, catalog.group_of(name))
    if name not in suspended_views(warehouse, catalog.group_of(name)):
        raise FrescoError(
            "VIEW_NOT_SUSPENDED",
            "the view is maintained",
            where=f"view {name}",
            todo="see `fresco status`; a view that waits for its source goes on by itself",
        )
    requests = Requests(warehouse)
    own = requests.joining(name)
    return own if own is not None and own.by.get("by_itself") else requests.put("resume", name)


def with_columns_of_now(config: Config, catalog: Catalog) -> Catalog:
    """The catalog with the columns that the databases have now, as far as they can be asked.

    The service comes to the same as soon as it looks (`schemawatch`): what is asked for waits for that.
    """
    found: list[CapturedRelation] = []
    for name, source in config.sources.items():
        if source.secret() is not None and source.capture != "none":
            with suppress(FrescoError):
                found += source_relations(config, name)
    found = [one for one in found if one.relation.name in catalog.layouts]
    layouts = {**catalog.layouts, **layouts_now(config, catalog.layouts, found)}
    relations = {name: one.newest for name, one in layouts.items()}
    return replace(catalog, layouts=layouts, relations=relations)


# Checks -------------------------------------------------------------------------------------------


def _known(catalog: Catalog, name: str) -> None:
    names = [view.name for view in catalog.views]
    if name not in names:
        raise FrescoError(
            "VIEW_UNKNOWN",
            f"the pipeline has no view {name}",
            todo=f"it has {', '.join(names)}",
        )


def _refuse_fixed(warehouse: Path, catalog: Catalog, group: str) -> None:
    """Some groups keep their views; one by blocks of N numbers does because cuts are no blocks' ends."""
    refuse_isolated(catalog, group)
    merge = ManifestStore(warehouse / "_state" / f"merge-{group}" / "manifests").latest()
    if merge is not None and MergingState.loaded(merge.snapshot).routed:
        raise refused_routing()
    views = [view for view in catalog.views if view.name in catalog.groups.get(group, ())]
    size = block_size(
        views, lambda name: [one.name for one in catalog.views if name in one.relations]
    )
    if size is not None:
        raise FrescoError(
            "VIEW_CHANGE_BLOCKS",
            f"views cannot come and go in a group that is complete every {size}",
            where=f"group {group}",
            todo="begin a pipeline in a new warehouse",
        )


def _check_mode(spec: ViewSpec, choice: Choice) -> None:
    what = ""
    if choice.info.sessions:
        what = f"mode {spec.mode} has sessions with its sources"
    elif spec.every is not None and spec.every > 1:
        what = "COMPLETE EVERY n has a group of its own"
    if what:
        raise FrescoError(
            "VIEW_ADD_MODE",
            f"such a view cannot join a running pipeline yet: {what}",
            where=f"view {spec.name}",
            todo="use USING replica or USING compensating, or begin a pipeline with it",
        )


def _group_for(
    config: Config, catalog: Catalog, choices: Mapping[str, Choice], spec: ViewSpec
) -> str:
    """The merge group that the view joins.

    Raises:
        FrescoError: VIEW_ADD_GROUP, it would make a group of its own, or hold two together.
    """
    groups = list(catalog.groups)
    if config.grouping == "single" and len(groups) == 1:
        return groups[0]
    together = [set(span) for span in config.transactions_span]
    bases = set(choices[spec.name].bases)
    bases = bases.union(*(span for span in together if span & bases))
    touched = [
        group
        for group, views in catalog.groups.items()
        if any(bases.intersection(choices[view].bases) for view in views)
    ]
    if len(touched) != 1:
        what = "would hold groups together: " + ", ".join(touched)
        raise FrescoError(
            "VIEW_ADD_GROUP",
            f"the view {what if touched else 'shares no relation with any group'}",
            where=f"view {spec.name}",
            todo="a merge group is made when a pipeline begins: use grouping: single, or another "
            "pipeline for this view",
        )
    return touched[0]


# Files --------------------------------------------------------------------------------------------


def _take_over(file: Path, place: Path, views: Path) -> None:
    """Copy the view's file to the folder, unless it is there already."""
    if _is_among(file, views):
        return
    if place.exists():
        raise FrescoError(
            "VIEW_FILE",
            "another file of that name is among the pipeline's views",
            where=str(place),
            todo="move it away, or add that one",
        )
    shutil.copyfile(file, place)


def take_back(file: Path, views: Path, name: str) -> None:
    """A view was refused: the copy that was made of its file goes.

    A file that was among the pipeline's views before is its owner's: it is set aside, since no start
    would go on with it.
    """
    if _is_among(file, views):
        set_aside(views, name)
    else:
        (views / f"{name}.sql").unlink(missing_ok=True)


def _is_among(file: Path, views: Path) -> bool:
    return file.resolve().parent == views.resolve()


def set_aside(views: Path, name: str) -> None:
    """Give a view's file a name that no start reads; one that was set aside before keeps its own."""
    for path in sorted(views.glob("*.sql")):
        try:
            header = read_header(path.read_text(encoding="utf-8"), origin=str(path))
        except (FrescoError, UnicodeDecodeError, FileNotFoundError):
            continue
        if header.name == name:
            place = _reserved(path)
            try:
                path.replace(place)
            except FileNotFoundError:  # somebody else has just set it aside
                place.unlink()


def _reserved(path: Path) -> Path:
    """A name that this call has made, so that two at once do not take the same one."""
    for number in itertools.count(1):
        place = path.with_name(path.name + DROPPED + (f".{number}" if number > 1 else ""))
        with suppress(FileExistsError):
            place.touch(exist_ok=False)
            return place
    raise AssertionError("numbers do not end")
