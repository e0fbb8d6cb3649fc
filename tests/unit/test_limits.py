"""How large a view may be: whatever text is read is planned and computed right, or refused by name.

The right rows are said here in plain Python, so that neither the parser nor an engine judges itself.
"""

from __future__ import annotations

import time

import duckdb
import pytest

from streaming.algebra.bag import evaluate
from streaming.algebra.delta import leaves
from streaming.algebra.expanded import expanded
from streaming.algebra.psj import psj_of
from streaming.algebra.tree import Project, Relation, Select, relations, walk
from streaming.ask.mariadb import mysql_filter
from streaming.engines.program import Program
from streaming.engines.sql_text import scalar_sql
from streaming.engines.tree_sql import tree_sql
from streaming.errors import FrescoError
from streaming.pipeline.view_file import read_header
from streaming.scalars.expression import Call, Column, weight
from streaming.scalars.limits import MERGED, NESTED, TEXT
from streaming.sql.parse import parse

WIDTH = 500
RELATIONS = {
    "n.r": Relation("n.r", (Column("a", "bigint"), Column("s", "string")), (0,)),
    "n.wide": Relation("n.wide", tuple(Column(f"k{i}", "bigint") for i in range(WIDTH)), (0,)),
}
ROWS = [(a, f"x{a}") for a in range(-3, 6)]
WIDE = [tuple(i + j for i in range(WIDTH)) for j in range(3)]
STEP = "(a + a % 7 + a % 5 + a % 3) % 1000"


def counted(rows):
    found = {}
    for row in rows:
        found[row] = found.get(row, 0) + 1
    return found


def computed(sql: str) -> dict:
    """The view's bag, which both evaluators have to agree on."""
    tree = parse(sql, RELATIONS)
    with duckdb.connect() as connection:
        for name, rows in (("r", ROWS), ("wide", WIDE)):
            types = ["bigint", "varchar"] if name == "r" else ["bigint"] * WIDTH
            columns = ", ".join(f"c{i} {type_}" for i, type_ in enumerate(types))
            connection.execute(f"CREATE TABLE {name}({columns})")
            connection.execute(
                f"INSERT INTO {name} VALUES " + ", ".join(str(tuple(row)) for row in rows)
            )
        text = tree_sql(tree, "duckdb", {"n.r": "r", "n.wide": "wide"})
        duck = counted(connection.execute(text).fetchall())
    bags = {"n.r": counted(ROWS), "n.wide": counted(WIDE)}
    assert duck == evaluate(tree, bags)
    return duck


def chain(count: int, last: str = "SELECT a FROM c{}") -> str:
    steps = [f"c{i + 1} AS (SELECT {STEP} AS a FROM c{i})" for i in range(count)]
    return f"WITH c0 AS (SELECT a FROM n.r), {', '.join(steps)} {last.format(count)}"


def stepped(value: int, count: int) -> int:
    def rest(number, by):
        return abs(number) % by * (1 if number >= 0 else -1)

    for _ in range(count):
        value = rest(value + rest(value, 7) + rest(value, 5) + rest(value, 3), 1000)
    return value


@pytest.mark.parametrize("count", [3, 7, 60])
def test_a_chain_of_ctes_that_use_a_column_four_times_stays_as_large_as_its_text(count):
    sql = chain(count)
    assert parse(sql, RELATIONS).weight < 400 * count + MERGED
    assert computed(sql) == counted((stepped(a, count),) for a, _ in ROWS)


def test_a_condition_over_such_a_chain_stays_above_what_it_would_copy():
    sql = chain(20, "SELECT a FROM c{} WHERE a > 3 AND a <> 8")
    kept = [stepped(a, 20) for a, _ in ROWS]
    assert computed(sql) == counted((a,) for a in kept if a > 3 and a != 8)


def test_a_condition_over_a_union_of_many_is_not_copied_to_each():
    union = " UNION ALL ".join(["SELECT a FROM n.r"] * 200)
    condition = " OR ".join(f"a = {i}" for i in range(2, 102))
    tree = parse(f"SELECT a FROM ({union}) u WHERE {condition}", RELATIONS)
    assert tree.weight < 200 * 10 + 100 * 10
    assert computed(f"SELECT a FROM ({union}) u WHERE {condition}") == {
        (a,): 200 for a, _ in ROWS if a >= 2
    }


