"""All views that cannot be maintained as asked are said at once, with the modes that can (figure 9.3)."""

from __future__ import annotations

import pytest
from rich.console import Console

from streaming.cli.tables import refusals_table
from streaming.pipeline.catalog import parse_view
from streaming.pipeline.refusals import Refusal, Refused, choose_all
from tests.golden.bank_relations import BANK
from tests.unit.test_choosing import ONE, TWO, config

NO_KEY = "SELECT a.owner FROM north.account a JOIN north.entry e ON e.account = a.id"
SUM = "SELECT account, SUM(amount) AS n FROM north.entry GROUP BY account"
TOTAL = "SELECT n FROM per_account"
ASKED = {
    "by_eca": ("WITH STRONG CONSISTENCY USING eca", TWO),
    "by_parts": ("WITH COMPLETE CONSISTENCY USING c_strobe", TWO),
    "keyless": ("WITH COMPLETE EVERY 5 USING c_strobe", NO_KEY),
    "fine": ("USING sweep", ONE),
    "per_account": ("USING sweep", SUM),
    "total": ("USING replica", TOTAL),
}


def refused(*names: str) -> dict[str, Refusal]:
    relations = dict(BANK)
    views = []
    for name in names:
        clauses, select = ASKED[name]
        view = parse_view(f"CREATE MATERIALIZED VIEW {name} {clauses} AS {select}", relations)
        relations[name] = view.relation
        views.append(view)
    with pytest.raises(Refused) as raised:
        choose_all(config(tagged=True), views, BANK)
    assert all(name in raised.value.where for name in (one.view for one in raised.value.refusals))
    return {one.view: one for one in raised.value.refusals}


def test_every_refusal_has_its_reason_and_the_modes_that_can() -> None:
    found = refused(*ASKED)
    assert {view: one.error.code for view, one in found.items()} == {
        "by_eca": "MODE_SCENARIO",
        "by_parts": "MODE_LEVEL",
        "keyless": "VIEW_KEY_MISSING",
        "per_account": "VIEW_NOT_PSJ",
    }, "a view over a refused one is not judged"
    assert found["by_eca"].able == (
        "replica", "compensating", "sweep", "recompute", "strobe",
    )  # fmt: skip
    assert found["by_parts"].able == ("replica", "compensating", "sweep")
    assert found["by_parts"].level == "complete" and found["keyless"].level == "complete every 5"
    assert found["per_account"].able == ("replica",)


def test_one_refusal_is_its_own_error() -> None:
    (one,) = refused("fine", "by_eca").values()
    assert one.as_dict()["code"] == "MODE_SCENARIO" and "strobe" in one.as_dict()["able"]
    assert str(Refused([one])) == str(one.error)


def test_several_refusals_are_one_error_that_names_every_view_and_its_reason() -> None:
    every = refused("by_eca", "keyless")
    error = Refused(list(every.values()))
    assert error.code == "PLAN_REFUSED" and error.where == "views by_eca, keyless"
    for one in every.values():
        assert f"{one.error.code}: {one.error.what}" in error.what
    assert error.what.startswith("2 views") and "fresco plan" in error.todo


def test_they_are_a_table_for_people() -> None:
    console = Console(width=240, record=True)
    console.print(refusals_table(Refused(list(refused("by_eca", "by_parts").values()))))
    text = console.export_text()
    assert "MODE_SCENARIO" in text and "replica, compensating, sweep" in text
