"""The judge's evaluator, the plain meaning of every view set, equals SQLite over random relations."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Mapping

import pytest

from streaming.simulator.definition import defined
from streaming.simulator.small_views import ViewSet, catalog, over_relations

TWO_LEFT = "SELECT r1.A, r1.B, r2.C FROM r1 JOIN r2 ON r1.B = r2.B"
TWO_RIGHT = "SELECT r2.B, r2.C, r3.D FROM r2 JOIN r3 ON r2.C = r3.C"
ALL = "r1 JOIN r2 ON r1.B = r2.B JOIN r3 ON r2.C = r3.C"
CHAINED = f"SELECT r1.A, r1.B, r2.C, r3.D FROM {ALL}"
TOWER_2 = f"SELECT v1.A, v1.B, r3.D FROM ({TWO_LEFT}) v1 JOIN r3 ON v1.C = r3.C"
TOWER_3 = f"SELECT v2.A, v2.D, v1.C FROM ({TOWER_2}) v2 JOIN ({TWO_LEFT}) v1 ON v2.D = v1.A"
DIAMOND_3 = f"SELECT v1.A, v1.B, v2.D FROM ({TWO_LEFT}) v1 JOIN r3 v2 ON v1.C = v2.C"
B_MINUS_C = """
SELECT B FROM (SELECT B, row_number() OVER (PARTITION BY B) n FROM r1) x
WHERE n > (SELECT count(*) FROM r3 WHERE r3.C = x.B)
"""

SQL: Mapping[ViewSet, tuple[str, ...]] = {
    "chain": (CHAINED,),
    "narrow": (f"SELECT r1.A, r3.D FROM {ALL}",),
    "total": (f"SELECT A, count(*) FROM ({CHAINED}) GROUP BY A",),
    "self": ("SELECT l.A, l.B, r.B FROM r1 l JOIN r1 r ON l.B = r.A",),
    "pair": (TWO_LEFT, TWO_RIGHT),
    "mixed": (CHAINED, TWO_RIGHT, "SELECT * FROM r1 WHERE B = 1"),
    "each": ("SELECT * FROM r1", "SELECT * FROM r2", "SELECT * FROM r3"),
    "tower": (TWO_LEFT, TOWER_2, TOWER_3, TWO_RIGHT),
    "diamond": (
        TWO_LEFT,
        "SELECT * FROM r3",
        DIAMOND_3,
        f"SELECT A, count(*) FROM ({DIAMOND_3}) GROUP BY A",
        "SELECT * FROM r1 WHERE B = 1",
    ),
    "operators": (
        f"SELECT count(*), sum(C) FROM ({TWO_LEFT})",
        "SELECT A, n, s FROM r1 JOIN (SELECT B, count(*) n, sum(C) s FROM r2 GROUP BY B) t"
        " ON r1.B = t.B",
        "SELECT B FROM r1 UNION SELECT B FROM r2 UNION SELECT C FROM r3",
        f"SELECT d.B FROM (SELECT DISTINCT B FROM r2) d JOIN ({B_MINUS_C}) m ON d.B = m.B",
        "SELECT B, count(*) FROM (SELECT DISTINCT r2.B, r3.D FROM r2 JOIN r3 ON r2.C = r3.C)"
        " GROUP BY B",
    ),
}


@pytest.mark.parametrize("views", SQL)
def test_the_judge_agrees_with_sqlite(views: ViewSet) -> None:
    rng = random.Random(11)
    known = catalog(views, "bag", 3)
    trees = list(over_relations(known).values())
    db = sqlite3.connect(":memory:")
    for name, columns in (("r1", "A, B"), ("r2", "B, C"), ("r3", "C, D")):
        db.execute(f"CREATE TABLE {name} ({columns})")
    filled = 0
    for _ in range(120):
        relations: dict[str, Counter[tuple[int, ...]]] = {}
        for name in known.relations:
            rows = [(rng.randrange(3), rng.randrange(3)) for _ in range(rng.randint(0, 8))]
            relations[name] = Counter(rows)
            table = name.split(".")[1]
            db.execute(f"DELETE FROM {table}")
            db.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        for tree, text in zip(trees, SQL[views], strict=True):
            expected = Counter(db.execute(text).fetchall())
            assert Counter(defined(tree, relations)) == expected, text
            filled += bool(expected)
    assert filled > 60