def test_small_projections_are_merged_as_ever():
    tree = parse("SELECT a + a AS b FROM (SELECT a * 2 AS a FROM n.r) t", RELATIONS)
    assert sum(isinstance(node, Project) for node in walk(tree)) == 2  # the relation's, and one
    tree = parse("SELECT a FROM (SELECT a * 2 AS a FROM n.r) t WHERE a > 2", RELATIONS)
    (select,) = [node for node in walk(tree) if isinstance(node, Select)]
    assert not isinstance(select.child, Project)


WIDE_AND_DEEP = {
    "500 ORed terms": (
        "SELECT a FROM n.r WHERE " + " OR ".join(f"a = {i}" for i in range(2, 502)),
        [(a,) for a, _ in ROWS if a >= 2],
    ),
    "500 ANDed terms": (
        "SELECT a FROM n.r WHERE " + " AND ".join(f"a <> {i}" for i in range(2, 502)),
        [(a,) for a, _ in ROWS if a < 2],
    ),
    "500 ORed terms over groups": (
        "SELECT a, SUM(a) AS n FROM n.r GROUP BY a HAVING "
        + " OR ".join(f"SUM(a) = {i}" for i in range(2, 502)),
        [(a, a) for a, _ in ROWS if a >= 2],
    ),
    "ORed terms that begin with a grouped one": (
        "SELECT a = 1 OR a = 2 OR COUNT(*) = 1 AS c FROM n.r GROUP BY a = 1 OR a = 2",
        [(True,), (False,)],
    ),
    "1,000 items of IN": (
        f"SELECT a FROM n.r WHERE a IN ({', '.join(map(str, range(2, 1002)))})",
        [(a,) for a, _ in ROWS if a >= 2],
    ),
    "nested parentheses": (
        f"SELECT {'(' * NESTED}a{')' * NESTED} AS x FROM n.r",
        [(a,) for a, _ in ROWS],
    ),
    "300 branches": (
        f"SELECT CASE a {' '.join(f'WHEN {i} THEN {i * 2}' for i in range(300))} END AS x FROM n.r",
        [(a * 2 if a >= 0 else None,) for a, _ in ROWS],
    ),
    "nested CASEs": (
        f"SELECT {'CASE WHEN a = 3 THEN 1 ELSE ' * 90}a{' END' * 90} AS x FROM n.r",
        [(1 if a == 3 else a,) for a, _ in ROWS],
    ),
    "many columns": (
        f"SELECT {', '.join(f'k{i} + 1 AS y{i}' for i in range(WIDTH))} FROM n.wide",
        [tuple(value + 1 for value in row) for row in WIDE],
    ),
    "many sums": (
        f"SELECT {', '.join(f'SUM(k{i}) AS y{i}' for i in range(WIDTH))} FROM n.wide",
        [tuple(map(sum, zip(*WIDE, strict=True)))],
    ),
    "100 CTEs": (
        "WITH "
        + ", ".join(f"c{i} AS (SELECT a + {i} AS a FROM n.r)" for i in range(100))
        + " "
        + " UNION ALL ".join(f"SELECT a FROM c{i}" for i in range(100)),
        [(a + i,) for a, _ in ROWS for i in range(100)],
    ),
    "nested subqueries": (
        f"SELECT a FROM {'(SELECT a + 1 AS a FROM ' * 90}n.r{')' * 90}",
        [(a + 90,) for a, _ in ROWS],
    ),
    "nested GROUP BYs": (
        f"SELECT a FROM {'(SELECT SUM(a) AS a, a AS b FROM ' * 16}n.r{' GROUP BY a)' * 16}",
        [(a,) for a, _ in ROWS],
    ),
    "500 queries of UNION ALL": (
        " UNION ALL ".join(["SELECT a FROM n.r"] * 500),
        [(a,) for a, _ in ROWS] * 500,
    ),
    "a sum of 60": (
        f"SELECT {' + '.join(['a'] * 60)} AS x FROM n.r",
        [(a * 60,) for a, _ in ROWS],
    ),
    "a long text": (
        f"SELECT '{'x' * (TEXT - 100)}' AS x FROM n.r",
        [("x" * (TEXT - 100),)] * len(ROWS),
    ),
    "a CTE used twice, four times over": (
        "WITH c0 AS (SELECT a FROM n.r), "
        + ", ".join(
            f"c{i + 1} AS (SELECT x.a FROM c{i} x JOIN c{i} y ON x.a = y.a)" for i in range(4)
        )
        + " SELECT a FROM c4",
        [(a,) for a, _ in ROWS],
    ),
}


