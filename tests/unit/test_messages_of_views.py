# ruff: noqa: E501  (tables, one text a line)
"""A refusal speaks of the construct in the words of the text, at its place, with a remedy that works."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import duckdb
import pytest
from sqlglot import exp
from sqlglot.tokens import TokenType

from streaming.algebra.bag import bag, evaluate
from streaming.errors import FrescoError
from streaming.sql.parse import parse
from tests.golden.accepted_texts import RELATIONS, ROWS
from tests.golden.refused_texts import REFUSED, TOLD
from tests.properties.trees import arrow_table

CODES = {
    "SQL_UNSUPPORTED", "SQL_FUNCTION_UNSUPPORTED", "SQL_FUNCTION_FORBIDDEN", "SQL_TYPE_UNSUPPORTED", "SQL_NOT_SELECT",
}  # fmt: skip
KINDS = [k for k in vars(exp).values() if isinstance(k, type) and issubclass(k, exp.Expr)]
INTERNAL = (
    {kind.key for kind in KINDS if len(re.findall("[A-Z][a-z]", kind.__name__)) > 1}
    | {name for kind in KINDS for name in kind.arg_types if "_" in name}
    | {token.name.lower() for token in TokenType if "_" in token.name}
    | {"isdistinct", "isnotnull", "neg", "nullsafeeq", "nullsafeneq", "intdiv", "trycast"}
)
"""Names of sqlglot's own and of this builder, those left out that are plain words too."""


def refused(text: str) -> FrescoError:
    with pytest.raises(FrescoError) as raised:
        parse(text, RELATIONS)
    return raised.value


def internal_words(error: FrescoError, text: str) -> set[str]:
    """Names of sqlglot's own that the text does not hold."""
    words = {word.lower() for word in re.findall(r"[A-Za-z_]+", error.what)}
    return (words & INTERNAL) - {word.lower() for word in re.findall(r"[A-Za-z_]+", text)}


@pytest.mark.parametrize("marked", REFUSED)
def test_a_refusal_names_the_construct_as_it_is_written_and_where(marked):
    before, word, after = re.fullmatch("(.*)«(.*)»(.*)", marked, re.DOTALL).groups()
    text = before + word + after
    error = refused(text)
    assert error.code in CODES
    assert TOLD.get(word, word).lower() in error.what.lower()
    assert error.where == f"line 1, column {len(before) + 1}"
    assert error.todo
    assert not internal_words(error, text)


