"""The difference of two snapshots, published and decoded, leads from the one to the other."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming.capture import differential
from streaming.capture.snapshot_events import Stamp, events
from streaming.capture.snapshot_files import CsvFormat, next_snapshot, texts_sql
from streaming.captured.captured_schema import CapturedRelation, captured
from streaming.cdc.debezium import Decoder
from streaming.errors import FrescoError
from tests.engines import ENGINE

TYPES = {
    "id": "bigint",
    "name": "text",
    "price": "numeric(18,2)",
    "huge": "numeric(38,0)",
    "weight": "double precision",
    "born": "date",
    "seen": "timestamp(6)",
    "at": "timestamptz",
    "ok": "boolean",
    "raw": "bytea",
    'odd "name", so': "int",
}
VALUES: dict[str, list[str | None]] = {
    "id": [str(n) for n in range(-3, 9)],
    "name": [None, "", "a", "A", "it's", 'say "so"', "one,two", "line\nline", "ä€😀", "NULL", " "],
    "price": [None, "0.00", "-0.01", "12.50", "9999999999999999.99"],
    "huge": [None, "9" * 38, "-" + "9" * 38, "0"],
    "weight": [None, "0.1", "-0.0", "0.0", "nan", "inf", "-inf", "1e308", "5e-324"],
    "born": [None, "1970-01-01", "0001-01-01", "9999-12-31", "2024-02-29"],
    "seen": [None, "1969-12-31 23:59:59.999999", "2024-01-01 00:00:00.000001"],
    "at": [None, "2024-06-30 12:00:00+02", "1900-01-01 00:00:00.5+00"],
    "ok": [None, "true", "false"],
    "raw": [None, "\\x", "\\x00ff"],
    'odd "name", so': [None, "-2147483648", "2147483647"],
}
Row = tuple[str | None, ...]


def relation(key: Sequence[str] = ("id",)) -> CapturedRelation:
    return captured(
        "old.t", "old.public.t", list(TYPES.items()), key=key, collection="public.t",
        decimals="string",
    )  # fmt: skip


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with differential.open_engine(tmp_path) as opened:
        yield opened


def written(rows: Sequence[Row], names: Sequence[str] = tuple(TYPES)) -> bytes:
    """CSV in which NULL is empty and an empty text is in quotes."""
    content = io.StringIO()
    csv.writer(content, quoting=csv.QUOTE_ALL, lineterminator="\n").writerow(names)
    for row in rows:
        cells = ["" if v is None else '"' + v.replace('"', '""') + '"' for v in row]
        content.write(",".join(cells) + "\n")
    return content.getvalue().encode()


def formed(
    engine: duckdb.DuckDBPyConnection, one: CapturedRelation, content: bytes, file: Path
) -> Path:
    """The form of a snapshot in CSV."""
    source = file.with_suffix(".csv")
    source.write_bytes(content)
    differential.write_form(engine, texts_sql(engine, one, [source], CsvFormat()), one, file)
    return file


def decoded(
    engine: duckdb.DuckDBPyConnection,
    one: CapturedRelation,
    old: Path | None,
    new: Path,
    skip: int = 0,
) -> pa.Table:
    """The events as the integrator reads them."""
    found = pa.Table.from_batches(
        events(engine, one, old, new, Stamp("old", 7, 100, 5), skip),
        schema=pa.schema([("key", pa.string()), ("value", pa.string())]),
    )
    count = found.num_rows
    batch = pa.table(
        {
            "topic": pa.array([one.topic] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "value": found["value"],
        }
    )
    result = Decoder([one], engine=ENGINE).decode(batch)
    assert not result.bad, result.bad[:3]
    return result.rows[one.relation.name] if count else batch.slice(0, 0)


def bag(table: pa.Table, side: str) -> Counter[Any]:
    """The rows of one side; NaN as a word, so that it equals itself."""
    columns = [table[f"{side}{at}"].to_pylist() for at in range(len(TYPES))]
    return Counter(tuple("nan" if v != v else v for v in row) for row in zip(*columns, strict=True))


def applied(table: pa.Table, rows: Counter[Any]) -> Counter[Any]:
    """The rows after the events."""
    rows = rows.copy()
    if table.num_rows:
        gone = table.filter(pa.array([op in "ud" for op in table["op"].to_pylist()]))
        come = table.filter(pa.array([op in "ucr" for op in table["op"].to_pylist()]))
        rows.subtract(bag(gone, "b"))
        assert min(rows.values(), default=0) >= 0, "what is deleted was there"
        rows.update(bag(come, "a"))
    return +rows


def drawn(rng: random.Random, keyed: bool) -> list[Row]:
    keys = rng.sample(VALUES["id"], rng.randrange(9)) if keyed else rng.choices(VALUES["id"], k=6)
    rows = [(key, *(rng.choice(VALUES[name]) for name in list(TYPES)[1:])) for key in keys]
    return rows if keyed else rows + rng.choices(rows, k=rng.randrange(4))


def changed(rng: random.Random, rows: list[Row], keyed: bool) -> list[Row]:
    """Some stay, some go, some change in one column, some come."""
    kept = [row for row in rows if rng.random() < 0.7]
    for at in range(len(kept)):
        if rng.random() < 0.4:
            column = rng.randrange(1, len(TYPES))
            value = rng.choice(VALUES[list(TYPES)[column]])
            kept[at] = (*kept[at][:column], value, *kept[at][column + 1 :])
    have = {row[0] for row in kept}
    return kept + [row for row in drawn(rng, keyed) if not keyed or row[0] not in have]


@pytest.mark.parametrize("keyed", [True, False])
def test_a_difference_applied_gives_the_next_snapshot(
    keyed: bool, engine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    one = relation(("id",) if keyed else ())
    for seed in range(25):
        rng = random.Random(f"{seed} {keyed}")
        first = drawn(rng, keyed)
        second = changed(rng, first, keyed)
        old = formed(engine, one, written(first), tmp_path / f"{seed}old")
        new = formed(engine, one, written(second), tmp_path / f"{seed}new")
        start = applied(decoded(engine, one, None, old), Counter())
        wanted = applied(decoded(engine, one, None, new), Counter())
        assert start.total() == len(first) and wanted.total() == len(second), seed
        difference = decoded(engine, one, old, new)
        assert applied(difference, start) == wanted, (seed, keyed)
        counts = differential.counts(engine, one, old, new)
        assert counts.events == difference.num_rows, seed
        if keyed and difference.num_rows:
            keys = [b if a is None else a for a, b in zip(
                difference["a0"].to_pylist(), difference["b0"].to_pylist(), strict=True
            )]  # fmt: skip
            assert keys == sorted(set(keys)), "each key once, in order"
        skipped = decoded(engine, one, old, new, skip=2)
        assert skipped.num_rows == max(0, difference.num_rows - 2), seed
        if skipped.num_rows:
            assert skipped["total_order"].to_pylist() == difference["total_order"].to_pylist()[2:]


@pytest.mark.parametrize("key", [("id",), ()])
def test_a_zero_that_changes_its_sign_is_a_change(
    engine: duckdb.DuckDBPyConnection, tmp_path: Path, key: Sequence[str]
) -> None:
    one = captured("old.t", "old.public.t", [("id", "int8"), ("w", "float8")], key=key)
    old, new = (
        formed(engine, one, written([("1", zero), ("2", "-0.0")], ("id", "w")), tmp_path / name)
        for zero, name in (("0.0", "old.parquet"), ("-0.0", "new.parquet"))
    )
    (gone, *_), (*_, came) = (
        decoded(engine, one, old, new)[name].to_pylist() for name in ("b1", "a1")
    )
    assert (str(gone), str(came)) == ("0.0", "-0.0")
    assert differential.counts(engine, one, old, new).events == (1 if key else 2)


def test_two_equal_snapshots_differ_in_nothing(
    engine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    rows = drawn(random.Random(5), False)
    for key in (("id",), ()):
        one = relation(key)
        some = rows if not key else list({row[0]: row for row in rows}.values())
        old = formed(engine, one, written(some), tmp_path / "old")
        new = formed(engine, one, written(some[::-1]), tmp_path / "new")
        assert differential.counts(engine, one, old, new).events == 0


def test_the_message_is_debezium_s(engine: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    one = captured("old.t", "old.public.t", [("id", "int"), ("d", "date")], key=("id",),
                   collection="public.t", decimals="string")  # fmt: skip
    old = formed(engine, one, b"id,d\n1,1970-01-02\n", tmp_path / "old")
    new = formed(engine, one, b"d,id,more\n1970-01-03,1,x\n", tmp_path / "new")
    (batch,) = events(engine, one, old, new, Stamp("old", 7, 0, 5))
    ((key, value),) = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    event = json.loads(value)
    assert json.loads(key) == {"id": 1}
    assert (event["before"], event["after"], event["op"]) == (
        {"id": 1, "d": 1},
        {"id": 1, "d": 2},
        "u",
    )
    assert event["transaction"] == {"id": "7:7", "total_order": 1, "data_collection_order": 1}
    assert (event["source"]["lsn"], event["source"]["table"]) == (7, "t")


def test_parquet_and_csv_of_the_same_rows_are_one_snapshot(
    engine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    one = captured("old.t", "old.public.t",
                   [("id", "int"), ("p", "numeric(9,2)"), ("b", "bytea"), ("s", "timestamp")],
                   key=("id",), collection="public.t", decimals="string")  # fmt: skip
    text = b"id,p,b,s\n1,2.50,\\x00ff,2024-01-01 00:00:00.5\n2,,,\n"
    old = formed(engine, one, text, tmp_path / "old")
    rows = engine.execute(
        "SELECT 1 AS id, 2.5::DECIMAL(9,2) AS p, '\\x00\\xFF'::BLOB AS b,"
        " TIMESTAMP '2024-01-01 00:00:00.5' AS s UNION ALL SELECT 2, NULL, NULL, NULL"
    ).to_arrow_table()
    pq.write_table(rows, tmp_path / "t.parquet")
    new = tmp_path / "new"
    texts = texts_sql(engine, one, [tmp_path / "t.parquet"], CsvFormat())
    assert differential.write_form(engine, texts, one, new) == 2
    assert differential.counts(engine, one, old, new).events == 0


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"id,d\n1,2024-13-01\n", "SNAPSHOT_VALUE"),
        (b"id,d\nx,2024-01-01\n", "SNAPSHOT_VALUE"),
        (b"id,d\n99999999999,\n", "SNAPSHOT_VALUE"),
        (b"id,d\n1,\n1,\n", "SNAPSHOT_KEY_DUPLICATE"),
        (b"id,d\n,\n", "SNAPSHOT_KEY_NULL"),
        (b"id\n1\n", "SNAPSHOT_COLUMNS"),
        (b"id,d,d\n1,,\n", "SNAPSHOT_COLUMNS"),
        (b"", "SNAPSHOT_COLUMNS"),
        (b'id,d\n1,"2024-01-01\n', "SNAPSHOT_UNREADABLE"),
        (b"id,d\n1\n", "SNAPSHOT_UNREADABLE"),
        (b"id,d\n1,\xff\n", "SNAPSHOT_UNREADABLE"),
    ],
)
def test_what_is_wrong_with_a_snapshot_is_said(
    content: bytes, code: str, engine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    one = captured("old.t", "old.public.t", [("id", "int"), ("d", "date")], key=("id",))
    with pytest.raises(FrescoError) as error:
        formed(engine, one, content, tmp_path / "form")
    assert error.value.code == code and error.value.todo, error.value


def test_names_that_say_the_same_number_are_snapshots_of_their_own(tmp_path: Path) -> None:
    for name in ("day-7.csv", "day-07.csv", "day-8.csv", "day-²"):
        (tmp_path / name).write_text("id\n1\n")
    found, after = [], None
    while (one := next_snapshot(tmp_path, ["t"], after, 0)) is not None:
        found.append(after := one.name)
    assert found == ["day-07.csv", "day-7.csv", "day-8.csv"]


def test_snapshots_come_in_order_and_only_when_they_are_whole(tmp_path: Path) -> None:
    def following(after: str | None, settle: float = 0.0) -> str | None:
        found = next_snapshot(tmp_path, ["t"], after, settle)
        return found and found.name

    assert following(None) is None
    for name in ("day-9.csv", "day-10.csv", ".day-11.csv", "_day.csv", "day-12.csv.tmp"):
        (tmp_path / name).write_bytes(b"id\n1\n")
    assert [following(None), following("day-9.csv"), following("day-10.csv")] == [
        "day-9.csv",
        "day-10.csv",
        None,
    ]
    assert following(None, settle=3600.0) is None, "somebody may still be writing"
    (tmp_path / "day-13").mkdir()
    (tmp_path / "day-13" / "part-0.parquet").write_bytes(b"PAR1 no footer yet")
    with pytest.raises(FrescoError, match="SNAPSHOT_UNFINISHED"):
        following("day-10.csv")
    (tmp_path / "day-13" / "part-0.parquet").write_bytes(b"PAR1...PAR1")
    assert following("day-10.csv", settle=3600.0) is None
    (tmp_path / "day-13" / "_SUCCESS").touch()
    assert following("day-10.csv", settle=3600.0) == "day-13"
    with pytest.raises(FrescoError, match="SNAPSHOT_TABLE"):
        next_snapshot(tmp_path, ["t", "u"], "day-10.csv", 0.0)
    with pytest.raises(FrescoError, match="SNAPSHOT_UNFINISHED"):
        (tmp_path / "day-14.csv").write_bytes(b"id\n1")
        following("day-13")
    with pytest.raises(FrescoError, match="SNAPSHOT_FOLDER"):
        next_snapshot(tmp_path / "none", ["t"], None, 0.0)
