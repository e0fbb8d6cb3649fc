"""Oddity 17: a column added, dropped, renamed or retyped in mid-stream. Unaffected views go on, equal to
recomputation at every number; affected ones stop clearly, at the right number.
"""

from __future__ import annotations

import json

import pytest

from streaming.messages import Control
from tests.changedtable import READ, VIEWS, Table

EVERY = set(VIEWS)


@pytest.fixture(params=[False, True], ids=["plain", "with_schema_part"])
def table(request: pytest.FixtureRequest) -> Table:
    """Three rows that came before the change."""
    made = Table(with_schema=request.param)
    made.commit(*(made.put(i, account=i % 2, amount=f"{i}.50", note=f"n{i}") for i in (1, 2, 9)))
    return made


def work(table: Table, **values: object) -> int:
    """An update, an insertion and a deletion of rows from before the change; the first number."""
    first = table.commit(table.put(1, account=5, **values))
    table.commit(table.put(4, account=5, **values), table.delete(2))
    table.commit(table.put(4, account=1))
    return first


def stopped(table: Table, column: str, number: int, offset: int = 3) -> dict[str, str]:
    """The one error of all views that read the column, which stopped just before the number."""
    table.check(*EVERY - READ[column])
    errors = [table.suspended[view].error for view in sorted(READ[column])]
    assert all(table.suspended[view].after == number - 1 for view in READ[column])
    told = [
        {**error, "todo": error["todo"].replace(view, "VIEW")}
        for view, error in zip(sorted(READ[column]), errors, strict=True)
    ]
    assert all(one == told[0] for one in told)
    gone = "is missing in the event" in errors[0]["what"]
    assert errors[0]["code"] == ("VIEW_COLUMN_CHANGED" if gone else "VIEW_VALUE_UNFIT")
    assert f"column {column} of north.entry" in errors[0]["what"]
    assert f"north.entry, number {number}; topic north.public.entry" in errors[0]["where"]
    assert errors[0]["where"].endswith(f"partition 0, offset {offset}") and errors[0]["todo"]
    return errors[0]


@pytest.mark.parametrize("column", ["amount", "note", "account"])
def test_oddity_17_a_dropped_column_stops_the_views_that_read_it(table: Table, column: str) -> None:
    table.drop(column)
    number = table.commit(table.put(1, **({"note": "x"} if column != "note" else {"account": 7})))
    table.commit(table.delete(2), table.put(4))
    table.commit(table.delete(1))
    assert f"column {column} of north.entry is missing" in stopped(table, column, number)["what"]


def test_oddity_17_a_renamed_column_is_one_dropped_and_one_added(table: Table) -> None:
    table.drop("note")
    table.add("remark", "text", "was a note")
    number = work(table, remark="now a remark")
    assert "is missing in the event" in stopped(table, "note", number)["what"]
    (notice,) = (one for result in table.results for one in result.notices)
    assert "north.entry" in notice and "remark" in notice
    (lost,) = (one for result in table.results for one in result.lost)
    assert lost.error["code"] == "SOURCE_FIELD_MISSING" and "note" in lost.error["what"]


def test_oddity_17_an_added_column_is_said_once_and_changes_nothing(table: Table) -> None:
    table.add("colour", "text", "grey")
    work(table, colour="red")
    table.check(*EVERY)
    notices = [one for result in table.results for one in result.notices]
    assert len(notices) == 1 and "north.entry" in notices[0] and "colour" in notices[0]
    assert all(result.bad == result.lost == result.controls == () for result in table.results)


@pytest.mark.parametrize(
    ("column", "type_", "convert", "values"),
    [
        ("amount", "text", lambda _: "much", {"amount": "abc"}),
        ("amount", "numeric(18,2)", lambda old: old + "25", {"amount": "1.2345"}),
        ("account", "double precision", lambda old: old + 0.5, {}),
        ("account", "text", lambda old: f"no {old}", {}),
    ],
    ids=["numeric_text", "numeric_more_digits", "int_float", "int_text"],
)
def test_oddity_17_a_retyped_column_stops_the_views_that_read_it(
    table: Table, column: str, type_: str, convert: object, values: dict[str, object]
) -> None:
    table.retype(column, type_, convert)
    values = values or {"account": "x" if type_ == "text" else 5.5}
    number = table.commit(table.put(1, note="x", **values))
    table.commit(table.delete(2), table.put(4, **values))
    table.commit(table.put(4, note="y"))
    assert f"a value of column {column}" in stopped(table, column, number)["what"]
    (lost,) = (one for result in table.results for one in result.lost)
    assert lost.error["code"] == "SOURCE_VALUE_UNFIT"


