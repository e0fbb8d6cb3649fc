"""Which views a pipeline has, and which of their stages should run, as warehouse and requests say.

The view files say what a person wants, the catalog what readers see. Between the two stand the requests
that are under way, so a start compares the files with the catalog as it will be, and maintains what is
there now: it takes up each change where it was, as if nothing had happened.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.pipeline.catalog import PATH as CATALOG
from streaming.pipeline.catalog import (
    Catalog,
    compare_catalog,
    load_catalog,
    save_catalog,
    spec_of,
    tokens_of,
)
from streaming.pipeline.choosing import Choice, choose
from streaming.pipeline.plan import Pipeline
from streaming.pipeline.session_plan import without_isolated
from streaming.pipeline.view_specs import ViewSpec
from streaming.runtime.stage_names import role_of, stage_name
from streaming.viewchanges.announcements import Live, ViewChanges
from streaming.viewchanges.requests import Request, Requests
from streaming.warehouse.snapshot import suspended_views


@dataclass(frozen=True)
class Member:
    """A view's stage that should run.

    Attributes:
        request: by which it joins, or has joined; None for one of the beginning.
    """

    view: str
    group: str
    request: Request | None

    @property
    def stage(self) -> str:
        """Its name."""
        return stage_name(self.view, self.request.number if self.request else 0)


class Members:
    """The views of a pipeline whose catalog is stored.

    Args:
        planned: from the view files.
    """

    def __init__(self, config: Config, planned: Pipeline) -> None:
        self.warehouse = config.warehouse
        self.requests = Requests(config.warehouse)
        self._config, self._planned = config, planned
        self._relations = planned.relations
        self._seen: frozenset[str] = frozenset()
        self._looked = self._seen
        self._read: tuple[bytes, Catalog] | None = None
        """The catalog's file and what it says: it is asked for often, and parsing SQL takes long."""
        self._worked: tuple[object, dict[str, Member]] | None = None
        self._broken = frozenset(planned.broken)
        self._settled = 0
        self.generation = planned.generation
        """Of the relations' columns; a view that is planned over newer ones waits for them."""

    def plan(self) -> Pipeline:
        """The pipeline as it is now, views that are to join included; its groups without those.

        One that is to join and cannot be planned over what is captured now is among the broken ones: its
        own request ends with that, no other.
        """
        catalog = self.catalog()
        views, refused = list(catalog.views), dict[str, FrescoError]()
        choices: dict[str, Choice] = {}
        for view in views:
            choices[view.name] = choose(self._config, view, self._relations, choices)
        for one in self.requests.open():
            if one.entry is None or self._is_early(one):
                continue
            try:
                view = self._spec_of(one, catalog)
                choices[view.name] = choose(self._config, view, self._relations, choices)
            except FrescoError as error:
                if self.requests.told(one.number, "announced") is not None:
                    raise
                refused[one.view] = error
            else:
                views.append(view)
        broken = self._planned.broken
        return replace(
            self._planned,
            views=tuple(views),
            groups=dict(catalog.groups),
            choices={**self._planned.choices, **choices},
            broken={
                view.name: broken[view.name]
                for view in views
                if view.name in broken and self._planned_as(view) is not None
            }
            | refused,
        )

    def catalog(self) -> Catalog:
        """What readers see; views that have a file, over the relations as they are captured now.

        Isolated views are left out: they have no part in the numbers that views join and leave at.
        """
        content = (self.warehouse / CATALOG).read_bytes()
        if self._read is None or self._read[0] != content:
            stored = without_isolated(load_catalog(self.warehouse))
            views = tuple(self._planned_as(one) or one for one in stored.views)
            self._read = content, replace(stored, views=views)
        return self._read[1]

    def _planned_as(self, view: ViewSpec) -> ViewSpec | None:
        """The same view as the start has planned it, over the relations as they are now.

        None of another: one that was dropped since may have come back under its name.
        """
        found = (one for one in self._planned.views if one.name == view.name)
        return next((one for one in found if _meant(one) == _meant(view)), None)

    def spec(self, view: str) -> ViewSpec:
        """A view of the catalog, or of a request: the integrator knows of it until it has left."""
        catalog = self.catalog()
        for one in catalog.views:
            if one.name == view:
                return one
        asked = [one for one in self.requests.all() if one.view == view and one.entry is not None]
        return self._spec_of(asked[-1], catalog)

    def live(self) -> dict[str, Live]:
        """What the integrator maintains."""
        catalog = self.catalog()
        found = {}
        for view in catalog.views:
            joined = catalog.joined.get(view.name)
            since, request = (joined.since, joined.request) if joined else (0, 0)
            found[view.name] = Live(catalog.group_of(view.name), since, request)
        for one in self.requests.open():
            told = self.requests.told(one.number, "announced")
            if told is None:
                continue
            if one.change == "drop":
                found.pop(one.view, None)
            else:
                found[one.view] = Live(self._group(one, catalog), told["cut"], one.number)
        return found

    def wanted(self) -> dict[str, Member]:
        """The view managers' stages by name: of what is maintained, and of what is to join.

        Worked out only when a request, a word of one, or the catalog is new.
        """
        version = self.requests.files(), id(self.catalog()), self.generation
        if self._worked is None or self._worked[0] != version:
            self._worked = version, self._wanted()
        return dict(self._worked[1])

    def _wanted(self) -> dict[str, Member]:
        by_number = {one.number: one for one in self.requests.all()}
        found = {
            one.stage(view): Member(view, one.group, by_number.get(one.request))
            for view, one in self.live().items()
        }
        catalog = self.catalog()
        for one in self.requests.open():
            if self._is_early(one):
                continue
            if one.joins and self.requests.told(one.number, "announced") is None:
                name = stage_name(one.view, one.number)
                found[name] = Member(one.view, self._group(one, catalog), one)
        return found

    @property
    def newest_asked(self) -> int:
        """The newest generation that a view is to join over."""
        return max((_layout(one) for one in self.requests.open()), default=0)

    def _is_early(self, request: Request) -> bool:
        """Whether the transactions are not yet decoded by the columns that the view is planned over."""
        wanted = _layout(request)
        if not wanted or self.generation < wanted:
            return wanted > self.generation
        return wanted > max(self._settled, self.catalog().generation)

    def settle(self, generation: int) -> None:
        """The columns that were asked for are not there any more: those of now are taken."""
        self.generation = self._settled = generation

    def moved(self) -> bool:
        """Whether anything has been asked for, or said of it, since it was last followed."""
        self._looked = self.requests.files() | {f"generation {self.generation}"}
        return self._looked != self._seen

    def followed(self) -> None:
        """What `moved` has told of is done."""
        self._seen = self._looked

    def is_to_join(self, member: Member) -> bool:
        """Whether its place in the group is still to be announced."""
        request = member.request
        return request is not None and self.requests.told(request.number, "announced") is None

    @contextmanager
    def refusing(self, member: Member) -> Iterator[None]:
        """A request whose view cannot even be set up ends with the error; the service goes on."""
        try:
            yield
        except FrescoError as error:
            if member.request is None or not self.is_to_join(member):
                raise
            self.requests.say(member.request.number, "done", error=error.as_dict())

    def refuse_open(self, error: FrescoError) -> None:
        """No request can be made in this pipeline."""
        for one in self.requests.open():
            self.requests.say(one.number, "done", error=error.as_dict())

    def changes(self) -> ViewChanges:
        """For the integrator."""
        groups = self.catalog().groups
        return ViewChanges(self.requests, groups, self.spec, self._asks, self._untold)

    def _untold(self) -> bool:
        """Whether a view that is broken since the start is not known to be suspended by its readers."""
        if self._broken:
            catalog = self.catalog()
            there = {one.name for one in catalog.views}
            groups = {catalog.group_of(view) for view in self._broken & there}
            told = {view for group in groups for view in suspended_views(self.warehouse, group)}
            self._broken = (self._broken & there) - told
        return bool(self._broken)

    def _asks(self, view: str) -> tuple[str, ...]:
        choice = self.plan().choices.get(view)
        return choice.sources if choice is not None else ()

    def tidy(self, wanted: Mapping[str, Member], roles: Collection[str] = ()) -> list[str]:
        """Remove state and staged rows of stages that are no more; returns their names.

        Args:
            roles: of this driver, whose stages are meant; () for all.
        """
        pending = {one.view for one in self.requests.open()}
        removed = []
        for folder in sorted((self.warehouse / "_state").glob("view-*")):
            name = folder.name.replace("view-", "view:", 1)
            if roles and role_of(name) not in roles:
                continue
            if name in wanted or role_of(name).removeprefix("view:") in pending:
                continue
            for place in (folder, self.warehouse / "_staging" / folder.name):
                shutil.rmtree(place, ignore_errors=True)
            removed.append(name)
        return removed

    def _group(self, request: Request, catalog: Catalog) -> str:
        return str(request.entry["group"]) if request.entry else catalog.group_of(request.view)

    def _spec_of(self, request: Request, catalog: Catalog) -> ViewSpec:
        assert request.entry is not None
        generation = request.entry.get("layout", 0)
        known = {
            **self._relations,
            **{name: one.as_of(generation) for name, one in self._planned.layouts.items()},
            **{view.name: view.relation for view in catalog.views},
        }
        return spec_of(request.entry, known, f"request {request.number}")


