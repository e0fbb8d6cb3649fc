"""What a view over views may ask for: no more than its parents give (DESIGN 5; ryco-pyco 3.3)."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.errors import FrescoError
from streaming.pipeline.catalog import parse_view
from streaming.pipeline.choosing import Choice, choose
from streaming.viewmanagers.levels import Level
from tests.golden.bank_relations import BANK
from tests.unit.test_choosing import ONE, config

SUMS = "SELECT owner, COUNT(*) AS n FROM parent GROUP BY owner"
JOIN = "SELECT p.id, e.amount FROM parent p JOIN south.entry e ON e.account = p.aid"


def chosen(parent: str, child: str, select: str = SUMS, **how: Any) -> Choice:
    """The choice for a child of a parent over one source; the clauses are those of their files."""
    known, choices, found = dict(BANK), dict[str, Choice](), config(**how)
    for name, clauses, text in (("parent", parent, ONE), ("child", child, select)):
        view = parse_view(f"CREATE MATERIALIZED VIEW {name} {clauses} AS {text}", known)
        choices[name] = choose(found, view, BANK, choices)
        known[name] = view.relation
    return choices["child"]


def refusal(parent: str, child: str, select: str = SUMS, **how: Any) -> FrescoError:
    with pytest.raises(FrescoError) as raised:
        chosen(parent, child, select, **how)
    return raised.value


@pytest.mark.parametrize(
    ("parent", "child", "gives", "sends"),
    [
        ("", "", Level.COMPLETE, "complete"),
        ("USING compensating", "", Level.COMPLETE, "strong"),
        ("WITH STRONG CONSISTENCY USING eca", "WITH STRONG CONSISTENCY", Level.STRONG, "strong"),
        ("WITH COMPLETE EVERY 4 USING c_strobe", "WITH COMPLETE EVERY 8", Level.COMPLETE_N, "strong"),
        ("WITH STRONG CONSISTENCY USING eca", "WITH CONVERGENT CONSISTENCY", Level.STRONG, "strong"),
    ],
)  # fmt: skip
def test_a_child_gives_what_its_parents_give(
    parent: str, child: str, gives: Level, sends: str
) -> None:
    found = chosen(parent, child)
    assert (found.gives, found.manager.sends, found.mode) == (gives, sends, "replica")
    assert list(found.parents) == ["parent"]
    assert found.bases == ("north.account", "north.entry")


def test_more_than_a_parent_gives_is_refused_with_the_parent_and_what_to_do() -> None:
    error = refusal("WITH STRONG CONSISTENCY USING eca", "WITH COMPLETE CONSISTENCY")
    assert (error.code, error.where) == ("VIEW_PARENT_LEVEL", "view child")
    assert "asks for complete consistency, and its parent parent (eca) gives strong" in error.what
    assert "STRONG CONSISTENCY" in error.todo and "USING replica" in error.todo


def test_the_blocks_of_a_complete_n_parent_must_fit_into_the_child_s() -> None:
    error = refusal("WITH COMPLETE EVERY 4 USING c_strobe", "WITH COMPLETE EVERY 6")
    assert error.code == "VIEW_PARENT_LEVEL" and "complete-N every 4" in error.what
    assert refusal("WITH COMPLETE EVERY 4 USING c_strobe", "").code == "VIEW_PARENT_LEVEL"


def test_modes_that_rest_on_base_relations_are_refused_over_views() -> None:
    error = refusal("", "WITH STRONG CONSISTENCY USING eca")
    assert error.code == "MODE_OVER_VIEWS" and "replica" in error.todo


def test_the_scenario_is_that_of_the_base_relations_below() -> None:
    assert chosen("", "", JOIN).scene == "local"
    assert chosen("", "", JOIN, tagged=True).scene == "global"


def test_nothing_stands_over_a_naive_view() -> None:
    error = refusal(
        "WITH CONVERGENT CONSISTENCY USING naive",
        "WITH CONVERGENT CONSISTENCY",
        allow_anomalies=True,
    )
    assert error.code == "VIEW_PARENT_LEVEL" and "(naive) gives none" in error.what
