"""Merge groups as configured, and transactions that span them all the same (MVC 6; DESIGN 5, Groups)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streaming.cdc.intake import TRANSACTIONS
from streaming.configuration.pipeline_config import Config, parse_config
from streaming.errors import FrescoError
from streaming.messages import Control
from streaming.pipeline.catalog import ViewSpec, parse_view
from streaming.pipeline.choosing import Choice, choose
from streaming.pipeline.configured_groups import form_groups
from streaming.stages.span_watch import SpanWatch
from tests.golden.bank_relations import BANK

NAIVE = "WITH CONVERGENT CONSISTENCY USING naive"
VIEWS = {
    "accounts": "SELECT id, owner FROM north.account",
    "entries": "SELECT id, amount FROM north.entry",
    "joined": "SELECT e.id FROM north.account a JOIN north.entry e ON e.account = a.id",
    "south": "SELECT id FROM south.account",
}


def config(**more: Any) -> Config:
    tables = {name: f"public.{name}" for name in ("account", "entry")}
    source = {"tables": tables, "connection": "postgresql://reader@localhost/bank"}
    raw = {"pipeline": "bank", "warehouse": "w", "views": "v", **more}
    return parse_config({**raw, "sources": {"north": source, "south": source}}, folder=Path("/"))


def groups(*names: str, modes: dict[str, str] | None = None, **how: Any) -> dict[str, set[str]]:
    """Group -> views."""
    settings, specs = config(**how), []
    choices: dict[str, Choice] = {}
    for name in names:
        clause = (modes or {}).get(name, "")
        view: ViewSpec = parse_view(
            f"CREATE MATERIALIZED VIEW {name} {clause} AS {VIEWS[name]}", BANK
        )
        choices[name] = choose(settings, view, BANK)
        specs.append(view)
    found = form_groups(settings, specs, choices, BANK)
    return {group.name: set(group.views) for group in found}


def test_one_group_holds_all_views_unless_told_otherwise() -> None:
    assert groups("accounts", "entries", "south") == {"bank": {"accounts", "entries", "south"}}


def test_disjoint_groups_share_no_relation() -> None:
    split = groups("accounts", "entries", "south", grouping="disjoint")
    assert split == {
        "bank_accounts": {"accounts"},
        "bank_entries": {"entries"},
        "bank_south": {"south"},
    }
    tied = groups("accounts", "entries", "joined", "south", grouping="disjoint")
    assert tied == {"bank_accounts": {"accounts", "entries", "joined"}, "bank_south": {"south"}}


def test_relations_that_transactions_update_together_stay_in_one_group() -> None:
    span = [["north.account", "south.account"]]
    found = groups("accounts", "entries", "south", grouping="disjoint", transactions_span=span)
    assert found == {"bank_accounts": {"accounts", "south"}, "bank_entries": {"entries"}}


def test_atomic_groups_may_read_one_relation() -> None:
    found = groups("accounts", "joined", grouping="atomic")
    assert found == {"bank_accounts": {"accounts"}, "bank_joined": {"joined"}}


def test_a_convergent_view_is_apart_unless_it_shall_be_together_or_is_alone() -> None:
    naive: dict[str, Any] = {"allow_anomalies": True, "modes": {"joined": NAIVE}}
    apart = groups("accounts", "joined", "south", **naive)
    assert apart == {"bank": {"accounts", "south"}, "bank_joined": {"joined"}}
    together = groups("accounts", "joined", convergent="together", **naive)
    assert together == {"bank": {"accounts", "joined"}}
    assert groups("joined", **naive) == {"bank": {"joined"}}


def test_a_span_of_what_is_not_captured_is_refused() -> None:
    with pytest.raises(FrescoError, match=r"CONFIG_VALUE.*'north.acount'.*'north.account'"):
        groups("accounts", grouping="disjoint", transactions_span=[["north.acount", "south.entry"]])


RELATIONS_OF = {"bank_a": ["north.account"], "bank_e": ["north.entry", "south.entry"]}


def step(*updates: tuple[int, str], controls: tuple[Control, ...] = ()) -> Any:
    """What the intake hands on, as far as spans go: (number, relation) for each row."""
    rows = {
        relation: pa.table({"_number": [n for n, one in updates if one == relation]})
        for relation in dict.fromkeys(relation for _, relation in updates)
    }
    numbers = sorted({n for n, _ in updates} | {one.number for one in controls})
    map_ = [
        {
            "number": n,
            "source": "north",
            "transaction": f"70{n}:1",
            "position": n,
            "committed_ms": 0,
        }
        for n in numbers
    ]

    class Result:
        updates = rows
        transactions = pa.Table.from_pylist(map_, schema=TRANSACTIONS)

    Result.controls = controls  # type: ignore[attr-defined]
    return Result


def test_transactions_inside_one_group_and_the_initial_state_span_nothing() -> None:
    seen: list[int] = []
    watch = SpanWatch(True, seen.append)
    both = [(0, "north.account"), (0, "north.entry")]
    inside = [(1, "north.account"), (2, "north.entry"), (2, "south.entry")]
    assert watch.look(step(*both, *inside, (3, "south.unused")), RELATIONS_OF) == 0
    assert watch.look(step(), RELATIONS_OF) == 0 and seen == []


def test_a_transaction_that_spans_groups_is_counted_and_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []
    rows = [(4, "north.account"), (5, "north.account"), (5, "north.entry"), (6, "south.entry")]
    truncate = (Control(number=6, relation="north.account", kind="truncate"),)
    with caplog.at_level(logging.WARNING, "fresco"):
        assert SpanWatch(False, seen.append).look(step(*rows, controls=truncate), RELATIONS_OF) == 2
    assert seen == [2]
    assert "2 transactions span groups; the first: GROUP_SPAN" in caplog.text
    assert "north.account (group bank_a) and north.entry (group bank_e)" in caplog.text
    assert "source north, 705:1" in caplog.text


def test_halt_makes_it_an_error_that_names_the_transaction_and_what_to_do() -> None:
    with pytest.raises(FrescoError) as raised:
        SpanWatch(True, lambda _: None).look(
            step((5, "north.account"), (5, "north.entry")), RELATIONS_OF
        )
    assert raised.value.code == "GROUP_SPAN"
    assert raised.value.where == "source north, 705:1"
    assert "on_span: warn" in raised.value.todo and "transactions_span" in raised.value.todo


def test_relations_of_a_snapshot_that_was_taken_again_span_nothing() -> None:
    """They have a number and no transaction; halt would end the pipeline for ever, for a repair."""
    result = step((7, "north.account"), (7, "north.entry"))
    result.transactions = result.transactions.slice(0, 0)
    assert SpanWatch(True, lambda _: None).look(result, RELATIONS_OF) == 0