def _layout(request: Request) -> int:
    return int(request.entry.get("layout", 0)) if request.entry is not None else 0


def _meant(view: ViewSpec) -> tuple[object, ...]:
    """What a view's file says, over which columns."""
    return tokens_of(view.sql), view.level, view.every, view.mode, view.refresh, view.layout


def settle_catalog(warehouse: Path, planned: Pipeline) -> None:
    """Store the catalog at the first start; at every other compare what is asked for with it.

    What is under way counts as done: the files of a view that is being added are there, those of one
    that is being dropped are gone.

    Raises:
        FrescoError: CATALOG_VIEWS_CHANGED, CATALOG_DAMAGED.
    """
    asked = Catalog(planned.every_view, planned.every_group, planned.every_relation)
    try:
        expected = load_catalog(warehouse)
    except FileNotFoundError:
        save_catalog(warehouse, asked.views, asked.groups, asked.relations, planned.layouts)
        return
    expected = replace(expected, layouts={**expected.layouts, **planned.layouts})
    requests = Requests(warehouse)
    for one in requests.open():
        if one.change == "drop":
            expected = expected.without_view(one.view)
        elif one.entry is not None:
            expected = expected.with_entry(one.entry, one.number)
    if requests.all():
        asked = replace(asked, groups=_as_grown(asked.groups, expected))
    compare_catalog(expected, asked, where=str(warehouse / CATALOG))


def _as_grown(
    planned: Mapping[str, Sequence[str]], expected: Catalog
) -> Mapping[str, tuple[str, ...]]:
    """The planned groups under the names that they have.

    Views come and go, groups stay: one that was held together by a view that is gone still moves
    together, and its name is that of a view it began with.
    """
    of = {view: group for group, views in expected.groups.items() for view in views}
    grown: dict[str, list[str]] = {}
    for group, views in planned.items():
        held = {of.get(view, group) for view in views}
        grown.setdefault(held.pop() if len(held) == 1 else group, []).extend(views)
    return {group: tuple(views) for group, views in grown.items()}
