# ruff: noqa: E501  (a table, one refusal a line)
"""What a view's SQL may not be: each refusal has a code, the place, and what to do instead."""

from __future__ import annotations

import pytest

from streaming.errors import FrescoError
from streaming.sql.parse import parse
from tests.golden.bank_relations import RELATIONS

CASES = [
    # code, what the message names, line and column, SQL
    ("SQL_UNSUPPORTED", "LEFT JOIN", (1, 34), "SELECT a.id FROM north.account a LEFT OUTER JOIN north.entry e ON e.id = a.id"),
    ("SQL_UNSUPPORTED", "FULL JOIN", (1, 34), "SELECT a.id FROM north.account a FULL JOIN north.entry e ON e.id = a.id"),
    ("SQL_UNSUPPORTED", "LEFT SEMI JOIN", (1, 34), "SELECT a.id FROM north.account a LEFT SEMI JOIN north.entry e ON e.id = a.id"),
    ("SQL_UNSUPPORTED", "LEFT ANTI JOIN", (1, 34), "SELECT a.id FROM north.account a LEFT ANTI JOIN north.entry e ON e.id = a.id"),
    ("SQL_UNSUPPORTED", "NATURAL JOIN", (1, 34), "SELECT a.id FROM north.account a NATURAL JOIN north.entry"),
    ("SQL_UNSUPPORTED", "SELECT DISTINCT", (1, 8), "SELECT DISTINCT owner FROM north.account"),
    ("SQL_UNSUPPORTED", "COUNT(DISTINCT)", (1, 14), "SELECT COUNT(DISTINCT owner) AS n FROM north.account"),
    ("SQL_UNSUPPORTED", "aggregate MIN", (1, 8), "SELECT MIN(id) AS m FROM north.account"),
    ("SQL_UNSUPPORTED", "aggregate MAX", (2, 3), "SELECT id,\n  MAX(id) AS m FROM north.account GROUP BY id"),
    ("SQL_UNSUPPORTED", "OVER", (1, 16), "SELECT SUM(id) OVER (PARTITION BY owner) AS s FROM north.account"),
    ("SQL_UNSUPPORTED", "OVER", (1, 21), "SELECT row_number() OVER (ORDER BY id) AS s FROM north.account"),
    ("SQL_UNSUPPORTED", "FILTER", (1, 16), "SELECT SUM(id) FILTER (WHERE id > 1) AS s FROM north.account"),
    ("SQL_UNSUPPORTED", "ORDER BY", (1, 30), "SELECT id FROM north.account ORDER BY id"),
    ("SQL_UNSUPPORTED", "LIMIT", (1, 30), "SELECT id FROM north.account LIMIT 3"),
    ("SQL_UNSUPPORTED", "QUALIFY", None, "SELECT id FROM north.account QUALIFY id > 1"),
    ("SQL_UNSUPPORTED", "UNION is", None, "SELECT id FROM north.account UNION SELECT id FROM south.account"),
    ("SQL_UNSUPPORTED", "EXCEPT", None, "SELECT id FROM north.account EXCEPT SELECT id FROM south.account"),
    ("SQL_UNSUPPORTED", "INTERSECT", None, "SELECT id FROM north.account INTERSECT SELECT id FROM south.account"),
    ("SQL_UNSUPPORTED", "UNION BY NAME", None, "SELECT id FROM north.account UNION ALL BY NAME SELECT id FROM south.account"),
    ("SQL_UNSUPPORTED", "subquery", (1, 42), "SELECT id FROM north.account WHERE id = (SELECT id FROM north.entry)"),
    ("SQL_UNSUPPORTED", "IN with a subquery", (1, 39), "SELECT id FROM north.account WHERE id IN (SELECT id FROM north.entry)"),
    ("SQL_UNSUPPORTED", "EXISTS", (1, 36), "SELECT id FROM north.account WHERE EXISTS (SELECT id FROM north.entry)"),
    ("SQL_UNSUPPORTED", "ROLLUP", (1, 53), "SELECT owner FROM north.account GROUP BY owner WITH ROLLUP"),
    ("SQL_UNSUPPORTED", "CUBE", (1, 42), "SELECT owner FROM north.account GROUP BY CUBE(owner)"),
    ("SQL_UNSUPPORTED", "GROUP BY ALL", None, "SELECT owner FROM north.account GROUP BY ALL"),
    ("SQL_UNSUPPORTED", "select list has 1", (1, 44), "SELECT owner FROM north.account GROUP BY   2"),
    ("SQL_UNSUPPORTED", "aggregate in GROUP BY", None, "SELECT SUM(id) AS s FROM north.account GROUP BY 1"),
    ("SQL_UNSUPPORTED", "aggregate SUM in WHERE", (1, 36), "SELECT id FROM north.account WHERE SUM(id) > 1"),
    ("SQL_UNSUPPORTED", "aggregate of an aggregate", None, "SELECT SUM(SUM(id)) AS s FROM north.account"),
    ("SQL_UNSUPPORTED", "* beside aggregates", (1, 8), "SELECT *, COUNT(*) AS n FROM north.account GROUP BY id"),
    ("SQL_UNSUPPORTED", "* EXCEPT", (1, 10), "SELECT * EXCEPT (id) FROM north.account"),
    ("SQL_UNSUPPORTED", "LATERAL VIEW", None, "SELECT id FROM north.account LATERAL VIEW explode(array(1)) t AS x"),
    ("SQL_UNSUPPORTED", "TABLESAMPLE", None, "SELECT id FROM north.account TABLESAMPLE (10 PERCENT)"),
    ("SQL_UNSUPPORTED", "VERSION AS OF", None, "SELECT id FROM north.account VERSION AS OF 3"),
    ("SQL_UNSUPPORTED", "hints", None, "SELECT /*+ BROADCAST(account) */ id FROM north.account"),
    ("SQL_UNSUPPORTED", "SELECT without FROM", None, "SELECT 1 AS one"),
    ("SQL_UNSUPPORTED", "VALUES", None, "SELECT a FROM (VALUES (1)) t(a)"),
    ("SQL_UNSUPPORTED", "WITH RECURSIVE", None, "WITH RECURSIVE t AS (SELECT id FROM north.account) SELECT id FROM t"),
    ("SQL_UNSUPPORTED", "ESCAPE", (1, 23), "SELECT owner LIKE 'a' ESCAPE '/' AS x FROM north.account"),
    ("SQL_FUNCTION_UNSUPPORTED", "SOUNDEX", (1, 8), "SELECT soundex(owner) AS x FROM north.account"),
    ("SQL_FUNCTION_UNSUPPORTED", "nearest: UPPER", (1, 8), "SELECT uper(owner) AS x FROM north.account"),
    ("SQL_FUNCTION_UNSUPPORTED", "FLOOR", (1, 8), "SELECT floor(amount) AS x FROM north.entry"),
    ("SQL_FUNCTION_UNSUPPORTED", "TRY_CAST", (1, 8), "SELECT TRY_CAST(owner AS INT) AS x FROM north.account"),
    ("SQL_FUNCTION_UNSUPPORTED", "CAST of string to int", (1, 8), "SELECT CAST(owner AS INT) AS x FROM north.account"),
    ("SQL_FUNCTION_UNSUPPORTED", "pattern", (1, 8), "SELECT owner LIKE branch AS x FROM north.account"),
    ("SQL_FUNCTION_UNSUPPORTED", "more than 38 digits", None, "SELECT CAST(amount AS DECIMAL(38,10)) * amount AS x FROM north.entry"),
    ("SQL_FUNCTION_UNSUPPORTED", "SUBSTRING", None, "SELECT SUBSTRING(owner, -2) AS x FROM north.account"),
    ("SQL_FUNCTION_UNSUPPORTED", "ROUND of double", None, "SELECT ROUND(id / 2, 1) AS x FROM north.account"),
    ("SQL_TYPE_UNSUPPORTED", "ARRAY", None, "SELECT CAST(owner AS ARRAY<INT>) AS x FROM north.account"),
    ("SQL_TYPES", "operator =: bigint and boolean", None, "SELECT id FROM north.account WHERE id = true"),
    ("SQL_TYPES", "condition of type bigint", (1, 36), "SELECT id FROM north.account WHERE id + 1"),
    ("SQL_TYPES", "SUM of string", (1, 8), "SELECT SUM(owner) AS s FROM north.account"),
    ("SQL_TYPES", "NULL without a type", None, "SELECT id, NULL AS nothing FROM north.account"),
    ("SQL_TYPES", "UNION ALL of bigint and string", None, "SELECT id FROM north.account UNION ALL SELECT owner FROM north.account"),
    ("SQL_COLUMN_COUNT", "1 and 2 columns", None, "SELECT id FROM north.account UNION ALL SELECT id, owner FROM north.account"),
    ("SQL_COLUMN_COUNT", "1 column names for 3", None, "SELECT x FROM north.account AS t(x)"),
    ("SQL_LITERAL", "'1 May'", None, "SELECT id FROM north.`Odd, Table` WHERE `a b,c` = '1 May'"),
    ("SQL_LITERAL", "'2023-02-29'", None, "SELECT DATE '2023-02-29' AS d FROM north.account"),
    ("SQL_NOT_GROUPED", "owner", (1, 12), "SELECT id, owner, COUNT(*) AS n FROM north.account GROUP BY id"),
    ("SQL_UNNAMED_COLUMN", "column 2", (1, 12), "SELECT id, id + 1 FROM north.account"),
    ("SQL_DUPLICATE_COLUMN", "named id", (1, 12), "SELECT id, owner AS id FROM north.account"),
    ("SQL_UNKNOWN_COLUMN", "did you mean owner", (1, 8), "SELECT ownr FROM north.account"),
    ("SQL_UNKNOWN_COLUMN", "a.amount", (1, 8), "SELECT a.amount FROM north.account a"),
    ("SQL_UNKNOWN_COLUMN", "USING", (1, 59), "SELECT owner FROM north.account JOIN north.entry e USING (owner)"),
    ("SQL_AMBIGUOUS_COLUMN", "a.id or e.id", (1, 8), "SELECT id FROM north.account a JOIN north.entry e ON a.id = e.account"),
    ("SQL_AMBIGUOUS_COLUMN", "ID", None, "SELECT ID FROM north.`Odd, Table`"),
    ("SQL_UNKNOWN_RELATION", "did you mean north.account", (1, 16), "SELECT id FROM north.acount"),
    ("SQL_UNKNOWN_RELATION", "entry", None, "SELECT id FROM entry"),
    ("SQL_UNKNOWN_RELATION", "hive.north.account", None, "SELECT id FROM hive.north.account"),
    ("SQL_UNKNOWN_RELATION", "x", None, "SELECT x.* FROM north.account a"),
    ("SQL_NOT_SELECT", "one SELECT", None, "DROP TABLE north.account"),
    ("SQL_NOT_SELECT", "one SELECT", None, "INSERT INTO north.account SELECT * FROM south.account"),
    ("SQL_NOT_SELECT", "one SELECT", None, "SELECT id FROM north.account; SELECT id FROM south.account"),
    ("SQL_NOT_SELECT", "one SELECT", None, "VALUES (1)"),
    ("SQL_SYNTAX", "", (2, 5), "SELECT id\nFRM north.account"),
    ("SQL_SYNTAX", "", None, "SELECT id FROM north.account WHERE owner = 'x"),
    ("SQL_SYNTAX", "", None, "SELECT (id FROM north.account"),
]  # fmt: skip
FORBIDDEN = (
    "rand()", "uuid()", "now()", "current_timestamp", "current_timestamp()", "current_date", "randn(1)",
    "unix_timestamp()", "monotonically_increasing_id()", "spark_partition_id()", "current_user()",
    "shuffle(owner)", "input_file_name()", "reflect('java.lang.System', 'exit', 1)", "version()",
    "java_method('java.util.UUID', 'randomUUID')", "first(owner)", "any_value(owner)",
)  # fmt: skip