@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        ("SELECT k FROM r WHERE st IS DISTINCT FROM bo", "SQL_TYPES", "operator IS DISTINCT FROM: "),
        ("SELECT k FROM r WHERE st IS NOT DISTINCT FROM bo", "SQL_TYPES", "operator IS NOT DISTINCT FROM: "),
        ("SELECT k FROM r WHERE st <=> bo", "SQL_TYPES", "operator <=>: "),
        ("SELECT k FROM r WHERE k != bo", "SQL_TYPES", "operator !=: int and boolean"),
        ("SELECT k FROM r WHERE k and bo", "SQL_TYPES", "operator AND: "),
        ("SELECT k + 1 AS a FROM r WHERE a > 1", "SQL_UNKNOWN_COLUMN", "a is a name that this select list gives"),
        ("SELECT k + 1 AS a, a + 1 AS b FROM r", "SQL_UNKNOWN_COLUMN", "a is a name that this select list gives"),
        ("SELECT k FROM r WHERE SUM(k) > 1", "SQL_UNSUPPORTED", "the aggregate SUM in WHERE"),
        ("SELECT k FROM r WHERE k > (SELECT SUM(k) FROM q)", "SQL_UNSUPPORTED", "a subquery inside an expression"),
        ("SELECT k FROM r JOIN q ON SUM(q.k) > 1", "SQL_UNSUPPORTED", "the aggregate SUM"),
        ("SELECT UPPER(st, u) AS x FROM r", "SQL_FUNCTION_UNSUPPORTED", "function UPPER of 2 arguments"),
        ("SELECT SUM(k, i) AS x FROM r", "SQL_UNSUPPORTED", "SUM of 2 arguments"),
        ("SELECT k FROM r WHERE NULL", "SQL_TYPES", "a condition of type void"),
        ("SELECT k, FROM r", "SQL_SYNTAX", ", is not expected here"),
        ("SELECT k FROM r GROUP BY k WHERE k = 1", "SQL_SYNTAX", "GROUP is not expected here"),
        ("SELECT 1e400 AS x FROM r", "SQL_LITERAL", "1e400 is not a literal of type double"),
        ("SELECT 300Y AS x FROM r", "SQL_LITERAL", "300Y is not a literal of type tinyint"),
        ("SELECT k FROM r WHERE i = '1_000'", "SQL_LITERAL", "'1_000' is not a literal of type bigint"),
        ("SELECT k FROM r WHERE i = '\u0661'", "SQL_LITERAL", "is not a literal of type bigint"),
        ("SELECT k AS \u00e9 FROM r", "SQL_SYNTAX", "\u00e9"),
        ("SELECT '\\ud83d' AS x FROM r", "SQL_LITERAL", "half a character"),
        ("SELECT 1 FROM r", "SQL_UNNAMED_COLUMN", "output column 1"),
        ("SELECT 'a' FROM r", "SQL_UNNAMED_COLUMN", "output column 1"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_is_wrong(text, code, what):
    error = refused(text)
    assert error.code == code
    assert what in error.what
    assert not internal_words(error, text)


REMEDIES = [
    ("SELECT bo, COUNT(DISTINCT t) AS n FROM r GROUP BY bo", "SELECT k, COUNT(x) AS n FROM (SELECT k, x FROM ... GROUP BY k, x) AS d GROUP BY k",
     "SELECT bo, COUNT(t) AS n FROM (SELECT bo, t FROM r GROUP BY bo, t) AS d GROUP BY bo"),
    ("SELECT DISTINCT st FROM q", "group by all columns instead", "SELECT st FROM q GROUP BY st"),
    ("SELECT k FROM r UNION SELECT k FROM q", "write UNION ALL, and group by all columns",
     "SELECT k FROM (SELECT k FROM r UNION ALL SELECT k FROM q) AS u GROUP BY k"),
    ("SELECT k FROM r WHERE st IN (SELECT st FROM q)", "(SELECT y FROM ... GROUP BY y) AS d ON x = d.y",
     "SELECT r.k FROM r JOIN (SELECT st FROM q GROUP BY st) AS d ON r.st = d.st"),
    ("SELECT k FROM r WHERE EXISTS (SELECT 1 FROM q WHERE q.st = r.st)", "(SELECT y FROM ... GROUP BY y) AS d ON x = d.y",
     "SELECT r.k FROM r JOIN (SELECT st FROM q GROUP BY st) AS d ON r.st = d.st"),
    ("SELECT k FROM r WHERE k < (SELECT SUM(k) FROM q)", "CROSS JOIN (SELECT SUM(x) AS s FROM ...) AS q, and use q.s",
     "SELECT r.k FROM r CROSS JOIN (SELECT SUM(k) AS s FROM q) AS q WHERE r.k < q.s"),
    ("SELECT SUM(k) FILTER (WHERE bo) AS s FROM r", "SUM(CASE WHEN condition THEN value END)",
     "SELECT SUM(CASE WHEN bo THEN k END) AS s FROM r"),
    ("SELECT k + 1 AS a FROM r WHERE a > 1", "SELECT a FROM (SELECT ... AS a FROM ...) AS q",
     "SELECT a FROM (SELECT k + 1 AS a FROM r) AS q WHERE a > 1"),
]  # fmt: skip


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(config={"threads": 1})
    for name in ("r", "q"):
        table = arrow_table(RELATIONS[name].schema, ROWS[name])
        connection.register("rows", table.rename_columns([c.name for c in RELATIONS[name].schema]))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM rows")
    yield connection
    connection.close()


@pytest.mark.parametrize(("text", "remedy", "done"), REMEDIES)
def test_a_remedy_that_is_sql_is_accepted_and_means_what_was_refused(text, remedy, done, duck):
    """DuckDB runs the refused text itself."""
    assert remedy in refused(text).todo
    found = evaluate(parse(done, RELATIONS), {name: bag(rows) for name, rows in ROWS.items()})
    assert Counter(found) == Counter(duck.execute(text).fetchall())
    assert found