def test_oddity_17_a_widened_column_goes_on(table: Table) -> None:
    table.retype("account", "int8", lambda old: old)
    table.retype("note", "text", lambda old: old)
    work(table, note="longer than ten letters", amount="7.00")
    table.check(*EVERY)
    assert all(r.bad == r.lost == r.notices == r.controls == () for r in table.results)


def test_oddity_17_a_value_too_wide_for_the_old_type_stops_at_its_own_number(table: Table) -> None:
    table.retype("account", "int8", lambda old: old)
    fits = table.commit(table.put(1, account=5))
    number = table.commit(table.put(1, account=2**40))
    assert number == fits + 1
    stopped(table, "account", number, offset=4)


def test_oddity_17_the_schema_part_tells_a_type_that_the_value_does_not() -> None:
    table = Table(with_schema=True)
    table.commit(*(table.put(i, account=i, amount="1.00", note="n") for i in (1, 2, 9)))
    table.retype("account", "date", lambda _: 19000)
    number = table.commit(table.put(1, account=19001))
    table.commit(table.put(2, account=None))
    stopped(table, "account", number)


def test_a_null_is_a_null_whatever_the_columns_type_is_now(table: Table) -> None:
    table.commit(*(table.put(id_, amount=None) for id_ in (1, 2, 9)))
    table.retype("amount", "date", lambda old: old)
    table.commit(table.put(1, note="x"))
    table.check(*EVERY)


def test_a_key_column_that_is_gone_stops_every_view_of_the_relation(table: Table) -> None:
    record = table.put(1, account=5)
    event = json.loads(record[1] or "")
    del event["after"]["id"]
    table.commit((record[0], json.dumps(event)))
    table.check("others")
    assert {one.error["code"] for one in table.suspended.values()} == {"VIEW_INPUT_DAMAGED"}
    (bad,) = table.results[-1].bad
    assert bad.error["code"] == "SOURCE_FIELD_MISSING" and "id" in bad.error["what"]


def test_a_table_without_a_key_loses_a_column_like_any_other() -> None:
    table = Table(key=())
    table.commit(*(table.put(i, account=1, amount="1.00", note="same") for i in (1, 2, 3)))
    table.drop("amount")
    number = table.commit(table.delete(1), table.put(2, note="x"))
    table.commit(table.delete(2), table.delete(3))
    table.check(*EVERY - READ["amount"])
    assert table.suspended["totals"].after == number - 1


def test_one_control_for_each_column_and_batch_names_the_first_place(table: Table) -> None:
    table.drop("amount")
    table.drop("note")
    first = table.commit(table.put(1, account=3), table.put(2, account=3))
    second = table.commit(table.put(2, account=4))
    controls = [[(c.number, c.columns) for c in r.controls] for r in table.results[-2:]]
    assert controls == [[(first, (2,)), (first, (3,))], [(second, (2,)), (second, (3,))]]
    (_, noted) = table.results[-2].controls
    assert noted == Control(
        number=first,
        relation="north.entry",
        kind="tainted",
        columns=(3,),
        what="column note of north.entry is missing in the event: it was dropped or renamed at the "
        "source",
        where="topic north.public.entry, partition 0, offset 3",
    )
    told = [record.error["what"] for result in table.results for record in result.lost]
    assert len(told) == 2, "each column once"


def test_a_taint_of_columns_is_written_like_this_and_one_without_as_ever() -> None:
    whole = Control(number=3, relation="north.entry", kind="tainted")
    assert whole.model_dump_json() == '{"number":3,"relation":"north.entry","kind":"tainted"}'
    lost = whole.model_copy(update={"columns": (2,), "what": "is missing", "where": "offset 7"})
    assert lost.model_dump_json() == (
        '{"number":3,"relation":"north.entry","kind":"tainted","columns":[2],'
        '"what":"is missing","where":"offset 7"}'
    )
    assert Control.model_validate_json(lost.model_dump_json()) == lost


def test_a_restart_in_between_tells_the_same(table: Table) -> None:
    saved = table.intake.snapshot()
    table.drop("amount")
    table.intake.restore(json.loads(json.dumps(saved)))
    number = work(table, note="x")
    stopped(table, "amount", number)


def test_a_snapshot_that_lacks_a_column_stops_its_readers_before_number_0() -> None:
    table = Table(snapshot=True)
    row = {"id": 1, "account": 2, "note": "n"}
    rows = [table.log.row("entry", "r", None, row)]
    table.rows[1] = row
    table.take([*rows, *table.log.scanned({"entry": 1, "other": 0})])
    table.truth.append(table.evaluated())
    table.check(*EVERY - READ["amount"])
    assert table.suspended["totals"].after == -1
