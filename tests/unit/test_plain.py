"""Nothing that a terminal acts on comes from data, names, files or the environment to a person."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from typer.testing import CliRunner, Result
from warehouse_rows import delta, next_epoch, write_catalog

from streaming import app as service
from streaming import errors
from streaming.algebra.tree import Relation
from streaming.captured.checked import Checked
from streaming.cli import reporting
from streaming.cli import topic_lines as tailing
from streaming.cli.commands import app
from streaming.cli.ddl import ddl
from streaming.cli.tables import findings_table, verdict_table
from streaming.cli.topic_lines import RecordLine
from streaming.configuration.pipeline_config import load_config
from streaming.errors import FrescoError
from streaming.pipeline.view_specs import parse_view
from streaming.plain import PlainFormatter, controls, plain
from streaming.proof.recorded_levels import Judged, Verdict
from streaming.runtime.fence import Fence
from streaming.runtime.manifests import Manifest, ManifestStore
from streaming.scalars.expression import Column
from streaming.service.screen import Screen
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.group_writer import GroupWriter

EVIL = "[red]a\x1b]0;me\x07\x1b[2J\x9b\x7f\r\nERROR b\u2028\u202ec\u2066\x08 :smile: [/] é日本"
WRITTEN = r"[red]a\x1b]0;me\x07\x1b[2J\x9b\x7f\r\nERROR b\u2028\u202ec\u2066\x08 :smile: [/] é日本"
ROOT = Path(__file__).parents[2]
WORDS = ViewTable("words", (Column("id", "int"), Column("word", "string")))


def fresco(*words: object) -> Result:
    return CliRunner().invoke(app, [str(one) for one in words], env={"COLUMNS": "1000"})


def clean(text: str, holds: str = WRITTEN) -> None:
    """Everything printable, and what was evil written out."""
    bad = {one for one in text if not one.isprintable() and one != "\n"}
    assert not bad, (bad, text)
    assert holds in text, text


@given(st.text(st.characters()))
def test_plain_text_is_one_line_that_can_be_printed(text: str) -> None:
    assert plain(text).isprintable()
    assert plain(plain(text)) == plain(text)
    if text.isprintable():
        assert plain(text) == text


def test_surrogates_are_written_out() -> None:
    assert plain("\ud800") == r"\ud800" and plain(EVIL) == WRITTEN


@pytest.mark.parametrize("one", ["\x00", "\t", "\n", "\x1b", "\x7f", "\x85", "\u2028", "\u202e"])
def test_controls_are_none_of_a_names_characters(one: str) -> None:
    assert controls(f"a{one}b")


@pytest.mark.parametrize("name", ["a b", "é日本", "\u0645\u0649\u200c\u062e", "a.b,c;{}", "a\xa0b"])
def test_names_of_any_script_hold_none(name: str) -> None:
    assert not controls(name)


# Commands -------------------------------------------------------------------------------------------


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """A view whose rows are evil, and a service whose host and errors are."""
    write_catalog(tmp_path, "g", [WORDS])
    writer = GroupWriter(str(tmp_path), "p", "g", [WORDS])
    writer.commit({"words": delta(WORDS, [(0, 1, 1, EVIL)])}, next_epoch(None, "g", ((0, 0),)))
    Fence(tmp_path / "_state" / "generations", {"host": EVIL})
    error = {"code": "VIEW_X", "what": EVIL, "where": EVIL, "todo": EVIL}
    manifest = Manifest(
        stage="view:words",
        step=1,
        generation=1,
        offsets={},
        snapshot={"control": {"number": 4}, "suspended": error},
    )
    ManifestStore(tmp_path / "_state" / "view-words" / "manifests").put(manifest)
    bad = tmp_path / "_state" / "bad_records"
    bad.mkdir(parents=True)
    (bad / "t-0-1.json").write_text(json.dumps({"error": {**error, "code": EVIL}}))
    return tmp_path


def test_sql_shows_data_and_names_as_text(warehouse: Path) -> None:
    shown = fresco("sql", f'SELECT word AS "{EVIL}" FROM words', "-w", warehouse)
    assert shown.exit_code == 0, shown.output
    clean(shown.stdout)
    assert shown.stdout.count(WRITTEN) == 2
    rows = fresco("sql", "SELECT word FROM words", "-w", warehouse, "--json")
    assert "\x1b" not in rows.stdout and json.loads(rows.stdout)["word"] == EVIL
    failed = fresco("sql", f"SELECT {EVIL} FROM words", "-w", warehouse)
    clean(failed.stderr, "READ_SQL")


def test_status_shows_hosts_and_errors_as_text(warehouse: Path) -> None:
    shown = fresco("status", "-w", warehouse)
    assert shown.exit_code == 0, shown.output
    clean(shown.stdout, "[red]a")
    assert shown.stdout.count("[red]a") >= 3


def test_topics_tail_shows_messages_as_text(monkeypatch: pytest.MonkeyPatch, config: Path) -> None:
    found = RecordLine(EVIL, 0, 1, 0, EVIL, 1, EVIL, EVIL, (EVIL,))
    monkeypatch.setattr(tailing, "tail", lambda *_, **__: iter([found]))
    shown = fresco("topics", "tail", "x.topic", "-c", config)
    assert shown.exit_code == 0, shown.output
    clean(shown.stdout)
    assert shown.stdout.count(WRITTEN) >= 3


def test_witnesses_and_findings_are_text() -> None:
    line = Judged("view", EVIL, "complete", "weak", False, 1, 1, 1, None, EVIL)
    verdict = Verdict("updates", (line,), (EVIL,), {"g": 1}, 1, 1.0)
    screen = Screen(width=2000, record=True)
    with screen.capture() as capture:
        screen.print(verdict_table(verdict))
        screen.print(findings_table([Checked(EVIL, "wrong", EVIL, EVIL)]))
    clean(capture.get(), "[red]a")
    assert capture.get().count("[red]a") >= 5


# Errors, logs -------------------------------------------------------------------------------------


def test_an_error_is_printed_in_three_lines_whatever_it_holds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporting, "err", Screen(stderr=True, width=500))
    reporting.print_error(FrescoError("X_Y", EVIL, where=EVIL, todo=EVIL))
    said = capsys.readouterr().err
    clean(said)
    assert len(said.splitlines()) == 3
    assert str(FrescoError("X_Y", EVIL)) == f"X_Y: {WRITTEN}"
    assert json.loads(json.dumps(FrescoError("X_Y", EVIL).as_dict()))["what"] == EVIL


def test_spark_submit_prints_errors_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump({"pipeline": "p", EVIL: 1}))
    assert service.main(["--config", str(file)]) == 1
    clean(capsys.readouterr().err, "[red]a")


def test_a_log_has_one_line_for_a_message_and_plain_traces(tmp_path: Path) -> None:
    formatter = PlainFormatter("%(levelname)s %(message)s")
    record = logging.LogRecord("fresco", logging.ERROR, "", 1, "bad: %s", (EVIL,), None)
    assert formatter.format(record) == f"ERROR bad: {WRITTEN}"
    try:
        raise ValueError(EVIL)
    except ValueError as error:
        trace = (type(error), error, error.__traceback__)
    record = logging.LogRecord("fresco", logging.ERROR, "", 1, "bad", (), trace)
    clean(formatter.format(record), r"[red]a\x1b]0;me")


SAYS = """
import logging, pathlib, sys
from streaming.service.terminal import terminal
with terminal(pathlib.Path(sys.argv[1])):
    logging.getLogger("fresco").error("bad: %s", sys.argv[2])
    logging.getLogger("library").error("worse: %s", sys.argv[2])
