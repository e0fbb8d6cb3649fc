"""`verify` has Spark run each view's text: a mistake that our reading and DuckDB's share is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming.algebra.tree import Relation
from streaming.proof import recomputed
from streaming.proof.verdicts import Judged, Verdict, verify_pipeline
from streaming.scalars import written
from streaming.scalars.expression import Column
from streaming.scalars.types import arrow_type
from tests.unit.recorded_views import Recorded, Rows
from tests.unit.verified_bank import Bank, transfers

PERSON = (Column("id", "int"), Column("name", "string"))
PEOPLE = Relation("s.people", PERSON, (0,))
NAMES = ("Anna", "O'Brien", "OBrien", "Bert")


def line(verdict: Verdict, name: str) -> Judged:
    return next(one for one in verdict.lines if one.name == name)


def recorded(folder: Path, sql: str, shown: Sequence[str], level: str = "") -> None:
    """A pipeline whose view over `NAMES`, one a number, was maintained as if it showed these names."""
    made = Recorded(folder, [PEOPLE], {"v": sql}, level)
    rows: Rows = [(number, 1, number, name) for number, name in enumerate(NAMES)]
    made.record({"s.people": rows})
    for number in range(len(NAMES)):
        made.publish(number, number, {"v": [r for r in rows if r[0] == number and r[3] in shown]})


def misread(monkeypatch: pytest.MonkeyPatch, mistake: Callable[[str], str]) -> None:
    """What sqlglot would do to DuckDB's text if it made this mistake; ours had the same."""
    right = recomputed.duck_text
    monkeypatch.setattr(recomputed, "duck_text", lambda *given: mistake(right(*given)))


