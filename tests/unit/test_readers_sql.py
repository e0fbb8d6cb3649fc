"""`Warehouse.sql` runs one SELECT at one state and reaches nothing else; `ddl` gives plain
views."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from warehouse_rows import BALANCE, LINES, ODD, delta, next_epoch, write_catalog

from streaming.cli.ddl import ddl
from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.warehouse.group_writer import GroupWriter

VIEWS = [BALANCE, LINES, ODD]


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    write_catalog(tmp_path, "g", VIEWS)
    writer = GroupWriter(str(tmp_path), "bank", "g", VIEWS)
    rows = {
        "balance": delta(BALANCE, [(0, 1, 1, Decimal(5)), (0, 1, 2, Decimal(7))]),
        "lines": delta(LINES, [(0, 3, "a", 1)]),
        ODD.name: delta(
            ODD, [(0, 1, 1, "x", 0.5, None, b"", None, True, 1, Decimal("0.5"), None, None)]
        ),
    }
    writer.commit(rows, next_epoch(None, "g", ((0, 0),)))
    return Warehouse(tmp_path)


def test_one_select_over_several_views(warehouse: Warehouse) -> None:
    text = """
        WITH doubled AS (SELECT account, total * 2 AS total FROM balance)
        SELECT sum(total) AS total, (SELECT count(*) FROM lines) AS lines FROM doubled
    """
    assert warehouse.sql(text).to_pylist() == [{"total": Decimal(24), "lines": 3}]
    assert warehouse.sql("SELECT 1 AS one", epoch=1).to_pylist() == [{"one": 1}]


def test_odd_names_are_quoted_and_case_clashes_have_their_physical_names(
    warehouse: Warehouse,
) -> None:
    found = warehouse.sql(f'SELECT "Id", "id%_2", "a.b c;" FROM "{ODD.name}"')
    assert found.to_pylist() == [{"Id": 1, "id%_2": "x", "a.b c;": 0.5}]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('/etc/hosts')",
        "SELECT * FROM read_text('/etc/hosts')",
        "SELECT * FROM '/etc/hosts'",
        "SELECT * FROM glob('*')",
        "SELECT * FROM 'https://example.org/a.parquet'",
        "SELECT 1; SELECT 2",
        "ATTACH 'other.db'",
        "COPY balance TO 'out.csv'",
        "CREATE TABLE t AS SELECT 1",
        "SET enable_external_access = true",
        "PRAGMA database_list",
        "INSTALL httpfs",
        "DELETE FROM balance",
        "SELECT nothing FROM balance",
        "SELEC 1",
        "",
    ],
)
def test_anything_else_is_refused_with_a_code(warehouse: Warehouse, text: str) -> None:
    with pytest.raises(FrescoError, match=r"READ_SQL|READ_UNKNOWN_VIEW"):
        warehouse.sql(text)


def test_a_variable_of_the_program_is_not_a_table(warehouse: Warehouse) -> None:
    balances = warehouse.read("balance")
    assert balances.num_rows == 2
    with pytest.raises(FrescoError, match=r"READ_UNKNOWN_VIEW.*balance"):
        warehouse.sql("SELECT * FROM balances")


def test_statements_quote_names_and_expand_only_where_rows_may_repeat(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    assert warehouse.groups() == ["g"]
    for engine in ("spark", "duckdb", "trino"):
        text = "\n".join(ddl(str(tmp_path), engine))
        mark = "`" if engine == "spark" else '"'
        assert f"{mark}a%2Eb%20c%3B{mark} AS {mark}a.b c;{mark}" in text
        assert f"{mark}id%_2{mark} AS {mark}id%_2{mark}" in text
        assert f"{mark}{ODD.name}{mark}" in text
        balance = next(one for one in text.splitlines() if "'balance'" in one)
        assert "_n" not in balance.replace("_name", "")
        lines = next(one for one in text.splitlines() if "'lines'" in one)
        assert "_n" in lines
    with pytest.raises(FrescoError, match="DDL_ENGINE"):
        ddl(str(tmp_path), "oracle")
