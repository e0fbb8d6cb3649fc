"""Tables that a configuration describes or rates are tables that it captures."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.test_config import refused, smallest, with_source


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"columns": {"entri": {"id": "int"}}}, "columns.entri: no such table under tables"),
        (
            {"columns": {"entry": {"id": "int"}}, "keys": {"entri": ["id"]}},
            "keys.entri: no such table under tables",
        ),
        (
            {"columns": {"entry": {"id": "int"}}, "keys": {"entry": ["idd"]}},
            "keys.entry: no column idd under columns.entry",
        ),
        ({"keys": {"entry": ["id"]}}, "keys.entry: its columns are not under columns.entry"),
    ],
)
def test_columns_and_keys_of_what_is_not_there_are_refused(given: Any, said: str) -> None:
    error = refused(with_source(**given))
    assert (error.code, error.where) == ("CONFIG_VALUE", "bank.yaml: sources.north")
    assert said in str(error)


def test_rates_of_relations_that_are_not_there_are_refused() -> None:
    error = refused(smallest(rates={"north.entry": 1, "north.entri": 2}))
    assert error.code == "CONFIG_VALUE"
    assert "rates.north.entri: no source has this table" in str(error)