MISTAKES: dict[str, tuple[str, Callable[[str], str], tuple[str, ...], tuple[str, ...], int]] = {
    "a doubled quote read as none": (
        "SELECT id, name FROM s.people WHERE name = 'O''Brien'",
        lambda text: text.replace("O''Brien", "OBrien"),
        ("O'Brien",), ("OBrien",), 1,
    ),
    "NOT LIKE read as LIKE": (
        "SELECT id, name FROM s.people WHERE name NOT LIKE 'A%'",
        lambda text: text.replace("NOT ", ""),
        ("O'Brien", "OBrien", "Bert"), ("Anna",), 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_view_maintained_by_a_misread_text_is_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    sql, mistake, _, wrong, first = MISTAKES[what]
    recorded(tmp_path, sql, wrong)
    misread(monkeypatch, mistake)
    assert verify_pipeline(tmp_path).holds, "without Spark both readers agree"
    verdict = verify_pipeline(tmp_path, by_spark=8)
    found = line(verdict, "v")
    assert not verdict.holds
    assert (found.achieved, found.by_spark) == ("none", (0, 1, 2, 3))
    assert found.witness is not None and found.witness.number == first
    assert found.note == (
        "judged by Spark alone: DuckDB, by way of sqlglot, reads its text otherwise"
    )
    assert verdict.text.startswith("Spark ran each view's text")


@pytest.mark.parametrize("what", MISTAKES)
def test_a_right_view_holds_where_only_duckdb_is_mistaken(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    sql, mistake, right, _, _ = MISTAKES[what]
    recorded(tmp_path, sql, right)
    misread(monkeypatch, mistake)
    assert not verify_pipeline(tmp_path).holds
    verdict = verify_pipeline(tmp_path, by_spark=2)
    assert verdict.holds, verdict
    assert line(verdict, "v").achieved == line(verdict, "g").achieved == "complete"
    assert line(verdict, "v").epochs == 4


def test_what_duckdb_cannot_run_is_judged_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong epoch and a wrong number of such a view are found, and right ones hold."""
    misread(monkeypatch, lambda text: text.replace("name", "no_such_function(name)"))
    sql = "SELECT id, name FROM s.people"
    recorded(tmp_path / "right", sql, NAMES)
    verdict = verify_pipeline(tmp_path / "right", by_spark=2)
    assert verdict.holds, verdict
    assert line(verdict, "v").note == "judged by Spark alone: DuckDB cannot run its text"
    recorded(tmp_path / "wrong", sql, NAMES[1:])
    found = line(verify_pipeline(tmp_path / "wrong", by_spark=2), "v")
    assert str(found.witness) == "number 0: (0, 'Anna') expected 1, found 0"


def test_a_true_bank_with_a_view_over_a_view_holds_and_names_the_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    bank = Bank(tmp_path / "bank", transfers(12, 3))
    bank.record_updates()
    for first, last in ((0, 0), (1, 9), (10, 12)):
        bank.commit(first, last)
    spark.sql("CREATE OR REPLACE TEMP VIEW balance AS SELECT 1 AS mine")
    verdict = verify_pipeline(tmp_path / "bank", by_spark=5)
    assert verdict.holds, verdict
    assert {line(verdict, name).by_spark for name in ("g", "balance", "total")} == {(0, 6, 12)}
    assert spark.table("balance").columns == ["mine"], "the session's own views stay"
    assert "north" not in {one.name for one in spark.catalog.listDatabases()}

    over = Recorded(
        tmp_path / "over", [PEOPLE], {"a": "SELECT id, name FROM s.people", "b": "SELECT id FROM a"}
    )
    over.record({"s.people": [(0, 1, 7, "x")]})
    over.publish(0, 0, {"a": [(0, 1, 7, "x")], "b": [(0, 1, 7)]})
    assert verify_pipeline(tmp_path / "over", by_spark=2).holds


def test_relations_of_any_name_and_columns_that_differ_in_case(
    spark: SparkSession, tmp_path: Path
) -> None:
    odd = Relation("north-db.a b", (Column("Id", "int"), Column("id", "string")), (0,))
    name = "`north-db`.`a b`"
    made = Recorded(
        tmp_path,
        [odd, PEOPLE],
        {
            "v": f"SELECT p.Id AS x, p.id AS y FROM {name} AS p",
            "w": f"WITH c AS (SELECT * FROM {name}) SELECT c.id AS y, s.people.name AS z "
            "FROM c JOIN s.people ON c.Id = s.people.id",
        },
    )
    made.record({odd.name: [(0, 1, 3, "three")], "s.people": [(0, 1, 3, "Anna")]})
    made.publish(0, 0, {"v": [(0, 1, 3, "three")], "w": [(0, 1, "three", "Anna")]})
    verdict = verify_pipeline(tmp_path, by_spark=2)
    assert verdict.holds, verdict
    assert line(verdict, "w").by_spark == (0,)


MOMENTS = (
    0, -1, 1, 1_700_000_000_123_456, -62_135_596_800_000_000, -62_135_596_800_000_001,
    -100_000_000_000_000_000, 253_402_300_800_000_000, 9_223_372_036_825_200_000,
    -9_223_372_036_832_400_000,
)  # fmt: skip
DAYS = (0, -1, 11_016, -719_162, -719_163, -800_000, 2_932_897, 2_147_483_647, -2_147_483_647)


def test_days_and_moments_of_any_year_are_compared_and_written_as_spark_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Oddity 31: the year 0001, before Christ, beyond 9999, and what stands for the infinities."""
    kinds = ("timestamp", "timestamp_ntz", "date", "double", "decimal(38,10)", "binary")
    schema = tuple(Column(f"x{at}", kind) for at, kind in enumerate(kinds))
    others = [(1.5, Decimal("0.1"), b"\x00'"), (float("nan"), None, None), (-0.0, Decimal(-1), b"")]
    rows = [
        (0, 1, MOMENTS[at], MOMENTS[at], DAYS[at % len(DAYS)], *others[at % 3])
        for at in range(len(MOMENTS))
    ]
    for type_, values in (("timestamp_ntz", MOMENTS), ("timestamp", MOMENTS), ("date", DAYS)):
        column = pa.array(values, pa.int32() if type_ == "date" else pa.int64())
        frame = spark.createDataFrame(pa.table({"x": column.view(arrow_type(type_))}))
        texts = frame.selectExpr("CAST(x AS STRING) AS x").toArrow().column("x").to_pylist()
        found = written.values(column.view(arrow_type(type_)))
        zone = "+00:00" if type_ == "timestamp" else ""
        assert [one.removesuffix(zone) for one in found[:-2]] == texts[:-2]
        assert found[-2:] == ["infinity", "-infinity"]
    typed = Relation("s.typed", schema, ())
    made = Recorded(
        tmp_path, [typed], {"v": "SELECT * FROM s.typed", "w": "SELECT x0 FROM s.typed"}
    )
    made.record({"s.typed": rows})
    shown = [row[:3] for row in rows]
    made.publish(0, 0, {"v": rows, "w": [*shown[:-1], (0, 1, 5)]})
    verdict = verify_pipeline(tmp_path, by_spark=2)
    assert line(verdict, "v").holds, verdict
    assert not line(verdict, "w").holds
    witness = line(verdict, "w").witness
    assert "-infinity" in str(witness) or "1970-01-01 00:00:00.000005" in str(witness)
    assert json.dumps(verdict.as_dict())


def command(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
        "-m",
        "streaming",
        "verify",
        "--warehouse",
        str(folder),
        "--json",
    ]
    return subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def test_the_command_starts_a_quiet_spark_of_its_own(tmp_path: Path) -> None:
    recorded(tmp_path, "SELECT id, name FROM s.people WHERE name <> 'Anna'", NAMES)
    done = command(tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    verdict = json.loads(done.stdout)
    assert verdict["lines"][1]["by_spark"] == [0, 1, 2, 3]
    assert verdict["lines"][1]["witness"]["row"] == [0, "Anna"]


def test_without_java_the_verdict_says_that_the_text_was_not_judged(tmp_path: Path) -> None:
    recorded(tmp_path, "SELECT id, name FROM s.people", NAMES)
    done = command(tmp_path, JAVA_HOME="/nowhere")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["text"].startswith("Spark ran no view's text (Java was not found)")
    assert verdict["lines"][1]["by_spark"] == []
