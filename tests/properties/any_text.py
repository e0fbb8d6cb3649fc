"""Texts of views that nobody means, and what has to hold of each: it is planned or refused, soon.

`python -m tests.properties.any_text SEED COUNT` tries them in a process of its own, whose memory and
time for one text are bounded; it says which text broke the rule, and ends with 1.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
from pathlib import Path

from streaming.algebra.delta import leaves
from streaming.algebra.psj import psj_of
from streaming.algebra.tree import relations
from streaming.engines.program import Program
from streaming.engines.tree_sql import tree_sql
from streaming.errors import FrescoError
from streaming.pipeline.catalog import entry_of, spec_of, tokens_of
from streaming.pipeline.view_specs import parse_view
from tests.golden.bank_relations import RELATIONS

MEMORY = 3 << 30
"""Bytes of address space of the process."""
SECONDS = 60
"""Of the processor, for one text; most take a hundredth."""
GOLDEN = Path(__file__).parent.parent / "golden" / "parse.txt"
_WORDS = (
    "SELECT FROM WHERE GROUP BY HAVING JOIN ON USING AS AND OR NOT NULL IS IN LIKE BETWEEN CASE WHEN"
    " THEN ELSE END CAST UNION ALL WITH SUM COUNT AVG UPPER COALESCE NULLIF ROUND true false int"
    " DECIMAL( ARRAY< > INTERVAL DATE EXISTS DISTINCT OVER LATERAL VALUES RECURSIVE LIMIT ORDER"
    " ( ) ( ) , . ; * + - / % = <> <=> < || :: [ ] { } -> ? @ # $ ! ~ ^ & | \\ ' \" ` '' '\\0' 'a'"
    " 0 1 1L 1e400 1.5 .5 1_000 99999999999999999999999999999999999999999 -- /* */ \0 \x1b \ud800 \xe9"
    " \u4e2d \u0663 \n a b e c id owner amount account branch north.entry e.id north.account"
    " south.account CREATE MATERIALIZED VIEW COMPLETE EVERY CONSISTENCY replica"
)
WORDS = _WORDS.split(" ")
NESTED = (
    "({})", "NOT {}", "- {}", "UPPER({})", "CAST({} AS STRING)", "CAST({} AS DECIMAL(10,2))",
    "CASE WHEN {} THEN 1 ELSE 2 END", "CASE {} WHEN 1 THEN 2 WHEN 2 THEN 1 END", "NULLIF({}, 1)",
    "{} + {}", "{} / 3", "{} % 7", "{} || 'x'", "COALESCE({}, {})", "{} BETWEEN 1 AND 2", "{} IS NULL",
    "{} OR {}", "{} AND {}", "{} IN ({}, 2)", "SUM({})", "ROUND({})", "{}[0]", "{}.a", "{}::int",
    "(SELECT {} AS id FROM north.entry)", "EXISTS (SELECT {} FROM north.entry)", "f(x -> {})",
    "INTERVAL {} DAY", "DECIMAL({})", "STRUCT<a: {}>",
)  # fmt: skip
NUMBERS = (
    "({})", "({} + 1)", "({} + id) % 1000", "CASE WHEN {} > 1 THEN {} ELSE 2 END", "NULLIF({}, 1)",
    "CASE {} WHEN 1 THEN 2 WHEN 2 THEN 1 ELSE 5 END", "COALESCE({}, 3)", "ABS({})", "- {}",
    "CASE WHEN {} IN (1, 2) OR {} IS NULL THEN 1 END", "CAST({} AS DECIMAL(19,2)) / 3",
    "CAST({} AS BIGINT)", "LENGTH(UPPER(CAST({} AS STRING)))", "CAST({} / 7 AS INT)",
)  # fmt: skip
"""Shapes that stay numbers, so that a view is often made of them."""
SOURCES = (
    "(SELECT id + 1 AS id, id AS account FROM {}) t",
    "(SELECT id, COUNT(*) AS account FROM {} GROUP BY id) t",
    "(SELECT a.id, b.id AS account FROM {} a JOIN {} b ON a.id = b.id) t",
    "(SELECT id, account FROM {} UNION ALL SELECT id, account FROM {}) t",
    "(SELECT id + id AS id, id * id AS account FROM {} WHERE id > 1 OR account < 3) t",
    "({})",
    "{} JOIN north.entry",
)


HEADERS = (
    "CREATE MATERIALIZED VIEW v AS ",
    "CREATE MATERIALIZED VIEW v WITH COMPLETE EVERY 100 CONSISTENCY USING replica AS ",
    "create materialized view /* a */ v with strong -- b\n USING recompute EVERY '5 hours' AS ",
)


class Slow(BaseException):
    """One text took more than SECONDS."""


def valid() -> list[str]:
    pairs = GOLDEN.read_text(encoding="utf-8").split("\n====\n")
    return [pair.split("\n----\n")[0].strip("\n") for pair in pairs]


def text(chance: random.Random) -> str:
    """A view file's text."""
    kind = chance.random()
    if kind < 0.15:
        select = " ".join(chance.choices(WORDS, k=chance.randint(0, 60)))
    elif kind < 0.55:
        select = mutated(chance, chance.choice(valid()))
    else:
        select = deep(chance)
    header = chance.choice(HEADERS)
    header = mutated(chance, header) if chance.random() < 0.1 else header
    return header + select


