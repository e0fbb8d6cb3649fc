"""`fresco doctor` over the embedded stack: nothing of what surrounds its topics is wrong or doubtful."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import psycopg
from conftest import Bank
from services import BANK_CONFIG

from streaming.runtime.doctor import examine

TODAY = {"skipped.operations": "t", "value.converter.replace.null.with.default": "true"}


def test_the_embedded_stack_passes_its_own_doctor_without_a_warning(
    bank: Bank, tmp_path: Path
) -> None:
    environment = {**bank.environment, "FRESCO_WAREHOUSE": str(tmp_path)}
    with mock.patch.dict(os.environ, environment):
        found = examine(BANK_CONFIG)
        assert {one.level for one in found} == {"ok"}, found
        assert {"connector fresco-north of north", "publication of south"} <= {
            one.check for one in found
        }


def test_what_was_changed_since_is_found(bank: Bank, tmp_path: Path) -> None:
    """A publication and a connector of their own, as somebody may leave them."""
    environment = {**bank.environment, "FRESCO_WAREHOUSE": str(tmp_path)}
    rest = bank.stack.stack.connect.rest
    config = dict(rest.ask("GET", "/connectors/fresco-south/config"))
    with mock.patch.dict(os.environ, environment):
        with psycopg.connect(bank.dsns["south"], autocommit=True) as connection:
            connection.execute("ALTER PUBLICATION fresco_south SET (publish = 'insert, update')")
            try:
                wrong = [one for one in examine(BANK_CONFIG) if one.bad]
            finally:
                connection.execute(
                    "ALTER PUBLICATION fresco_south SET"
                    " (publish = 'insert, update, delete, truncate')"
                )
        assert {one.code for one in wrong} == {"SOURCE_PUBLICATION"}
        rest.put("fresco-south", config | TODAY)
        try:
            wrong = [one for one in examine(BANK_CONFIG) if one.bad]
        finally:
            rest.put("fresco-south", config)
            bank.stack.stack.connect.wait_running(["fresco-south"])
    assert {one.says.partition(":")[0] for one in wrong} == set(TODAY)