@pytest.mark.parametrize("name", WIDE_AND_DEEP)
def test_wide_and_deep_texts_are_computed_right(name):
    sql, rows = WIDE_AND_DEEP[name]
    assert computed(sql) == counted(rows)


REFUSED = {
    "a CTE used twice, fifty times over": (
        "SQL_TOO_LARGE",
        "WITH c0 AS (SELECT a FROM n.r), "
        + ", ".join(
            f"c{i + 1} AS (SELECT x.a FROM c{i} x JOIN c{i} y ON x.a = y.a)" for i in range(50)
        )
        + " SELECT a FROM c50",
    ),
    "too many parentheses": (
        "SQL_TOO_DEEP",
        f"SELECT {'(' * 101}a{')' * 101} AS x FROM n.r",
    ),
    "100,000 parentheses that stay open": ("SQL_TOO_DEEP", "SELECT " + "(" * 100_000),
    "many NOTs": ("SQL_TOO_DEEP", f"SELECT {'NOT ' * 5000}a = 1 AS x FROM n.r"),
    "300 NOTs": ("SQL_TOO_DEEP", f"SELECT {'NOT ' * 300}a = 1 AS x FROM n.r"),
    "a long sum": ("SQL_TOO_DEEP", f"SELECT {' + '.join(['a'] * 5000)} AS x FROM n.r"),
    "nested NULLIFs": (
        "SQL_TOO_LARGE",
        f"SELECT {'NULLIF(' * 40}a{', 9)' * 40} AS x FROM n.r",
    ),
    "nested operands of CASE": (
        "SQL_TOO_LARGE",
        f"SELECT {'CASE ' * 40}a{' WHEN 1 THEN 2 WHEN 3 THEN 4 ELSE 5 END' * 40} AS x FROM n.r",
    ),
    "nested UPPERs": (
        "SQL_TOO_LARGE",
        f"SELECT {'UPPER(' * 8}s{')' * 8} AS x FROM n.r",
    ),
    "17 GROUP BYs": (
        "SQL_TOO_DEEP",
        f"SELECT a FROM {'(SELECT SUM(a) AS a, a AS b FROM ' * 17}n.r{' GROUP BY a)' * 17}",
    ),
    "half of a character": ("SQL_SYNTAX", "SELECT '\ud800' AS x FROM n.r"),
    "no column": ("SQL_SYNTAX", "SELECT FROM n.r"),
    "types inside types": (
        "SQL_TOO_DEEP",
        f"SELECT CAST(a AS {'DECIMAL(' * 40}1{')' * 40}) AS x FROM n.r",
    ),
    "joins without ON": ("SQL_TOO_DEEP", "SELECT 1 AS x FROM n.r" + " JOIN n.r" * 40),
    "a text too long": ("SQL_TOO_LARGE", f"SELECT '{'x' * TEXT}' AS x FROM n.r"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_too_large_is_refused_soon_with_a_place_and_a_remedy(name):
    code, sql = REFUSED[name]
    began = time.process_time()
    with pytest.raises(FrescoError) as caught:
        parse(sql, RELATIONS)
    assert (caught.value.code, bool(caught.value.where), bool(caught.value.todo)) == (
        code,
        True,
        True,
    )
    assert time.process_time() - began < 20


def test_a_plan_of_many_joins_takes_no_longer_than_its_text():
    """Its parts are shared: with a hash over all of them 18 joins took 6 s, each more twice that."""
    joins = "".join(f" JOIN n.r t{i} ON t{i}.a = t{i - 1}.a" for i in range(1, 60))
    tree = parse(f"SELECT t0.a, COUNT(*) AS n FROM n.r t0{joins} GROUP BY t0.a", RELATIONS)
    began = time.process_time()
    program = Program(tree, "duckdb", frozenset(leaves(tree)))
    assert program.answer is not None
    assert time.process_time() - began < 20


def test_views_that_join_their_parent_with_itself_are_expanded_only_while_they_are_small():
    parent, views = "n.r", {}
    for level in range(40):
        known = {parent: Relation(parent, (Column("a", "bigint"),), (0,))}
        sql = f"SELECT x.a FROM {parent} x JOIN {parent} y ON x.a = y.a"
        parent = f"v{level}"
        views[parent] = parse(sql, known)
    with pytest.raises(FrescoError, match="SQL_TOO_LARGE"):
        expanded(views["v39"], views)
    assert relations(expanded(views["v3"], views)) == ("n.r",)


def test_a_view_that_asks_its_sources_is_refused_where_its_steps_cannot_stay_apart():
    with pytest.raises(FrescoError, match="SQL_TOO_LARGE"):
        psj_of(parse(chain(30), RELATIONS))
    assert len(psj_of(parse(chain(2), RELATIONS)).outputs) == 1


def test_the_remedy_for_an_expression_that_is_too_large_helps():
    inner = f"SELECT {'NULLIF(' * 10}a{', 9)' * 10} AS a FROM n.r"
    outer = f"SELECT {'NULLIF(' * 10}a{', 8)' * 10} AS a FROM ({inner}) t"
    assert computed(outer) == counted((a,) for a, _ in ROWS)


@pytest.mark.parametrize("condition", ["true", "1 = 1", "COUNT(*) > 1", "1 = 2"])
def test_having_alone_makes_one_group_of_all_rows(condition):
    found = computed(f"SELECT 1 AS one FROM n.r HAVING {condition}")
    assert found == ({} if condition == "1 = 2" else {(1,): 1})
    assert computed(f"SELECT 1 AS one FROM n.r WHERE a > 99 HAVING {condition}") == (
        {} if condition in ("1 = 2", "COUNT(*) > 1") else {(1,): 1}
    )


@pytest.mark.parametrize("text", ["\0", "a\0b", "\0\0", "it's \0\\", "\t\x01\x1b\x7f"])
def test_a_text_with_control_characters_is_a_text_in_each_engine(text):
    literal = text.replace("\\", "\\\\").replace("\0", "\\0").replace("'", "\\'")
    sql = (
        f"SELECT '{literal}' AS x, a FROM n.r WHERE s <> '{literal}' AND s NOT IN ('{literal}', '')"
    )
    assert computed(sql) == {(text, a): 1 for a, _ in ROWS}


def test_no_database_is_asked_for_a_text_with_nul():
    tree = parse(r"SELECT a FROM n.r WHERE s = 'a\0b'", RELATIONS)
    (select,) = [node for node in walk(tree) if isinstance(node, Select)]
    assert mysql_filter.weaker([select.condition], ["a", "s"]) == []
    plain = parse("SELECT a FROM n.r WHERE s = 'ab'", RELATIONS)
    (select,) = [node for node in walk(plain) if isinstance(node, Select)]
    assert len(mysql_filter.weaker([select.condition], ["a", "s"])) == 1


def test_a_weight_is_no_less_than_what_the_engines_texts_say():
    """`tree._TEXTS` against `renderings`: how often each function's text names its argument."""

    def named(sql: str) -> None:
        tree = parse(f"SELECT {sql} AS x FROM n.r", RELATIONS)
        (call,) = [
            e
            for n in walk(tree)
            if isinstance(n, Project)
            for e in n.expressions
            if isinstance(e, Call)
        ]
        for dialect in ("duckdb", "spark"):
            text = scalar_sql(call, dialect, ["@@", "@@"])
            assert text.count("@@") < weight(call), (sql, dialect)

    for sql in (
        "UPPER(s)",
        "LOWER(s)",
        "TRIM(s)",
        "LENGTH(s)",
        "a % 3",
        "a / 3",
        "a + 1",
        "-a",
        "ABS(a)",
        "CAST(a AS DECIMAL(19,2)) / CAST(a AS DECIMAL(10,2))",
        "NULLIF(a, 1)",
        "a BETWEEN 1 AND 2",
        "CAST(CAST(a AS DECIMAL(20,3)) AS DOUBLE)",
        "CAST(CAST(a AS DECIMAL(20,3)) AS INT)",
        "CAST(a AS DECIMAL(19,2)) % CAST(a AS DECIMAL(10,2))",
        "SUBSTRING(s, 1, 2)",
        "s || s",
    ):
        named(sql)


@pytest.mark.parametrize(
    "clause",
    [
        f"WITH COMPLETE EVERY {'9' * 5_000} CONSISTENCY",
        f"WITH {'x' * 100_000} CONSISTENCY",
        f"USING replica EVERY '{'9' * 5_000} minutes'",
        "USING replica EVERY '\N{ARABIC-INDIC DIGIT THREE} minutes'",
    ],
)
def test_a_header_of_any_size_is_refused_in_a_few_words(clause):
    with pytest.raises(FrescoError, match="VIEW_") as caught:
        read_header(f"CREATE MATERIALIZED VIEW v {clause} AS SELECT 1")
    assert len(str(caught.value)) < 600
