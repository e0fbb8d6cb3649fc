"""Oddity 39: a column whose type is not supported is told of by name, wherever a view asks for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from streaming.algebra.tree import Relation
from streaming.cli.commands import app
from streaming.errors import FrescoError
from streaming.pipeline.catalog import load_catalog, parse_view, save_catalog
from streaming.scalars.expression import Column
from streaming.sql.parse import parse

LEFT_OUT = (("iv", "interval"), ("Tags", "text[]"))
R = Relation("s.r", (Column("id", "int"),), (0,), LEFT_OUT)
Q = Relation("s.q", (Column("id", "int"), Column("tags", "string")), (0,))
KNOWN = {"s.r": R, "s.q": Q}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id, iv FROM s.r",
        "SELECT id FROM s.r WHERE IV IS NULL",
        "SELECT r.id FROM s.r JOIN s.q ON r.iv = q.tags",
        "SELECT x.id, x.iv FROM s.q JOIN s.r AS x ON x.id = q.id",
        "SELECT id, COUNT(iv) AS n FROM s.r GROUP BY id",
        "SELECT id FROM (SELECT id, iv FROM s.r) AS y",
    ],
)
def test_a_view_that_reads_it_is_refused_with_its_type(text: str) -> None:
    with pytest.raises(FrescoError) as caught:
        parse(text, KNOWN)
    assert caught.value.code == "SQL_COLUMN_TYPE"
    assert "interval" in caught.value.what and "iv" in caught.value.what.lower()
    assert "decimals" in caught.value.todo and caught.value.where.startswith("line 1, column ")


def test_another_relation_s_column_of_that_name_is_meant_where_there_is_one() -> None:
    parse("SELECT r.id, tags FROM s.r JOIN s.q ON r.id = q.id", KNOWN)
    with pytest.raises(FrescoError, match="SQL_UNKNOWN_COLUMN"):
        parse("SELECT q.iv FROM s.r JOIN s.q ON r.id = q.id", KNOWN)


def test_a_view_that_is_added_later_is_told_the_same(tmp_path: Path) -> None:
    view = parse_view("CREATE MATERIALIZED VIEW v AS SELECT id FROM s.r", KNOWN)
    save_catalog(tmp_path, [view], {"g": ["v"]}, KNOWN)
    with pytest.raises(FrescoError, match="SQL_COLUMN_TYPE"):
        parse("SELECT iv FROM s.r", load_catalog(tmp_path).relations)


def test_plan_lists_them(tmp_path: Path) -> None:
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "v.sql").write_text("CREATE MATERIALIZED VIEW v AS SELECT id FROM s.r")
    source = {
        "tables": {"r": "public.r"},
        "columns": {"r": {"id": "int", "iv": "interval"}},
        "full_rows": True,
    }
    settings = {"pipeline": "p", "warehouse": "lake", "views": "views", "sources": {"s": source}}
    config = tmp_path / "p.yaml"
    config.write_text(yaml.safe_dump(settings))
    shown = CliRunner().invoke(app, ["plan", "--config", str(config)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    assert "left out" in shown.stdout and "interval" in shown.stdout
    told = CliRunner().invoke(app, ["plan", "--config", str(config), "--json"])
    (relation,) = json.loads(told.stdout)["relations"]
    assert relation["left_out"] == [["iv", "interval"]]
