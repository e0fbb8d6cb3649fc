"""Views that sessions keep, and sources without a log: what is planned for them, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streaming.captured.captured_schema import captured
from streaming.configuration.pipeline_config import Config, parse_config
from streaming.errors import FrescoError
from streaming.isolated.delta_tables import LONGEST, fitting, home_of
from streaming.pipeline.catalog import parse_view
from streaming.pipeline.choosing import Choice, choose
from streaming.pipeline.session_plan import plan_sessions
from streaming.pipeline.view_specs import ViewSpec
from streaming.viewmanagers.levels import Level
from tests.golden.bank_relations import BANK

STRONG = "WITH STRONG CONSISTENCY USING isolated"
ACCOUNTS = "SELECT a.id, a.owner FROM north.account a"
JOINED = "SELECT e.id, a.owner FROM north.account a JOIN south.entry e ON e.account = a.id"
DSN = "postgresql://reader@localhost/bank"


def config(more: dict[str, Any] | None = None, tagged: bool = False, **top: Any) -> Config:
    """Two sources; `more` is added to north."""
    names = ["account", "entry", *(["fresco_global"] if tagged else [])]
    tables = {name: f"public.{name}" for name in names}
    north = {"tables": tables, "connection": DSN, **(more or {})}
    south = {"tables": tables, "connection": DSN}
    raw = {"pipeline": "p", "warehouse": "w", "views": "v", **top}
    return parse_config({**raw, "sources": {"north": north, "south": south}}, folder=Path("/base"))


def view(name: str, how: str, select: str = ACCOUNTS) -> ViewSpec:
    return parse_view(f"CREATE MATERIALIZED VIEW {name} {how} AS {select}", BANK)


def refused(one: ViewSpec, settings: Config, chosen: dict[str, Choice] | None = None) -> str:
    with pytest.raises(FrescoError) as raised:
        choose(settings, one, BANK, chosen)
    assert raised.value.todo
    return raised.value.code


def test_an_isolated_view_needs_no_capture() -> None:
    one = view("v", STRONG)
    choice = choose(config({"capture": "none"}), one, BANK)
    assert (choice.mode, choice.level, choice.sources) == ("isolated", Level.STRONG, ("north",))
    assert refused(view("v", "USING replica"), config({"capture": "none"})) == (
        "VIEW_SOURCE_UNCAPTURED"
    )
    assert choose(
        config({"capture": "none"}), view("v", "", JOINED.replace("north", "south")), BANK
    )


@pytest.mark.parametrize(
    ("one", "settings", "code"),
    [
        (view("v", STRONG, JOINED), config(tagged=True), "MODE_LEVEL"),
        (view("v", STRONG, "SELECT count(*) AS n FROM north.account"), config(), "VIEW_NOT_PSJ"),
        (view("v", STRONG), config({"connection": None}), "VIEW_SOURCE_UNASKABLE"),
        (view("v", STRONG), config({"database": "mariadb"}), "VIEW_SOURCE_UNASKABLE"),
        (
            view("v", "USING compensating"),
            config({"snapshots": {"every_seconds": 1}}),
            "VIEW_SOURCE_UNASKABLE",
        ),
    ],
)
def test_what_cannot_be_is_refused(one: ViewSpec, settings: Config, code: str) -> None:
    assert refused(one, settings) == code


def test_no_view_stands_on_an_isolated_one() -> None:
    parent = view("parent", STRONG)
    known = {**BANK, "parent": parent.relation}
    child = parse_view("CREATE MATERIALIZED VIEW child AS SELECT id FROM parent", known)
    chosen = {"parent": choose(config(), parent, BANK)}
    assert refused(child, config(), chosen) in ("VIEW_PARENT", "VIEW_PARENT_LEVEL")


def test_isolated_views_form_groups_of_their_own() -> None:
    relations = [
        captured(name, name, [(c.name, "text") for c in BANK[name].schema], collection=name)
        for name in ("north.account", "north.entry", "south.entry")
    ]
    views = [
        view("a", STRONG),
        view("b", STRONG, JOINED),
        view("c", STRONG, "SELECT id FROM north.entry"),
    ]
    plan = plan_sessions(config(), views, relations)
    assert plan.groups == {"p_isolated": ("a", "b", "c")}
    assert {name: len(found) for name, found in plan.relations.items()} == {"north": 2, "south": 1}
    plan = plan_sessions(config(grouping="disjoint"), views, relations)
    assert plan.groups == {"p_isolated_a": ("a", "b"), "p_isolated_c": ("c",)}
    used = plan.relations_of("p_isolated_c")
    assert [one.relation.name for one in used["north"]] == ["north.entry"]
    assert plan_sessions(config(), [], relations).groups == {}


def test_names_that_postgresql_would_cut_stay_apart() -> None:
    long = "x" * 80
    names = {fitting(long), fitting(long + "y"), fitting(long, "_rows"), fitting("short")}
    assert len(names) == 4 and all(len(name.encode()) <= LONGEST for name in names)
    assert fitting("ä" * 40).encode().decode(), "no letter is cut in two"
    assert home_of("bank") == "fresco_bank"


def test_snapshots_come_from_a_folder_or_by_a_connection() -> None:
    source = config({"snapshots": {"folder": "days"}, "connection": None}).sources["north"]
    assert source.snapshots is not None and source.snapshots.folder == Path("/base/days")
    assert (source.decimals, source.full_rows) == ("string", True), "as they are published"
    with pytest.raises(FrescoError, match="a folder, or a connection"):
        config({"snapshots": {}, "connection": None})
    with pytest.raises(FrescoError, match="CONFIG_KEY"):
        config({"snapshots": {"foldr": "days"}})
