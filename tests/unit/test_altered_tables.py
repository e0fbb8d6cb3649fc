"""Tables that are altered while a pipeline is away: no start is refused, other columns' readers go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_view_changes import rows

from streaming.errors import FrescoError
from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse
from streaming.service.view_states import view_states
from streaming.viewchanges.asked_changes import ask_to_add, ask_to_drop
from tests.changingviews import COLUMNS, Driver, Shop
from tests.stepworld import Crash

TALL = [("id", "int8"), ("account", "int8"), ("amount", "int8")]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.write("amounts", "SELECT id, amount FROM north.entry")
    made.write("accounts", "SELECT id, account FROM north.entry")
    for id_ in range(6):
        made.put(id_, id_ % 2, id_ * 4)
    return made


def run(shop: Shop, rounds: int = 1) -> None:
    """A start, and what has come."""
    driver = Driver(shop)
    for _ in range(rounds):
        driver.round()
    driver.close()


def suspended(shop: Shop) -> dict[str, int]:
    return dict(Warehouse(shop.warehouse).epochs("shop")[-1].suspended)


def held(shop: Shop, *places: int) -> list[tuple[Any, ...]]:
    """What a view of these columns holds: 0 the id, 1 the account, 2 the amount."""
    every = [(id_, *values) for id_, values in shop.rows.items()]
    return sorted(tuple(row[at] for at in places) for row in every)


def holds_as_asked(shop: Shop) -> None:
    verdict = verify_pipeline(shop.warehouse)
    assert verdict.holds, (verdict.problems, verdict.lines)


def test_oddity_26_a_wider_type_and_a_start_leave_all_views_as_they_are(shop: Shop) -> None:
    run(shop)
    shop.columns = TALL
    shop.put(7, 9, 70)
    run(shop)
    assert suspended(shop) == {}
    assert rows(shop, "accounts") == held(shop, 0, 1)
    assert [c.type for c in Warehouse(shop.warehouse).table("accounts").schema] == ["bigint", "int"]
    holds_as_asked(shop)


def test_oddity_26_the_first_value_beyond_the_old_type_stops_its_readers_who_come_back_wider(
    shop: Shop,
) -> None:
    run(shop)
    shop.columns = TALL
    driver = Driver(shop)
    shop.put(7, 9, 70)
    driver.round()
    shop.put(8, 2**40, 80)
    driver.round()
    assert set(suspended(shop)) == {"accounts", "totals", "entries"}
    assert rows(shop, "amounts") == held(shop, 0, 2)
    for name in ("accounts", "entries"):
        ask_to_drop(shop.warehouse, name, shop.views)
    driver.settle()
    ask_to_add(shop.config, shop.write("accounts", "SELECT id, account FROM north.entry"))
    driver.settle()
    assert [c.type for c in Warehouse(shop.warehouse).table("accounts").schema][1] == "bigint"
    assert rows(shop, "accounts") == held(shop, 0, 1), "those of before the change among them"
    shop.put(0, 2**41, 1)
    driver.round()
    assert rows(shop, "accounts") == held(shop, 0, 1)
    holds_as_asked(shop)
    driver.close()
    run(shop)
    holds_as_asked(shop)


def test_a_key_that_is_widened_stays_a_key(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.columns = [("id", "int4"), *TALL[1:]]
    for id_ in range(4):
        shop.put(id_, 1, id_)
    run(shop)
    shop.columns = TALL
    driver = Driver(shop)
    shop.put(2, 1, 20)
    shop.delete(3)
    driver.round()
    assert suspended(shop) == {} and rows(shop, "entries") == held(shop, 0, 1, 2)
    shop.put(2**40, 1, 5)
    driver.round()
    assert set(suspended(shop)) == {"entries"}, "the sums do not read it"
    assert rows(shop, "totals") == [(1, 26, 4)]
    ask_to_drop(shop.warehouse, "entries", shop.views)
    driver.settle()
    ask_to_add(shop.config, shop.write("entries", "SELECT id, account, amount FROM north.entry"))
    driver.settle()
    shop.put(2**40, 2, 6)
    driver.round()
    assert rows(shop, "entries") == held(shop, 0, 1, 2)
    holds_as_asked(shop)
    driver.close()


def test_a_dropped_column_in_the_middle_moves_no_other_in_what_is_under_way(shop: Shop) -> None:
    driver = Driver(shop)
    driver.round()
    shop.put(7, 9, 70)
    driver.step("integrator")  # sent, and not yet taken by any view
    driver.close()
    shop.columns = [TALL[0], TALL[2]]
    shop.shape = lambda row: {"id": row["id"], "amount": row["amount"]}
    shop.put(8, 0, 80)
    shop.delete(0)
    run(shop, 2)
    assert set(suspended(shop)) == {"accounts", "totals", "entries"}
    assert rows(shop, "amounts") == held(shop, 0, 2)
    holds_as_asked(shop)


def test_a_step_that_is_repeated_after_the_table_has_got_a_column_is_recorded(shop: Shop) -> None:
    run(shop)
    shop.put(7, 9, 70)

    def killed(moment: str) -> None:
        if moment == "after the manifest of integrator":
            raise Crash(moment)

    driver = Driver(shop, killed)
    with pytest.raises(Crash):
        driver.round()
    driver.close()
    shop.columns = [*shop.columns, ("colour", "text")]
    shop.shape = lambda row: {**row, "colour": "red"}
    shop.put(8, 0, 80)
    run(shop, 2)
    assert rows(shop, "amounts") == held(shop, 0, 2)
    holds_as_asked(shop)


def test_oddity_37_a_column_dropped_and_made_anew_stops_its_readers_and_no_other(
    shop: Shop,
) -> None:
    shop.identities = {"amount": "16402.3"}
    run(shop)
    shop.identities = {"amount": "16402.4"}
    shop.put(2, 7, 8)
    run(shop, 2)
    assert set(suspended(shop)) == {"amounts", "totals", "entries"}
    (state,) = (one for one in view_states(shop.warehouse) if one.view == "amounts")
    error = state.error or {}
    assert error["code"] == "VIEW_COLUMN_CHANGED" and "made anew" in error["what"]
    shop.put(1, 7, 5)
    run(shop)
    assert rows(shop, "accounts") == held(shop, 0, 1)
    holds_as_asked(shop)


def test_a_column_that_is_new_is_not_told_by_the_recorded_updates(shop: Shop) -> None:
    """Without a connection nobody can tell what the rows of before hold in it."""
    run(shop)
    shop.columns = [*shop.columns, ("colour", "text")]
    shop.shape = lambda row: {**row, "colour": "red"}
    driver = Driver(shop)
    shop.put(7, 9, 70)
    driver.round()
    file = shop.write("colours", "SELECT id, colour FROM north.entry", shop.folder)
    request = ask_to_add(shop.config, file)
    driver.settle()
    done = driver.members.requests.told(request.number, "done") or {}
    assert done["error"]["code"] == "VIEW_INITIAL_ROWS"
    assert "column colour of north.entry is recorded from number" in done["error"]["what"]
    driver.close()


@pytest.mark.parametrize("again", [False, True], ids=["running", "started again"])
def test_oddity_28_a_renamed_column_is_read_by_its_new_name_once_a_snapshot_has_told_it(
    shop: Shop, again: bool
) -> None:
    """The rows of before are told by a TRUNCATE and what follows it, as a snapshot taken again is."""
    driver = Driver(shop)
    driver.round()
    shop.columns = [TALL[0], COLUMNS[1], ("sum", "int8")]
    shop.shape = lambda row: {"id": row["id"], "account": row["account"], "sum": row["amount"]}
    if again:
        driver.close()
        driver = Driver(shop)
    else:
        driver.look()
    shop.put(7, 1, 70)
    driver.round()
    assert set(suspended(shop)) == {"amounts", "totals", "entries"}
    assert rows(shop, "accounts") == held(shop, 0, 1)
    kept = dict(shop.rows)
    shop.truncate()
    for id_, values in kept.items():
        shop.put(id_, *values)
    driver.round()
    ask_to_drop(shop.warehouse, "amounts", shop.views)
    driver.settle()
    ask_to_add(shop.config, shop.write("amounts", "SELECT id, sum FROM north.entry", shop.folder))
    driver.settle()
    shop.put(7, 1, 71)
    shop.delete(2)
    driver.round()
    assert rows(shop, "amounts") == held(shop, 0, 2)
    holds_as_asked(shop)
    driver.close()
    run(shop)
    holds_as_asked(shop)


def test_a_suspension_is_told_where_no_transaction_follows(shop: Shop) -> None:
    driver = Driver(shop)
    driver.round()
    shop.columns = [TALL[0], COLUMNS[1]]
    driver.look()
    driver.round()
    assert set(suspended(shop)) == {"amounts", "totals", "entries"}
    driver.close()


def test_columns_that_are_gone_are_not_to_be_named(shop: Shop) -> None:
    run(shop)
    shop.columns = [TALL[0], TALL[2]]
    run(shop)
    file = shop.write("late", "SELECT id, account FROM north.entry", shop.folder)
    with pytest.raises(FrescoError, match=r"SQL_UNKNOWN_COLUMN.*account"):
        ask_to_add(shop.config, file)