"""


def test_the_terminal_and_the_log_file_of_a_service_are_plain(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    words = [sys.executable, "-c", SAYS, str(file), EVIL]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, cwd=ROOT)
    clean(ran.stderr, "[red]a")
    clean(file.read_text())
    assert file.read_text().count(WRITTEN) == 2


# Names --------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Path:
    views = tmp_path / "views"
    views.mkdir()
    settings: dict[str, Any] = {
        "pipeline": "p",
        "warehouse": str(tmp_path / "w"),
        "views": str(views),
        "sources": {
            "n": {"tables": {"e": "public.e"}, "columns": {"e": {"id": "int"}}, "full_rows": True}
        },
    }
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump(settings))
    return file


ENTRY = {"n.e": Relation("n.e", (Column("id", "int"), Column("x\ny", "int")))}


@pytest.mark.parametrize("one", ["\x1b[2J", "\n", "\u202e", "\x85"])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id AS `a{}b` FROM n.e",
        "SELECT `t{}`.id FROM n.e AS `t{}`",
        "WITH `c{}` AS (SELECT id FROM n.e) SELECT id FROM `c{}`",
    ],
)
def test_control_characters_are_refused_in_names_of_a_view(sql: str, one: str) -> None:
    text = "CREATE MATERIALIZED VIEW v AS " + sql.replace("{}", one)
    with pytest.raises(FrescoError) as refused:
        parse_view(text, ENTRY, origin="v.sql")
    assert refused.value.code in ("VIEW_COLUMN_NAME", "SQL_SYNTAX")
    assert str(refused.value).isprintable()


def test_a_captured_columns_name_is_not_handed_on_by_a_star() -> None:
    with pytest.raises(FrescoError, match="VIEW_COLUMN_NAME"):
        parse_view("CREATE MATERIALIZED VIEW v AS SELECT * FROM n.e", ENTRY)


def test_names_of_relations_have_no_control_characters(config: Path) -> None:
    settings = yaml.safe_load(config.read_text())
    for place in ({"e\x1b": "public.e"}, {"e": "public.e\n"}):
        settings["sources"]["n"]["tables"] = place
        config.write_text(yaml.safe_dump(settings))
        with pytest.raises(FrescoError) as refused:
            load_config(config)
        assert refused.value.code == "CONFIG_VALUE" and str(refused.value).isprintable()
    settings["pipeline"] = "p\n"
    config.write_text(yaml.safe_dump(settings))
    with pytest.raises(FrescoError, match="CONFIG_VALUE"):
        load_config(config)


def test_an_error_of_a_view_file_is_text(config: Path) -> None:
    (config.parent / "views" / "v\x1b[2J.sql").write_text(f"CREATE VIEW {EVIL}")
    shown = fresco("plan", "-c", config)
    assert shown.exit_code == 1
    clean(shown.output, r"v\x1b[2J.sql")


@pytest.mark.parametrize("engine", ["spark", "duckdb", "trino"])
def test_no_statement_holds_control_characters(tmp_path: Path, engine: str) -> None:
    write_catalog(tmp_path, "g", [ViewTable("v", (Column("a\nb\x1b", "int"),))])
    with pytest.raises(FrescoError, match="DDL_NAME"):
        ddl(str(tmp_path), engine)


def test_markup_is_text_and_styles_stay(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("[bold]head")
    table.add_row("[/nothing] :smile:")
    Screen(width=80).print("[red]x", table)
    shown = capsys.readouterr().out
    assert "[red]x" in shown and "[bold]head" in shown and "[/nothing] :smile:" in shown


def test_commands_of_errors_name_their_view() -> None:
    error = {"code": "X", "todo": "`fresco view resume NAME`"}
    assert errors.about(error, "ratio")["todo"] == "`fresco view resume ratio`"