def refusal(sql: str) -> FrescoError:
    with pytest.raises(FrescoError) as raised:
        parse(sql, RELATIONS)
    return raised.value


@pytest.mark.parametrize(("code", "names", "place", "sql"), CASES, ids=[c[3][:60] for c in CASES])
def test_a_view_is_refused_by_name(code, names, place, sql):
    error = refusal(sql)
    assert error.code == code
    assert names in str(error)
    assert error.where.startswith("line ")
    assert error.todo
    if place is not None:
        assert error.where == "line {}, column {}".format(*place)


@pytest.mark.parametrize("call", FORBIDDEN)
def test_a_function_without_a_source_state_is_forbidden_by_name(call):
    error = refusal(f"SELECT\n  {call} AS x FROM north.account")
    assert error.code == "SQL_FUNCTION_FORBIDDEN"
    assert error.what.startswith(f"function {call.split('(')[0].upper()} is ")
    assert error.where == "line 2, column 3"


def test_a_table_function_that_reads_files_is_forbidden():
    assert refusal("SELECT a FROM read_files('/etc')").code == "SQL_FUNCTION_FORBIDDEN"


def test_a_file_is_not_a_relation():
    assert refusal("SELECT a FROM parquet.`/etc/x`").code == "SQL_UNKNOWN_RELATION"


def test_the_place_names_the_file_when_there_is_one():
    with pytest.raises(FrescoError) as raised:
        parse("\n\n  SELECT nothing FROM north.account", RELATIONS, origin="views/x.sql")
    assert raised.value.where == "views/x.sql:3:10"
