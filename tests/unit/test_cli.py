"""The `fresco` command: errors with code, place and advice; output for people and for programs."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result
from warehouse_rows import BALANCE, LINES, delta, next_epoch, write_catalog

from streaming.captured.checked import Checked
from streaming.cli.commands import app
from streaming.cli.tables import findings_table, rows_table
from streaming.runtime.fence import Fence
from streaming.runtime.manifests import Manifest, ManifestStore
from streaming.service.screen import Screen
from streaming.warehouse.group_writer import GroupWriter

COMMANDS = ("run", "demo", "plan", "status", "sql", "verify", "ddl", "doctor")


def fresco(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})


def compact(text: str) -> str:
    """Without the breaks and the padding that a terminal's width asks for."""
    return " ".join(text.split())


def failed(result: Result, code: str) -> str:
    """What a person sees of a coded error: on standard error, nothing else."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.lstrip().startswith(code), result.stderr
    assert "Traceback" not in result.output
    return compact(result.stderr)


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """Two views at epoch 1, and what a service leaves beside them."""
    views = [BALANCE, LINES]
    write_catalog(tmp_path, "bank", views)
    writer = GroupWriter(str(tmp_path), "pipeline", "bank", views)
    rows = {
        "balance": delta(BALANCE, [(0, 1, 1, Decimal(5)), (0, 1, 2, Decimal(7))]),
        "lines": delta(LINES, [(0, 1, "see [/dev/null] and [red]", 1)]),
    }
    writer.commit(rows, next_epoch(None, "bank", ((0, 0),)))
    Fence(tmp_path / "_state" / "generations", {"host": "alpha"})
    suspended = {
        "code": "VIEW_INPUT_DAMAGED",
        "what": "a record [/x] is damaged",
        "where": "topic t, offset 7",
    }
    ManifestStore(tmp_path / "_state" / "view-balance" / "manifests").put(
        Manifest(
            stage="view:balance",
            step=1,
            generation=1,
            offsets={},
            snapshot={"control": {"number": 4}, "suspended": suspended},
        )
    )
    return tmp_path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration with a misspelt key."""
    file = tmp_path / "bank.yaml"
    file.write_text("pipeline: bank\nwarehouse: lake\nviews: views\nsources: {}\nbatchin: greedy\n")
    return file


# Errors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [("sql", "SELECT * FROM balance"), ("status",), ("ddl", "duckdb"), ("verify",)],
    ids=lambda words: words[0],
)
def test_a_warehouse_that_is_not_there_is_a_coded_error(words: tuple[str, ...]) -> None:
    said = failed(fresco(*words, "--warehouse", "/nowhere"), "READ_NO_WAREHOUSE")
    assert "where: /nowhere/_catalog/views.json" in said
    assert "do: give the folder" in said


@pytest.mark.parametrize("command", ["run", "plan", "doctor", "status"])
def test_a_configuration_that_is_not_there_is_a_coded_error(command: str) -> None:
    said = failed(fresco(command, "--config", "/nowhere.yaml"), "CONFIG_MISSING")
    assert "where: /nowhere.yaml" in said
    assert "do: pass --config" in said


@pytest.mark.parametrize("command", ["run", "plan", "doctor", "status", "ddl duckdb"])
def test_a_misspelt_key_is_shown_with_the_nearest(config: Path, command: str) -> None:
    said = failed(fresco(*command.split(), "-c", config), "CONFIG_KEY")
    assert "unknown key 'batchin'" in said
    assert f"where: {config}: batchin" in said
    assert "do: did you mean 'batching'?" in said


