"""Any message of the pipeline's topics in words (DESIGN 10)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from streaming.cli.topic_lines import RecordLine, told
from streaming.messages import (
    ActionList,
    Control,
    Message,
    Rel,
    RelRun,
    Rows,
    Suspend,
    Updates,
    ViewChange,
    encode,
)
from streaming.packed_rows import pack

RUNS = (
    RelRun(first=4, last=6, views=("balance", "total"), idle=("total",)),
    RelRun(first=7, last=7, views=()),
)
FIELDS = {"producer": "integrator", "sequence": "3", "generation": "2"}


def rows(*values: str) -> Rows:
    def no_stage(content: bytes) -> str:
        raise AssertionError("small rows travel inline")

    table = pa.table(
        {
            "_number": pa.array([4] * len(values), pa.int64()),
            "_multiplicity": pa.array([1, -1][: len(values)], pa.int64()),
            "c0": pa.array(values, pa.string()),
            "c1": pa.array([None] * len(values), pa.int32()),
        }
    )
    return pack(table, no_stage)


def says(message: Message, shown: int = 0) -> RecordLine:
    return told("p.rel.g", 9, 1000, encode(message), FIELDS, Path("/nowhere"), shown)


def test_every_message_is_one_line() -> None:
    runs = "4-6 balance (total) | 7 nobody"
    assert says(Rel(group="g", first=4, last=7, runs=RUNS)).says == f"[4..7] {runs}"
    control = Control(number=5, relation="n.r", kind="truncate")
    updates = Updates(
        group="g", first=4, last=7, runs=RUNS, relations={"n.r": rows("a")}, controls=(control,)
    )
    assert says(updates).says == f"[4..7] n.r: 1 row, truncate n.r at 5; {runs}"
    strong = ActionList(group="g", view="v", first=4, last=7, complete=False, delta=rows("a", "b"))
    assert says(strong).says == "v[4..7], as one: 2 rows"
    assert says(ActionList(group="g", view="v", first=4, last=4)).says == "v[4..4]: empty"
    away = Rows(rows=5, path="_staging/x.parquet", sha256="0")
    assert "5 rows in _staging/x" in says(strong.model_copy(update={"delta": away})).says
    stopped = Suspend(group="g", view="v", after=3, error={"code": "VIEW_X", "what": "it broke"})
    assert says(stopped).says == "v is suspended after 3: VIEW_X it broke"
    joins = ViewChange(group="g", view="v", change="add", number=8, manager="strong")
    assert says(joins).says == "v joins at 8 (strong)"
    assert says(joins.model_copy(update={"change": "drop"})).says == "v leaves at 8"


def test_a_line_says_who_sent_it_and_many_runs_are_counted() -> None:
    many = tuple(RelRun(first=n, last=n, views=("v",)) for n in range(9))
    line = says(Rel(group="g", first=0, last=8, runs=many))
    assert (line.topic, line.offset, line.kind) == ("p.rel.g", 9, "rel")
    assert (line.producer, line.sequence, line.generation) == ("integrator", "3", "2")
    assert line.says.endswith("| 5 v | 3 runs more")


def test_rows_are_told_where_they_are_asked_for() -> None:
    message = ActionList(group="g", view="v", first=4, last=4, delta=rows("a", "b"))
    assert says(message).rows == ()
    assert says(message, 5).rows == ("v @4 +1 (a, NULL)", "v @4 -1 (b, NULL)")
    assert says(message, 1).rows == ("v @4 +1 (a, NULL)", "v: 1 rows more")
    gone = Rows(rows=1, path="_staging/gone.parquet", sha256="0")
    (line,) = says(message.model_copy(update={"delta": gone}), 5).rows
    assert "damaged" in line


def test_what_is_no_message_is_shown_as_such() -> None:
    line = told("p.rel.g", 0, 0, b"{", {}, Path("/nowhere"))
    assert line.kind == "?" and line.producer == "?" and "not a message" in line.says
    assert "not a message" in told("p.rel.g", 0, 0, None, {}, Path("/nowhere")).says
