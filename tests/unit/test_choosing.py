"""Which manager a view gets, and what is refused before anything starts (strobe-family, figure 9.3)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming.configuration.pipeline_config import Config, parse_config
from streaming.errors import FrescoError
from streaming.pipeline.catalog import parse_view
from streaming.pipeline.choosing import Choice, choose
from streaming.simulator.case import Case
from streaming.simulator.judging import counter_example
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.modes import MODES, SCENES, families, member
from tests.golden.bank_relations import BANK

ONE = (
    "SELECT e.id, a.id AS aid, a.owner FROM north.account a JOIN north.entry e ON e.account = a.id"
)
TWO = "SELECT e.id, a.id AS aid FROM north.account a JOIN south.entry e ON e.account = a.id"


def config(*, connection: bool = True, tagged: bool = False, **more: Any) -> Config:
    tables = ["account", "entry", *(["fresco_global"] if tagged else [])]
    source: dict[str, Any] = {"tables": {name: f"public.{name}" for name in tables}}
    if connection:
        source["connection"] = "postgresql://reader@localhost/bank"
    source["transactions"] = more.pop("transactions", "metadata")
    raw = {"pipeline": "p", "warehouse": "w", "views": "v", **more}
    return parse_config({**raw, "sources": {"north": source, "south": source}}, folder=Path("/"))


def chosen(clauses: str, select: str = ONE, **how: Any) -> Choice:
    view = parse_view(f"CREATE MATERIALIZED VIEW v {clauses} AS {select}", BANK)
    return choose(config(**how), view, BANK)


def refusal(clauses: str, select: str = ONE, **how: Any) -> FrescoError:
    with pytest.raises(FrescoError) as raised:
        chosen(clauses, select, **how)
    return raised.value


@pytest.mark.parametrize(
    ("clauses", "select", "tagged", "mode", "scene", "sends"),
    [
        ("", ONE, False, "replica", "one-local", "complete"),
        ("USING compensating", ONE, False, "compensating", "one-local", "strong"),
        ("USING compensating", TWO, True, "compensating", "global", "strong"),
        ("USING sweep", TWO, False, "sweep", "local", "strong"),
        ("WITH STRONG CONSISTENCY USING strobe", TWO, False, "t_strobe", "local", "strong"),
        ("WITH STRONG CONSISTENCY USING strobe", TWO, True, "g_strobe", "global", "strong"),
        ("USING c_strobe", TWO, False, "c_tstrobe", "local", "strong"),
        ("WITH COMPLETE EVERY 5 USING c_strobe", TWO, False, "c_tstrobe_k", "local", "strong"),
        ("WITH STRONG CONSISTENCY USING eca", ONE, False, "eca", "one-local", "strong"),
    ],
)  # fmt: skip
def test_the_member_of_a_family_follows_from_the_sources(
    clauses: str, select: str, tagged: bool, mode: str, scene: str, sends: str
) -> None:
    found = chosen(clauses, select, tagged=tagged)
    assert (found.mode, found.scene, found.manager.sends) == (mode, scene, sends)
    assert found.sources == (() if mode == "replica" else ("north", "south")[: 1 + (select == TWO)])


def test_every_n_is_the_period_and_a_level_of_its_own() -> None:
    found = chosen("WITH COMPLETE EVERY 5 USING c_strobe")
    assert found.level == Level.COMPLETE_N and found.gives == Level.COMPLETE_N
    assert found.info.period(found.options.settings) == 5
    periodic = chosen("WITH STRONG CONSISTENCY USING recompute EVERY '100 transactions'")
    assert periodic.options.settings == {"every": 100}


@pytest.mark.parametrize(
    ("clauses", "select", "how", "code"),
    [
        ("WITH STRONG CONSISTENCY USING eca", TWO, {}, "MODE_SCENARIO"),
        ("USING c_strobe", TWO, {"tagged": True}, "MODE_LEVEL"),
        ("WITH CONVERGENT CONSISTENCY USING naive", ONE, {}, "VIEW_ANOMALIES"),
        ("WITH STRONG CONSISTENCY USING recompute EVERY '5 minutes'", ONE, {}, "VIEW_REFRESH"),
        ("USING compensating", ONE, {"connection": False}, "VIEW_SOURCE_UNASKABLE"),
        ("USING compensating", ONE, {"transactions": "per-event"}, "VIEW_SOURCE_UNASKABLE"),
        ("USING compensating", "SELECT COUNT(*) AS n FROM north.entry", {}, "VIEW_NOT_PSJ"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_its_reason(
    clauses: str, select: str, how: dict[str, Any], code: str
) -> None:
    error = refusal(clauses, select, **how)
    assert error.code == code
    assert error.where.startswith("view v") and error.what and error.todo


def test_a_level_above_the_fence_names_the_modes_that_can() -> None:
    error = refusal("USING c_strobe", TWO, tagged=True)
    assert "weak consistency here, not complete" in error.what
    assert "compensating" in error.todo and "sweep" in error.todo


def test_parts_that_are_numbered_apart_are_for_g_strobe_only() -> None:
    how = {"tagged": True, "globals": "apart"}
    assert chosen("WITH STRONG CONSISTENCY USING strobe", TWO, **how).mode == "g_strobe"
    for clauses, select in (("USING replica", TWO), ("WITH STRONG CONSISTENCY USING strobe", ONE)):
        assert refusal(clauses, select, **how).code == "MODE_GLOBALS_APART"


def test_anomalies_may_be_allowed() -> None:
    found = chosen("WITH CONVERGENT CONSISTENCY USING naive", allow_anomalies=True)
    assert (found.mode, found.manager.sends) == ("naive", "convergent")


def test_a_family_has_one_member_for_every_scene_and_level() -> None:
    """The mode table says it, so a mode that is added cannot leave a view file without an answer."""
    for family, best in families().items():
        for scene in SCENES:
            periodic = [
                "period" in info.settings
                for name, info in MODES.items()
                if (info.family or name) == family and scene in info.scenes
            ]
            assert sorted(periodic) in ([False], [False, True]), (family, scene)
            assert member(family, scene, None) in MODES and member(family, scene, 5) in MODES
        assert best >= Level.CONVERGENT
    assert {info.family or name for name, info in MODES.items()} == families().keys()


def test_a_mode_is_one_entry_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, view files may say the mode, it is chosen, and histories of it are judged by its level."""
    entry = replace(MODES["sweep"], manager="tests.toymode:ToyManager")
    monkeypatch.setitem(MODES, "toy", entry)
    found = chosen("USING toy", TWO)
    assert (found.mode, found.level, found.gives) == ("toy", Level.COMPLETE, Level.COMPLETE)
    assert "toy" in refusal("USING c_strobe", TWO, tagged=True).todo
    history = Case(("toy",), "local", sources=2, transactions=5, batch=4, vary=True)
    assert counter_example(history, Level.COMPLETE, range(20)) is None