@pytest.mark.parametrize(
    "words",
    [
        ("status", "--warehouse", "/nowhere"),
        ("sql", "SELECT * FROM balance", "--warehouse", "/nowhere"),
        ("verify", "--warehouse", "/nowhere"),
        ("plan", "--config", "/nowhere.yaml"),
        ("doctor", "--config", "/nowhere.yaml"),
        ("verify", "--source", "--config", "/nowhere.yaml"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_programs_get_errors_as_one_json_object(words: tuple[str, ...]) -> None:
    result = fresco(*words, "--json")
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert set(error) == {"code", "what", "where", "todo"}
    assert error["code"] in {"READ_NO_WAREHOUSE", "CONFIG_MISSING"}
    assert all(error.values())


@pytest.mark.parametrize("command", ["status", "sql x", "ddl spark", "verify"])
def test_a_command_that_is_told_no_warehouse_asks_for_one(command: str) -> None:
    said = failed(fresco(*command.split()), "CLI_OPTION")
    assert "do: pass --warehouse or --config" in said


def test_verify_source_needs_a_configuration(warehouse: Path) -> None:
    assert "--config" in failed(fresco("verify", "--source", "-w", warehouse), "CLI_OPTION")


def test_brackets_in_an_error_are_shown_not_taken_for_colours(tmp_path: Path) -> None:
    place = tmp_path / "[red]" / "[/x].yaml"
    said = failed(fresco("plan", "-c", place), "CONFIG_MISSING")
    assert "[red]/[/x].yaml" in said


@pytest.mark.parametrize(
    "words",
    [("sql", "x", "--epch", "1"), ("frob",), ("plan",), ("sql",), ("sql", "x", "--epoch", "one")],
    ids=lambda words: " ".join(words),
)
def test_what_the_command_line_does_not_know_is_refused(words: tuple[str, ...]) -> None:
    result = fresco(*words)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert compact(result.stderr)


def test_a_misspelt_option_is_answered_with_the_nearest() -> None:
    assert "--epoch" in fresco("sql", "x", "--epch", "1").stderr


def test_help_names_every_command() -> None:
    said = fresco("--help").stdout
    assert all(command in said for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = fresco(command, "--help")
    assert result.exit_code == 0
    assert "Usage" in result.stdout


# sql --------------------------------------------------------------------------------------------


def test_sql_shows_rows_to_people(warehouse: Path) -> None:
    result = fresco("sql", "SELECT * FROM balance ORDER BY account", "-w", warehouse)
    assert result.exit_code == 0, result.output
    assert "│ 1" in result.stdout and "7.00" in result.stdout
    assert "2 rows" in result.stdout


def test_sql_gives_programs_one_json_object_a_row(warehouse: Path) -> None:
    text = "SELECT account, total FROM balance ORDER BY account"
    result = fresco("sql", text, "-w", warehouse, "--json")
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"account": 1, "total": "5.00"},
        {"account": 2, "total": "7.00"},
    ]


def test_sql_shows_values_as_they_are_whatever_brackets_they_hold(warehouse: Path) -> None:
    result = fresco("sql", "SELECT text FROM lines", "-w", warehouse)
    assert "see [/dev/null] and [red]" in result.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("SELEC 1",), "READ_SQL"),
        (("SELECT * FROM balanc",), "READ_"),
        (("SELECT * FROM balance", "--epoch", "9"), "READ_"),
        (("SELECT * FROM balance", "--transaction", "9"), "READ_ABOVE_FRONTIER"),
        (("SELECT * FROM balance", "--transaction", "0", "--epoch", "1"), "READ_AT"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_question_that_has_no_answer_is_a_coded_error(
    warehouse: Path, words: tuple[str, ...], code: str
) -> None:
    failed(fresco("sql", *words, "-w", warehouse), code)


# status and ddl ---------------------------------------------------------------------------------


def test_status_shows_groups_stages_and_why_a_view_is_suspended(warehouse: Path) -> None:
    result = fresco("status", "-w", warehouse)
    assert result.exit_code == 0, result.output
    said = compact(result.stdout)
    assert "group bank" in said and "epoch 1" in said
    assert "SUSPENDED VIEW_INPUT_DAMAGED: a record [/x] is damaged [topic t, offset 7]" in said
    assert "alpha" in said


def test_status_gives_programs_the_same(warehouse: Path) -> None:
    found = json.loads(fresco("status", "-w", warehouse, "--json").stdout)
    assert found["holder"] == {"host": "alpha"}
    (group,) = found["groups"]
    assert (group["group"], group["epoch"], group["frontier"]) == ("bank", 1, 0)
    (stage,) = found["stages"]
    assert (stage["stage"], stage["number"]) == ("view:balance", 4)
    assert stage["error"]["code"] == "VIEW_INPUT_DAMAGED"


@pytest.mark.parametrize("engine", ["spark", "duckdb", "trino"])
def test_ddl_prints_statements_that_can_be_run(warehouse: Path, engine: str) -> None:
    result = fresco("ddl", engine, "-w", warehouse)
    assert result.exit_code == 0, result.output
    statements = [one.strip() for one in result.stdout.split(";") if one.strip()]
    assert len(statements) >= 2
    assert all(one.split()[0] in {"CREATE", "ATTACH", "CALL"} for one in statements), statements
    assert any("balance" in one for one in statements)


def test_ddl_for_an_engine_nobody_knows_names_those_it_knows(warehouse: Path) -> None:
    assert "duckdb" in failed(fresco("ddl", "oracle", "-w", warehouse), "DDL_ENGINE")


# Tables for people ------------------------------------------------------------------------------


def shown(table: Any) -> str:
    console = Screen(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return console.export_text()


def test_an_answer_with_two_columns_of_one_name_shows_both() -> None:
    answer = pa.table([pa.array([1]), pa.array([None], pa.int64())], names=["a", "a"])
    assert "│ 1 │ NULL │" in shown(rows_table(answer, 10))


def test_a_long_answer_is_cut_and_says_so() -> None:
    said = shown(rows_table(pa.table({"n": list(range(150))}), 100))
    assert "150 rows, 100 shown" in said
    assert "99" in said and "100 │" not in said


def test_one_row_is_called_a_row() -> None:
    assert "1 row\n" in shown(rows_table(pa.table({"n": [1]}), 100))


def test_findings_show_brackets_as_they_are() -> None:
    finding = Checked("kafka", "wrong", "KAFKA_UNREACHABLE: [Errno 111]", "start [/kafka]")
    said = shown(findings_table([finding]))
    assert "wrong KAFKA_UNREACHABLE: [Errno 111]" in said
    assert "start [/kafka]" in said
