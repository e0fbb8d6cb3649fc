"""`fresco plan` says what each choice of groups costs, from measured or declared rates (ryco-pyco 5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streaming.configuration.pipeline_config import Config, parse_config
from streaming.pipeline.catalog import parse_view, save_catalog
from streaming.pipeline.choosing import Choice, choose
from streaming.pipeline.costing import ASSUMED_HOP, GroupingCost, PlanCosts, plan_costs
from streaming.pipeline.plan import Pipeline
from tests.intakeworld import insert, relations
from tests.sourcelog import SourceLog, Topics
from tests.steppedstages import GROUP, SteppedStages

VIEWS = {
    "accounts": "SELECT id, v FROM north.account",
    "entries": "SELECT id FROM north.entry",
    "both": "SELECT a.id FROM north.account a JOIN north.entry e ON e.id = a.id",
    "over": "SELECT id FROM accounts",
}


def planned(warehouse: Path, **more: Any) -> tuple[Config, Pipeline]:
    """The views over two relations, in one group."""
    tables = {"account": "public.account", "entry": "public.entry"}
    raw = {"pipeline": GROUP, "warehouse": str(warehouse), "views": "v", **more}
    config = parse_config({**raw, "sources": {"north": {"tables": tables}}}, folder=warehouse)
    captured = tuple(relations())
    known = {one.relation.name: one.relation for one in captured}
    views, choices = [], dict[str, Choice]()
    for name, sql in VIEWS.items():
        view = parse_view(f"CREATE MATERIALIZED VIEW {name} AS {sql}", known)
        choices[name] = choose(config, view, dict(list(known.items())[:2]), choices)
        known[name] = view.relation
        views.append(view)
    groups = {GROUP: tuple(sorted(VIEWS))}
    return config, Pipeline(GROUP, (), captured, tuple(views), groups, choices)


def by_name(costs: PlanCosts) -> dict[str, GroupingCost]:
    return {one.grouping: one for one in costs.choices}


def test_before_anything_has_run_the_declared_rates_count_and_a_hop_is_assumed(
    tmp_path: Path,
) -> None:
    found = plan_costs(*planned(tmp_path, rates={"north.account": 10}))
    assert not found.measured
    assert found.rates.updates == {"north.account": 10, "north.entry": 1}
    cost = by_name(found)
    assert set(cost) == {"single", "disjoint", "atomic"}
    single, atomic = cost["single"], cost["atomic"]
    assert (single.ordered, single.told) == (11, 11 * 4), "K, and K for each view"
    assert single.groups == (("accounts", "both", "entries", "over"),) == cost["disjoint"].groups
    assert set(atomic.groups) == {("accounts",), ("both",), ("entries",), ("over",)}
    assert (atomic.ordered, atomic.told) == (10 + 11 + 1 + 10, 10 + 11 + 1 + 10)
    assert single.delay["accounts"] == pytest.approx(2 * ASSUMED_HOP)
    assert single.delay["over"] == pytest.approx(3 * ASSUMED_HOP)
    assert atomic.delay["over"] > single.delay["over"], "its updates pass through another group"


def test_a_pipeline_that_has_run_says_its_own_rates(tmp_path: Path) -> None:
    config, pipeline = planned(tmp_path)
    views = [view for view in pipeline.views if view.name != "over"]
    save_catalog(tmp_path, views, {GROUP: [view.name for view in views]}, pipeline.relations)
    stages, log, topics = (
        SteppedStages(tmp_path, pipeline.captured, views),
        SourceLog("north"),
        Topics(),
    )
    for number in range(1, 12):
        changes = [insert("account", number)]
        if number % 5 == 0:
            changes.append(insert("entry", number))
        log.lsn = number * 1000  # milliseconds of its commit too
        stages.feed(topics.batch(log.commit(changes)))
    stages.close()
    found = plan_costs(config, pipeline)
    assert found.measured
    seconds = 10.0
    assert found.rates.updates["north.account"] == pytest.approx(11 / seconds, rel=0.05)
    assert found.rates.updates["north.entry"] == pytest.approx(2 / seconds, rel=0.05)
    ran = {view.name for view in views}
    assert set(found.rates.compute) == ran == set(found.rates.wait)
    assert all(0 < took < 60 for took in found.rates.compute.values())
    assert 0 <= found.rates.transmission < 60 and min(found.rates.wait.values()) == 0
    assert by_name(found)["single"].delay["both"] >= found.rates.compute["both"]
