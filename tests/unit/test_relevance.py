"""REL: by relation, spared by selections and unused columns, in few runs."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.algebra.scans import ScanNeed, scan_needs
from streaming.algebra.tree import Project, Scan, Select, Tree
from streaming.captured.captured_schema import CapturedSource, captured
from streaming.cdc.intake import Intake
from streaming.integrator.relevance import (
    IDLE_RUNS,
    MOST_RUNS,
    BatchChanges,
    ViewNeed,
    runs,
    view_needs,
    work_of,
)
from streaming.messages import RelRun
from streaming.scalars.expression import Col, Column, Lit
from streaming.scalars.functions import call
from tests.sourcelog import SourceLog, Topics

ORDERS = captured(
    "shop.orders", "shop.public.orders", [("id", "int4"), ("state", "text"), ("note", "text")]
)
SCHEMA = ORDERS.relation.schema


@dataclass(frozen=True)
class V:
    name: str
    tree: Tree


def in_state(name: str, state: str) -> V:
    """SELECT id FROM shop.orders WHERE state = ..."""
    condition = call("=", Col(1, "string"), Lit(state, "string"))
    selected = Select(Scan("shop.orders", SCHEMA), condition)
    return V(name, Project(selected, (Col(0, "int"),), (Column("id", "int"),)))


def rel(changes: list[tuple]) -> list[RelRun]:
    """REL of one transaction per change over two selection views and a view over one of them."""
    child = V("child", Scan("open", (Column("id", "int"),)))
    views = [in_state("open", "open"), in_state("archived", "archived"), child]
    source = CapturedSource("shop", "shop", snapshot=False)
    names = [view.name for view in views]
    intake = Intake([ORDERS], views, {"main": names}, sources=[source])
    log = SourceLog("shop")
    records = [record for change in changes for record in log.commit([("orders", *change)])]
    result = intake.step(Topics().batch(records), 0)
    return [run for run in result.runs["main"] if run.last > 0]


def order(state: str | None, note: str = "", id_: int = 1) -> dict:
    return {"id": id_, "state": state, "note": note}


def test_rel_is_by_relation_and_the_selections_only_spare_work() -> None:
    (run,) = rel([("u", order("open"), order("moving"))])
    assert run.views == ("archived", "child", "open")
    assert run.idle == ("archived",)


def test_the_old_version_counts_as_well_as_the_new_one() -> None:
    first, second = rel([("d", order("open"), None), ("c", None, order("archived"))])
    assert first.idle == ("archived",) and second.idle == ("child", "open")


def test_oddity_12_a_null_satisfies_no_selection() -> None:
    (run,) = rel([("c", None, order(None))])
    assert run.idle == ("archived", "child", "open")


def test_oddity_19_a_change_of_unused_columns_leaves_no_work() -> None:
    (run,) = rel([("u", order("open", "a"), order("open", "b"))])
    assert run.idle == ("archived", "child", "open")
    (run,) = rel([("u", order("open", id_=1), order("open", id_=2))])
    assert run.idle == ("archived",)


def test_a_row_at_which_a_condition_fails_is_work_and_one_that_a_guard_keeps_away_is_none() -> None:
    """The evaluator must meet the row that fails; the update of a guarded row is spared."""
    divisor, kind = Col(0, "int"), Col(1, "int")
    risky = call("=", call("%", Lit(10, "int"), divisor), Lit(1, "int"))
    condition = call("and", risky, call("=", kind, Lit(7, "int")))
    schema = (Column("divisor", "int"), Column("kind", "int"))
    need = ScanNeed("s.r", (condition,), frozenset((0, 1)), schema)
    news = [(0, 7), (0, 8), (3, 7), (4, 7), (None, 7), (0, None)]
    cells = {"op": ["c"] * 6, "b0": [None] * 6, "b1": [None] * 6}
    cells |= {f"a{i}": [new[i] for new in news] for i in (0, 1)}
    types = {"op": pa.string()}
    table = pa.table({n: pa.array(v, types.get(n, pa.int32())) for n, v in cells.items()})

    def query(sql: str, rows: pa.Table) -> pa.Table:
        return duckdb.connect().execute(sql).to_arrow_table() if rows.num_rows else rows

    assert work_of(need, table, query).tolist() == [True, False, True, False, False, False]


def test_a_scan_needs_its_projected_columns_and_those_of_its_condition() -> None:
    (need,) = scan_needs(in_state("open", "open").tree)
    assert need.columns == frozenset((0, 1)) and len(need.conditions) == 1
    (bare,) = scan_needs(Scan("shop.orders", SCHEMA))
    assert bare.columns == frozenset((0, 1, 2)) and bare.conditions == ()


def test_a_descendant_uses_the_base_relations_below_it() -> None:
    needs = view_needs([V("child", Scan("open", (Column("id", "int"),))), in_state("open", "x")])
    assert needs["child"].relations == frozenset(("shop.orders",))
    assert needs["child"].parents == ("open",)


# Runs ---------------------------------------------------------------------------------------------

SCANS = {r: ScanNeed(r, (), frozenset((0,)), (Column("x", "int"),)) for r in ("r", "s")}
NEEDS = {
    "v": ViewNeed("v", (SCANS["r"],), (), frozenset("r")),
    "w": ViewNeed("w", (SCANS["s"],), (), frozenset("s")),
}


def bits(length: int) -> st.SearchStrategy[list[bool]]:
    return st.lists(st.booleans(), min_size=length, max_size=length)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 400))
def test_runs_cover_every_number_and_never_call_a_busy_view_idle(
    data: st.DataObject, length: int
) -> None:
    seed = data.draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    density = data.draw(st.sampled_from([0.02, 0.5, 0.98]))
    changed = {r: random.random(length) < density for r in "rs"}
    work = {SCANS[r]: changed[r] & (random.random(length) < 0.5) for r in "rs"}
    found = runs(BatchChanges(5, 4 + length, changed, work), NEEDS, ["v", "w"])
    numbers = [n for run in found for n in range(run.first, run.last + 1)]
    assert numbers == list(range(5, 5 + length))
    for run in found:
        for view, relation in (("v", "r"), ("w", "s")):
            inside = slice(run.first - 5, run.last - 4)
            assert (view in run.views) == bool(changed[relation][inside].any())
            if view in run.idle:
                assert not work[SCANS[relation]][inside].any()
    by_relation = 1 + sum(
        changed["r"][i] != changed["r"][i - 1] or changed["s"][i] != changed["s"][i - 1]
        for i in range(1, length)
    )
    assert len(found) <= max(IDLE_RUNS, by_relation) + 1


def test_runs_stay_few_where_every_number_differs_from_the_last() -> None:
    length = 100_000
    flags = np.arange(length) % 2 == 0
    found = runs(BatchChanges(1, length, {"r": flags, "s": ~flags}, {}), NEEDS, ["v", "w"])
    assert len(found) <= MOST_RUNS + 1
    assert all(run.views == ("v", "w") for run in found if run.last - run.first > 1)
    assert found[-1].last == length


def test_a_part_of_a_global_transaction_that_is_numbered_apart_is_work_for_every_view() -> None:
    """Not only for those that use what it changes; and where it changes nothing that is used, too."""
    flags = {"r": np.array([True, False, True, False]), "q": np.array([False, True, False, False])}
    work = {SCANS["r"]: np.array([False, False, True, False])}
    parts = np.array([True, True, False, False])
    told = {
        n: (run.views, run.idle)
        for run in runs(BatchChanges(1, 4, flags, work, parts), NEEDS, ["v", "w"])
        for n in range(run.first, run.last + 1)
    }
    everyone = (("v", "w"), ())
    assert told == {1: everyone, 2: everyone, 3: (("v",), ()), 4: ((), ())}
