"""Random queries in which guards stand before what fails, over rows that need them; and chosen ones."""

from __future__ import annotations

import random
from decimal import Decimal

from streaming.algebra.tree import Relation
from streaming.scalars.expression import Column

Row = tuple[object, ...]
LEAST, MOST = -(2**31), 2**31 - 1
TYPED = {
    "t": {"k": "int", "i": "int", "n": "int", "b": "bigint", "m": "decimal(38,2)"},
    "u": {"j": "int", "v": "int"},
}
RELATIONS = {
    f"s.{name}": Relation(f"s.{name}", tuple(Column(c, t) for c, t in columns.items()))
    for name, columns in TYPED.items()
}
CHOSEN = (
    "SELECT k FROM t WHERE i - 10 = 10",  # an optimizer may turn it into i = 20
    "SELECT k FROM t WHERE NOT (10 - i < 3)",
    "SELECT k, i - 10 = 10 AS x, 2 * i >= 4 AS y FROM t",
    "SELECT k, (i - 10) IS NULL AS x FROM t",
    "SELECT k, (i - 10) <=> 10 AS x FROM t",
    "SELECT k, CAST(b AS INT) = 3 AS x FROM t",
    "SELECT k, (i - 10) BETWEEN 1 AND 5 AS x FROM t",
    "SELECT k, (i - 10) + NULLIF(1, 1) AS x FROM t",
    "SELECT i, SUM(k) AS s FROM t GROUP BY i HAVING i - 10 = 10",
    "SELECT k FROM t WHERE i <> 0 AND 10 / i > 1",
    "SELECT k FROM t WHERE n > 1 AND 10 % i > 1",
    "SELECT k, i <> 0 AND 10 / i > 1 AS x FROM t",
    "SELECT k, i = 0 OR 10 / i > 1 AS x FROM t",
    "SELECT k, n > 1 AND 10 % i > 1 AS x FROM t",
    "SELECT k, CASE WHEN i <> 0 THEN 10 / i ELSE -1 END AS x FROM t",
    "SELECT k, COALESCE(n, 10 % i) AS x FROM t",
    "SELECT k, IF(i = 0, 0, 10 % i) AS x, NULLIF(i, 0) % 3 AS y FROM t",
    "SELECT k, 10 / NULLIF(i, 0) AS x FROM t",
    "SELECT k, n + 10 % i AS x FROM t",
    "SELECT k, 10 % i + n AS x FROM t",
    "SELECT k, (10 % i) / n AS x FROM t",
    "SELECT k, n IN (3, 10 % i) AS x FROM t",
    "SELECT k, n BETWEEN 10 % i AND 2 AS x FROM t",
    "SELECT k, n <=> 10 % i AS x FROM t",
    "SELECT k, v FROM t JOIN u ON k = j AND i <> 0 AND 10 / i > v",
    "SELECT k, v FROM t JOIN u ON k = j WHERE 10 % i < 5 AND i <> 0",
    "SELECT k, v FROM t JOIN u ON k = j AND v < i WHERE 10 % i > -1 AND n > 0",
    "SELECT k, x FROM (SELECT k, 10 % i AS x FROM t) q JOIN u ON k = j",
    "SELECT k, x FROM (SELECT k, i, 10 % i AS x FROM t) q WHERE i <> 0",
    "SELECT k, CASE WHEN i <> 0 THEN x END AS y FROM (SELECT k, i, 10 % i AS x FROM t) q",
    "SELECT k FROM (SELECT k, 10 % i AS x FROM t) q",
    "SELECT i, SUM(10 % i) AS s FROM t GROUP BY i HAVING i > 0",
    "SELECT i, SUM(b) AS s FROM t GROUP BY i HAVING COUNT(n) > 0 AND 10 / i > 1",
    "SELECT x FROM (SELECT i AS x FROM t UNION ALL SELECT v FROM u) q WHERE x <> 0 AND 10 / x > 1",
    "SELECT k, m * m AS x FROM t WHERE m BETWEEN -1000 AND 1000",
    "SELECT k, -b AS x, ABS(b) AS y FROM t WHERE b > -9223372036854775808",
    "SELECT k, CAST(i AS TINYINT) AS x FROM t WHERE i BETWEEN -128 AND 127",
)
"""By kind of guard and place."""


def row(rng: random.Random, name: str) -> Row:
    """A row of the relation, few values so that rows meet."""
    small = [0, 0, 1, 2, 3, None, -1, LEAST, MOST]
    if name == "u":
        return rng.choice([0, 1, 2, 3]), rng.choice(small)
    wide = [0, 1, -1, 2**63 - 1, -(2**63), None]
    money = [Decimal("0.00"), Decimal("1.50"), Decimal("9" * 36 + ".99"), None]
    return (
        rng.choice([0, 1, 2, 3]), rng.choice(small), rng.choice(small), rng.choice(wide),
        rng.choice(money),
    )  # fmt: skip


def number(rng: random.Random, depth: int, columns: str) -> str:
    """An expression that is an integer and may fail."""
    if depth == 0:
        return rng.choice([*columns, "1", "10"])
    one, two = number(rng, depth - 1, columns), number(rng, rng.randrange(depth), columns)
    test = condition(rng, depth - 1, columns)
    return rng.choice(
        [
            *(f"({one} {operator} {two})" for operator in "%%%+-*"),
            f"CASE WHEN {test} THEN {one} ELSE {two} END",
            f"IF({test}, {one}, {two})",
            *(f"{name}({one}, {two})" for name in ("COALESCE", "NULLIF")),
            f"(- {one})",
            f"ABS({one})",
            f"CAST({one} AS SMALLINT)",
        ]
    )


def condition(rng: random.Random, depth: int, columns: str) -> str:
    """An expression that is true or false and may fail."""
    if depth == 0:
        guard = rng.choice(columns)
        return rng.choice([f"{guard} <> 0", f"{guard} > 0", f"{guard} IS NULL"])
    one, two = (number(rng, rng.randrange(depth), columns) for _ in range(2))
    here, there = condition(rng, depth - 1, columns), condition(rng, rng.randrange(depth), columns)
    return rng.choice(
        [
            *(
                f"({a} {word} {b})"
                for word in ("AND", "OR")
                for a, b in ((here, there), (there, here))
            ),
            f"(NOT {here})",
            *(f"({one} {operator} {two})" for operator in ("=", "<", ">=", "<=>")),
            f"({one} / {two} > 1)",
            f"({one} IN (1, {two}))",
            f"({one} BETWEEN 0 AND {two})",
        ]
    )


def query(rng: random.Random) -> str:
    """A view's text."""
    e, c, d = number(rng, 2, "inb"), condition(rng, 2, "inb"), condition(rng, 1, "in")
    f = condition(rng, 2, "inv")
    return rng.choice(
        [
            f"SELECT k, {e} AS x FROM t",
            f"SELECT k, {c} AS x FROM t",
            f"SELECT k FROM t WHERE {d} AND {c}",
            f"SELECT k, v FROM t JOIN u ON k = j AND {f} WHERE {c} AND {d}",
            f"SELECT k, {e} AS x FROM t JOIN u ON k = j WHERE {d}",
            f"SELECT k, v, x FROM (SELECT k, {e} AS x FROM t WHERE {d}) q JOIN u ON k = j",
            f"SELECT i, SUM({e}) AS s FROM t GROUP BY i HAVING {condition(rng, 2, 'i')}",
            f"SELECT x FROM (SELECT {e} AS x FROM t UNION ALL SELECT v FROM u) q"
            " WHERE x > 0 AND 9 % x > 1",
        ]
    )