def mutated(chance: random.Random, sql: str) -> str:
    for _ in range(chance.randint(1, 4)):
        words = sql.split(" ") if chance.random() < 0.6 else list(sql)
        at, to = sorted(chance.randint(0, len(words)) for _ in range(2))
        gap = " " if len(words) < len(sql) else ""
        match chance.randint(0, 5):
            case 0:
                words[at:to] = []
            case 1:
                words[at:at] = chance.choices(WORDS, k=chance.randint(1, 3))
            case 2:
                words[at : at + 5] *= chance.choice([2, 3, 50, 300])
            case 3:
                words[at:at] = words[at:to]
            case 4:
                words[at:at] = chance.choice(valid()).split(" ")[: chance.randint(1, 12)]
            case 5:
                words[at:at] = ["7" * chance.choice([1, 20, 60, 5_000])]
        sql = gap.join(words)[:200_000]
    return sql


def deep(chance: random.Random) -> str:
    """Expressions, queries or CTEs inside each other, of many shapes and up to absurd depths."""
    depth = chance.choice([2, 5, 10, 30, 60, 99, 150, 1000])
    shapes = chance.sample(NUMBERS if chance.random() < 0.6 else NESTED, chance.randint(1, 3))
    if chance.random() < 0.5:
        return f"SELECT {inside(chance, shapes, 'id', depth)} AS x FROM north.entry"
    sources = chance.sample(SOURCES, chance.randint(1, 2))
    if chance.random() < 0.5:
        condition = inside(chance, shapes, "id", chance.choice([0, 2, 2, 20])) + " > 1"
        source = inside(chance, sources, "north.entry", depth)
        return f"SELECT id AS x FROM {source} WHERE {condition}"
    steps = ["c0 AS (SELECT id, account FROM north.entry)"]
    for at in range(min(depth, 300)):
        source = chance.choice(sources).replace("{}", f"c{at}")
        column = inside(chance, shapes, "id", chance.choice([0, 1, 2]))
        steps.append(f"c{at + 1} AS (SELECT {column} AS id, account FROM {source})")
    return f"WITH {', '.join(steps)} SELECT id FROM c{len(steps) - 1} WHERE id > 1"


def inside(chance: random.Random, shapes: list[str], inner: str, depth: int) -> str:
    for _ in range(depth):
        shape = chance.choice(shapes)
        inner = shape.replace("{}", inner) if len(inner) < 3_000 else shape.replace("{}", inner, 1)
        inner = inner.replace("{}", "id")
        if len(inner) > 300_000:
            break
    return inner


def planned(sql: str) -> bool:
    """Whether the text is a view; then everything that a plan and a start make of it is made."""
    try:
        spec = parse_view(sql, RELATIONS)
    except FrescoError as error:
        assert error.code.startswith(("SQL_", "VIEW_")) and error.where and error.todo, error
        return False
    tree = spec.tree
    tables = dict.fromkeys(relations(tree), "r")
    for dialect in ("duckdb", "spark"):
        tree_sql(tree, dialect, tables)  # type: ignore[arg-type]
        Program(tree, dialect, frozenset(leaves(tree)))  # type: ignore[arg-type]
    try:
        psj_of(tree)
    except FrescoError as error:
        assert error.code in ("VIEW_NOT_PSJ", "SQL_TOO_LARGE"), error
    entry = json.loads(json.dumps(entry_of(spec, "g")))
    assert spec_of(entry, RELATIONS).tree == tree
    tokens_of(spec.sql)
    return True


def tried(seed: int, count: int) -> int:
    """How many of the texts are views."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def slow(*_: object) -> None:
        raise Slow

    signal.signal(signal.SIGVTALRM, slow)
    views = 0
    for number in range(count):
        sql = text(random.Random(f"{seed} {number}"))
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            views += planned(sql)
        except BaseException:
            shown = ascii(sql) if len(sql) < 4000 else f"{sql[:1500]!a} ... {sql[-500:]!a}"
            print(f"seed {seed}, text {number}, {len(sql)} characters: {shown}", flush=True)
            raise
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return views


if __name__ == "__main__":
    print(tried(int(sys.argv[1]), int(sys.argv[2])))
