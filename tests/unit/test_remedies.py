"""Every remedy that names a command, SQL or a setting is one that works (DESIGN 11).

What errors advise is read out of the source text. A command in backticks has to be complete: the command
line itself parses it, arguments in capitals standing for themselves; tests of each command run it. Advice
that holds SQL, a clause of a view file or a statement for a database stands in `TRIED` with what it is
tried by, so a new one without a trial fails here. Settings have to be the configuration's.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from typer.exceptions import TyperException
from typer.main import get_command

from streaming.algebra.tree import Relation
from streaming.cli.commands import app
from streaming.configuration.pipeline_config import Config
from streaming.configuration.source_config import SourceConfig
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Batch
from streaming.pipeline.view_file import read_header
from streaming.scalars.expression import Column
from streaming.scalars.types import delta_schema
from streaming.sql.parse import parse
from streaming.viewmanagers.modes import families
from streaming.warehouse.reader_query import run

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(r"`(fresco\b[^`]*)`")
STANDS_FOR = {"PARTITION": "0", "OFFSET": "7", "…": "1"}


def text_of(node: ast.expr) -> str:
    """A text as it is written, with … for what is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(text_of(one) for one in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
        case ast.IfExp(body=body, orelse=other):
            return f"{text_of(body)} | {text_of(other)}"
        case ast.Dict(values=values):
            return " | ".join(text_of(one) for one in values)
        case _:
            return "…"


def texts() -> dict[str, str]:
    """Every text of the program that people may read: where it stands -> the text."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "streaming").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docs = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        inner = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in ast.walk(node)
            if part is not node
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in docs | inner:
                continue
            text = text_of(node)
            if text not in ("", "…"):
                found[f"{path.relative_to(ROOT)}:{node.lineno}"] = text
    return found


TEXTS = texts()
COMMANDS = sorted({(at, one) for at, text in TEXTS.items() for one in COMMAND.findall(text)})


def parsed(command: str) -> None:
    """The command line's own reading of a command. Raises TyperException."""
    words = [STANDS_FOR.get(word, word) for word in shlex.split(command)][1:]
    known = get_command(app)
    while hasattr(known, "commands"):
        name = words.pop(0) if words else ""
        if name not in known.commands:
            raise TyperException(f"no command {name!r}")
        known = known.commands[name]
    if "--config" not in words and any(one.name == "config" for one in known.params):
        words += ["--config", "bank.yaml"]  # which pipeline goes without saying
    known.make_context(known.name, words)


def test_commands_are_found_in_what_the_program_says() -> None:
    named = {one for _, one in COMMANDS}
    assert "fresco view resume NAME" in named and len(named) >= 12, sorted(named)


@pytest.mark.parametrize(("at", "command"), COMMANDS)
def test_every_command_that_is_advised_is_one(at: str, command: str) -> None:
    try:
        parsed(command)
    except TyperException as error:
        pytest.fail(f"{at}: {command}: {error.format_message()}")


@pytest.mark.parametrize(
    "command",
    [
        "fresco view resume",
        "fresco views resume x",
        "fresco skip",
        "fresco skip TOPIC PARTITION OFFSET",
        "fresco isolated",
        "fresco verify --sources",
        "fresco view",
    ],
)
def test_one_that_is_not_complete_is_noticed(command: str) -> None:
    with pytest.raises(TyperException):
        parsed(command)


# SQL --------------------------------------------------------------------------------------------


ENTRY = Relation("north.entry", (Column("k", "int"), Column("x", "int"), Column("t", "string")))
PRICE = Relation("north.price", (Column("k", "int"), Column("d", "decimal(38,18)")))
KNOWN = {one.name: one for one in (ENTRY, PRICE)}


def advice() -> dict[str, str]:
    """What errors say is to be done: where -> the text; of a choice, all of it."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "streaming").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            given: list[ast.expr] = []
            match node:
                case ast.keyword(arg="todo", value=value):
                    given = [value]
                case ast.Assign(targets=[ast.Name(id="todo" | "advice" | "hint")], value=value):
                    given = [value]
                case ast.Dict():
                    pairs = zip(node.keys, node.values, strict=True)
                    given = [
                        v for k, v in pairs if isinstance(k, ast.Constant) and k.value == "todo"
                    ]
            for value in given:
                found[f"{path.relative_to(ROOT)}:{value.lineno}"] = text_of(value)
    return found


ADVICE = advice()
SQL = re.compile(
    r"\b(SELECT|CASE|CAST|NULLIF|COALESCE|SUBSTRING|UNION|JOIN|EXISTS|EVERY|CONSISTENCY|GRANT|"
    r"CREATE|ALTER|SET GLOBAL|TRUNCATE|DELETE|GROUP BY)\b"
)


def view(sql: str) -> Callable[[], object]:
    return lambda: parse(sql, KNOWN)


def file(head: str) -> Callable[[], object]:
    return lambda: read_header(f"CREATE MATERIALIZED VIEW v {head} AS SELECT 1")


def statement(sql: str, dialect: str) -> Callable[[], object]:
    return lambda: sqlglot.parse_one(sql, read=dialect, error_level=sqlglot.ErrorLevel.RAISE)


def values(expression: str, *rows: tuple[int, int]) -> list[object]:
    """What a view's expression over k and x is, at each row."""
    tree = parse(f"SELECT {expression} AS v FROM north.entry", KNOWN)
    given = [(1, 1, k, x, "t") for k, x in rows]
    schema = delta_schema(ENTRY.schema)
    columns = zip(*given, strict=True)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    batch = Batch(1, 1, {ENTRY.name: (pa.table(arrays, schema=schema),)})
    evaluator = DuckEvaluator(tree)
    evaluator.evaluate(Batch(0, 0, {}))
    evaluator.advance()
    return evaluator.evaluate(batch)["c0"].to_pylist()


def guards(expression: str) -> Callable[[], object]:
    """The expression has a value where its divisor is 0, and the right one elsewhere."""

    def tried() -> None:
        assert values(expression, (8, 2)) == [4.0]
        assert values(expression, (8, 0)) == [None]

    return tried


def counted() -> None:
    """The way to COUNT(DISTINCT x): from the advice itself, and it counts what that counts."""
    (text,) = (one for one in ADVICE.values() if "count over the distinct values" in one)
    sql = text.partition(": ")[2].replace("...", "north.entry")
    parse(sql, KNOWN)
    with duckdb.connect() as duck:
        duck.execute(
            "CREATE SCHEMA north; CREATE TABLE north.entry AS SELECT 1 AS k, 2 AS x UNION ALL"
            " SELECT 1, 2 UNION ALL SELECT 1, NULL UNION ALL SELECT 2, NULL UNION ALL SELECT 2, 5"
        )
        wanted = duck.execute("SELECT k, count(DISTINCT x) FROM north.entry GROUP BY k ORDER BY k")
        expected = wanted.fetchall()
        assert duck.execute(sql + " ORDER BY k").fetchall() == expected


TRIED: dict[str, Callable[[], object]] = {
    "write UNION ALL, and group by all columns": view(
        "SELECT k, x FROM (SELECT k, x FROM north.entry UNION ALL SELECT k, x FROM north.entry) AS u "
        "GROUP BY k, x"
    ),
    "count over the distinct values": counted,
    "give each JOIN its ON, or write CROSS JOIN": view(
        "SELECT a.k FROM north.entry AS a JOIN north.price AS b ON a.k = b.k CROSS JOIN north.price AS c"
    ),
    "CAST one side to the other's type": view(
        "SELECT e.k FROM north.entry AS e WHERE e.t = CAST(e.x AS string)"
    ),
    "NULLIF(divisor, 0)": guards("k / NULLIF(x, 0)"),
    "CASE WHEN divisor <> 0 THEN ... END": guards("CASE WHEN x <> 0 THEN k / x END"),
    "CAST an operand to a smaller decimal": view(
        "SELECT CAST(d AS decimal(18,4)) * CAST(d AS decimal(18,4)) AS p FROM north.price"
    ),
    "write SUBSTRING(text, start, length)": view("SELECT SUBSTRING(t, 1, 3) AS s FROM north.entry"),
    "CAST to a decimal and round that": view(
        "SELECT ROUND(CAST(x AS decimal(18,4)), 2) AS r FROM north.entry"
    ),
    "write AS SELECT ... with a single statement": view("SELECT k FROM north.entry"),
    "SET GLOBAL … = '…', let no session set another": statement(
        "SET GLOBAL binlog_format = 'ROW'", "mysql"
    ),
    "SET GLOBAL binlog_transaction_compression = OFF": statement(
        "SET GLOBAL binlog_transaction_compression = OFF", "mysql"
    ),
    "GRANT RELOAD, REPLICATION CLIENT ON *.* TO its user": statement(
        "GRANT RELOAD, REPLICATION CLIENT ON *.* TO u", "mysql"
    ),
    "SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE": statement(
        "ALTER TABLE t FORCE", "mysql"
    ),
    "SET GLOBAL log_bin_compress = OFF": statement("SET GLOBAL log_bin_compress = OFF", "mysql"),
    "ALTER TABLE ... CONVERT TO CHARACTER SET utf8mb4": statement(
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", "mysql"
    ),
    "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO": statement(
        "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO u", "mysql"
    ),
    "CREATE TABLE … (id varchar(200) PRIMARY KEY, parts int NOT NULL)": statement(
        "CREATE TABLE fresco_global (id varchar(200) PRIMARY KEY, parts int NOT NULL)", "postgres"
    ),
    "right to SELECT": statement("GRANT SELECT ON t TO u", "postgres"),
    "needs SELECT on them": statement("GRANT SELECT ON t TO u", "postgres"),
    "COMPLETE EVERY 100": file("WITH COMPLETE EVERY 100 CONSISTENCY"),
    "USING recompute EVERY '100 transactions'": file(
        "WITH STRONG CONSISTENCY USING recompute EVERY '100 transactions'"
    ),
    "a view is CREATE MATERIALIZED VIEW name": file("WITH STRONG CONSISTENCY USING replica"),
    "write EVERY '5 minutes'": file("WITH STRONG CONSISTENCY USING recompute EVERY '5 minutes'"),
    "ask for … CONSISTENCY": file("WITH STRONG CONSISTENCY USING replica"),
    "give one SELECT, in DuckDB's dialect": lambda: run("SELECT 1 AS a", {}),
}
"""What stands in advice -> what it is tried by."""


def test_all_advice_that_holds_sql_is_tried_and_nothing_else() -> None:
    untried = {
        at: text
        for at, text in ADVICE.items()
        if SQL.search(text) and not any(one in text for one in TRIED)
    }
    assert not untried, untried
    gone = [one for one in TRIED if not any(one in text for text in ADVICE.values())]
    assert not gone, gone


@pytest.mark.parametrize("remedy", TRIED)
def test_sql_that_is_advised_is_accepted(remedy: str) -> None:
    TRIED[remedy]()


MODE = re.compile(r"USING (?!mode\b)([a-z_]+)")
NAMED_MODES = sorted({(at, mode) for at, text in ADVICE.items() for mode in MODE.findall(text)})


@pytest.mark.parametrize(("at", "mode"), NAMED_MODES)
def test_every_mode_that_is_advised_is_one(at: str, mode: str) -> None:
    assert mode in families(), at


# Settings -------------------------------------------------------------------------------------------

SETTING = re.compile(r"\b((?:[a-z_]+\.)*(?:…\.)?[a-z_]+): (true|false|[a-z]+\b)")
PATH = re.compile(r"\b((?:sources\.…|kafka|metrics|limits|retention|snapshots)(?:\.[a-z_…]+)+)")
NO_SETTINGS = re.compile(
    r"^(begins|cannot|commit|nothing|pipeline|run|service|suspended|name|prefix|anew|one|this)$"
)
"""Words before a colon in a sentence."""
CONNECTORS = frozenset({"schemas.enable"})
"""Settings of Debezium's connector, not of a pipeline."""


def fields(path: str) -> bool:
    """Whether a path of the configuration is one."""
    kind: Any = (
        SourceConfig if not (first := path.split(".")[0]) or first == "snapshots" else Config
    )
    for name in path.split("."):
        if name == "…":
            continue
        held = getattr(kind, "model_fields", {})
        if kind in (Config, SourceConfig) and name == "sources":
            kind = SourceConfig
            continue
        if name not in held:
            return kind is dict
        inner = held[name].annotation
        found = [one for one in (inner, *get_args(inner)) if hasattr(one, "model_fields")]
        kind = found[0] if found else dict
    return True


def test_every_setting_that_is_advised_is_one() -> None:
    wrong = []
    for at, text in ADVICE.items():
        for path, _ in SETTING.findall(text):
            if NO_SETTINGS.match(path):
                continue
            if not (fields(path) or path in SourceConfig.model_fields):
                wrong.append(f"{at}: {path}")
        for path in PATH.findall(text):
            if not fields(path.rstrip(".")):
                wrong.append(f"{at}: {path}")
    assert not wrong, wrong
    named = {path for text in ADVICE.values() for path, _ in SETTING.findall(text)}
    assert {"rel", "grouping", "on_span", "allow_anomalies"} <= named


def test_a_setting_that_is_none_is_noticed() -> None:
    assert not fields("metrics.ports") and not fields("group_by") and fields("metrics.port")
    assert fields("sources.….connection") and not fields("sources.….connections")
