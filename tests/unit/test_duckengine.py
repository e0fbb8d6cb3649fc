"""Joins of Arrow tables find what joins of DuckDB's own tables find, whatever their values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streaming.engines.duck_engine import duck_engine, offer

DAYS = [-719_528, -735_160, 2_147_483_647, -2_147_483_647, 5, 2_932_896, -719_162]
MOMENTS = [9_223_372_036_825_200_000, -9_223_372_036_832_400_000, -62_167_219_200_000_005, 7, 0]
KEYS = {
    "date": pa.array(DAYS, pa.int32()).view(pa.date32()),
    "timestamp": pa.array(MOMENTS, pa.int64()).view(pa.timestamp("us")),
    "timestamp with zone": pa.array(MOMENTS, pa.int64()).view(pa.timestamp("us", "UTC")),
    "double": pa.array([float("nan"), float("inf"), -0.0, 1.5]),
    "text": pa.array(["", "\0", "é", "z" * 300]),
    "bytes": pa.array([b"", b"\0", b"\xff"]),
    "bigint": pa.array([-(1 << 63), (1 << 63) - 1, 0]),
}
JOINS = (
    "SELECT v.n, r.n FROM {a} v JOIN {b} r ON v.k = r.k",
    "SELECT v.n, r.n FROM {a} v LEFT JOIN {b} r ON v.k = r.k",
    "SELECT v.n FROM {a} v SEMI JOIN {b} r ON v.k IS NOT DISTINCT FROM r.k",
    "SELECT v.n FROM {a} v ANTI JOIN {b} r ON v.k = r.k",
    "SELECT v.n FROM {a} v WHERE v.k IN (SELECT k FROM {b} WHERE n < 1)",
)


@pytest.mark.parametrize("type_", KEYS)
def test_a_join_finds_every_key(type_: str) -> None:
    db = duck_engine(1)
    db.execute("SET TimeZone = 'UTC'")
    keys = KEYS[type_]
    for name, some in (("a", keys), ("b", keys), ("one", keys[:1])):
        rows = pa.table({"n": range(len(some)), "k": some})
        offer(db, f"offered_{name}", rows)
        db.register(f"given_{name}", rows)
        db.execute(f"CREATE TABLE own_{name} AS FROM given_{name}")
    for join in JOINS:
        for other in ("b", "one"):
            found = [
                sorted(
                    db.execute(join.format(a=f"{way}_a", b=f"{way}_{other}")).fetchall(), key=str
                )
                for way in ("own", "offered", "given")
            ]
            assert found[0] or "ANTI" in join
            assert found[1] == found[0] == found[2], (join, other)


def test_no_other_engine_is_made() -> None:
    root = Path(__file__).parents[2] / "streaming"
    made = [str(one) for one in root.rglob("*.py") if "duckdb.connect(" in one.read_text()]
    assert made == [str(root / "engines/duck_engine.py")]
