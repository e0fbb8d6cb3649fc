"""A column dropped while the service was away stops the views that read it, and no other (DESIGN 11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.algebra.tree import Relation
from streaming.captured.captured_schema import CapturedRelation, captured
from streaming.captured.layout import grown
from streaming.errors import FrescoError
from streaming.metrics import Metrics
from streaming.pipeline.broken_views import BrokenViews
from streaming.pipeline.catalog import load_catalog, load_views, save_catalog
from streaming.pipeline.view_specs import ViewSpec as Specified
from streaming.pipeline.view_specs import parse_view
from streaming.readers import Warehouse
from streaming.runtime.manifests import ManifestStore
from streaming.runtime.step import Fence, Stepper
from streaming.scalars.expression import Column
from streaming.stages.broken_stage import BrokenStage
from streaming.viewmanagers.base import ManagedView
from tests.intakeworld import insert, relations
from tests.sourcelog import SourceLog, Topics
from tests.steppedstages import GROUP, SteppedStages

COLUMNS = {"id": "int", "gone": "int", "v": "string"}
FILES = {
    "reads": "SELECT id, gone FROM s.t",
    "over": "SELECT gone FROM reads",
    "spared": "SELECT id, v FROM s.t",
}


def relation(**columns: str) -> dict[str, Relation]:
    return {"s.t": Relation("s.t", tuple(Column(n, t) for n, t in columns.items()), (0,))}


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    """A pipeline that has been started over the table as it was."""
    (tmp_path / "views").mkdir()
    for name, sql in FILES.items():
        write(tmp_path, name, sql)
    views = load_views(tmp_path / "views", relation(**COLUMNS))
    save_catalog(tmp_path, views, {"g": list(FILES)}, relation(**COLUMNS))
    return tmp_path


def write(folder: Path, name: str, sql: str) -> None:
    text = f"-- a comment\nCREATE MATERIALIZED VIEW {name} AS\n{sql}\n"
    (folder / "views" / f"{name}.sql").write_text(text)


def planned(
    warehouse: Path, now: dict[str, Relation]
) -> tuple[dict[str, Specified], dict[str, FrescoError]]:
    """The views that a start plans with, and which of them are broken."""
    stored = load_catalog(warehouse)
    layouts = {name: layout for name, layout in stored.layouts.items() if name in now}
    layouts = grown(layouts, [as_captured(one) for one in now.values()], 7)
    broken = BrokenViews(stored, layouts)
    newest = {name: one.newest for name, one in layouts.items()}
    views = load_views(warehouse / "views", newest, broken.instead, broken.as_of)
    return {view.name: view for view in broken.checked(views)}, broken.errors


def as_captured(one: Relation) -> CapturedRelation:
    """The relation as its database would tell it."""
    names = {"int": "int4", "bigint": "int8", "string": "text"}
    types = [(column.name, names[column.type]) for column in one.schema]
    return captured(one.name, one.name, types, key=[one.schema[at].name for at in one.key])


def test_a_view_of_a_dropped_column_is_planned_as_it_was_and_the_others_as_they_are(
    warehouse: Path,
) -> None:
    views, errors = planned(warehouse, relation(id="int", v="string"))
    assert set(errors) == {"reads"}, "a view over it hears of it from its lists"
    assert errors["reads"].code == "VIEW_COLUMN_CHANGED"
    assert "column gone of s.t was dropped or renamed" in errors["reads"].what
    assert [column.name for column in views["reads"].schema] == ["id", "gone"]
    assert [column.name for column in views["over"].schema] == ["gone"]
    spared = parse_view(
        f"CREATE MATERIALIZED VIEW s AS {FILES['spared']}", relation(id="int", v="string")
    )
    assert views["spared"].schema == spared.schema


def test_a_wider_column_leaves_all_views_as_they_are(warehouse: Path) -> None:
    views, errors = planned(warehouse, relation(id="int", gone="bigint", v="string"))
    assert errors == {}
    assert views["reads"].schema[1].type == "int"


def test_a_column_of_another_type_breaks_the_views_that_read_it(warehouse: Path) -> None:
    views, errors = planned(warehouse, relation(id="int", gone="string", v="string"))
    assert set(errors) == {"reads"}
    assert "gone of s.t was int and is text" in errors["reads"].what
    assert views["reads"].schema[1].type == "int"


def test_columns_that_no_view_reads_come_and_go(warehouse: Path) -> None:
    _, errors = planned(warehouse, relation(**COLUMNS, more="string"))
    assert errors == {}


@pytest.mark.parametrize(
    ("sql", "now"),
    [
        ("SELECT id, gone, v FROM s.t", relation(id="int", v="string")),
        (FILES["reads"], {}),
        ("SELECT id, missing FROM s.t", relation(**COLUMNS)),
    ],
    ids=["the file has changed too", "not captured any more", "the table has not changed"],
)
def test_what_is_not_the_database_s_doing_is_refused(
    warehouse: Path, sql: str, now: dict[str, Relation]
) -> None:
    write(warehouse, "reads", sql)
    with pytest.raises(FrescoError, match="SQL_UNKNOWN"):
        planned(warehouse, now)


def test_the_stage_suspends_its_view_once_and_the_others_go_on(tmp_path: Path) -> None:
    captured = relations()
    known = {one.relation.name: one.relation for one in captured}
    views = [
        parse_view(f"CREATE MATERIALIZED VIEW {name} AS SELECT id, v FROM north.{table}", known)
        for name, table in (("left", "account"), ("right", "account"), ("third", "entry"))
    ]
    names = [view.name for view in views]
    save_catalog(tmp_path, views, {GROUP: names}, known)
    stages, log, topics = SteppedStages(tmp_path, captured, views), SourceLog("north"), Topics()
    stages.feed(topics.batch(log.commit([insert("account", 1)])))
    stages.number(topics.batch(log.commit([insert("account", 2)])))
    stages.close()
    stages = stages.again()
    error = FrescoError("VIEW_COLUMN_CHANGED", "column v is gone")
    for start in range(2):
        stage = BrokenStage(
            ManagedView("left", GROUP, views[0].tree),
            "view:left",
            error,
            tmp_path,
            f"{GROUP}.actions.{GROUP}",
            Metrics(),
        )
        fence = Fence(tmp_path / "broken", {"start": start})
        chain = ManifestStore(tmp_path / "_state" / "view-left" / "manifests")
        stepper = Stepper(stage, chain, fence, stages._publish)
        stepper.batch(topics.batch([]).append_column("headers", [[]]))
        assert stage.suspended == error.as_dict() and (stage.handled, stage.needed) == (1, 0)
    for name in ("view:right", "view:third", f"merge:{GROUP}"):
        stages.step(name)
    newest = Warehouse(tmp_path).epochs(GROUP)[-1]
    assert (newest.frontier, dict(newest.suspended)) == (2, {"left": 1})
    suspends = [
        record
        for record in stages.records[f"{GROUP}.actions.{GROUP}"]
        if any(field["value"] == b"suspend" for field in record["headers"])
    ]
    assert len({record["value"] for record in suspends}) == 1
    stages.close()
