"""A relation's columns over time: a position means one column of one type (`captured.layout`)."""

from __future__ import annotations

import json

import pytest

from streaming.captured.captured_schema import CapturedRelation, captured
from streaming.captured.layout import Layout, entry_of, grown, holds, layout_of, loses

Types = dict[str, str]
TABLE = {"id": "integer", "a": "integer", "note": "character varying(10)"}


def now(types: Types, made: dict[str, str] | None = None, key: str = "id") -> CapturedRelation:
    """A table as its catalog has it."""
    known = {name: (type_, (made or {}).get(name, f"1.{name}")) for name, type_ in types.items()}
    return captured("s.t", "s.public.t", list(types.items()), key=[key], known=known)


def after(*tables: CapturedRelation) -> Layout:
    layouts: dict[str, Layout] = {}
    for number, table in enumerate(tables):
        layouts = grown(layouts, [table], 10 * number)
    return layouts["s.t"]


def seen(layout: Layout, generation: int) -> list[tuple[int, str, str]]:
    """What a view that is planned as of a generation sees: position, name, type."""
    schema = layout.as_of(generation).schema
    return [(at, c.name, c.type) for at, c in enumerate(schema) if not c.hidden]


def test_a_table_that_has_not_changed_keeps_its_layout() -> None:
    once = after(now(TABLE))
    assert grown({"s.t": once}, [now(TABLE)], 10)["s.t"] is once
    assert seen(once, 0) == [(0, "id", "int"), (1, "a", "int"), (2, "note", "string")]


def test_a_new_column_comes_last_wherever_it_stands() -> None:
    layout = after(now(TABLE), now({"new": "text", **TABLE}))
    assert seen(layout, 0) == seen(after(now(TABLE)), 0)
    assert seen(layout, 1)[-1] == (3, "new", "string")
    assert layout.columns[3].first == 10


def test_a_dropped_column_keeps_its_place_and_a_view_that_reads_it_loses_it() -> None:
    layout = after(now(TABLE), now({"id": "integer", "note": "character varying(10)"}))
    assert seen(layout, 1) == [(0, "id", "int"), (2, "note", "string")]
    assert layout.lost == {1} and layout.columns[1].last == 10
    assert loses({"s.t": layout}, {"s.t": frozenset({0, 1})}) == [
        "column a of s.t was dropped or renamed"
    ]
    assert loses({"s.t": layout}, {"s.t": frozenset({0, 2})}) == []


def test_a_column_made_anew_is_another_one() -> None:
    layout = after(now(TABLE), now(TABLE, {"a": "1.9"}))
    assert seen(layout, 1) == [(0, "id", "int"), (2, "note", "string"), (3, "a", "int")]
    assert layout.lost == {1}
    (said,) = loses({"s.t": layout}, {"s.t": frozenset({1})})
    assert "dropped and made anew" in said


def test_a_wider_column_goes_on_with_the_values_of_the_one_before_and_leaves_that_one() -> None:
    layout = after(now(TABLE), now({**TABLE, "a": "bigint"}))
    assert seen(layout, 0)[1] == (1, "a", "int") and seen(layout, 1)[-1] == (3, "a", "bigint")
    assert layout.columns[3].before == 1 and layout.columns[3].first == 0
    assert layout.lost == frozenset()
    gone = after(now(TABLE), now({**TABLE, "a": "bigint"}), now({"id": "integer"}))
    assert gone.lost == {1, 2, 3}, "the narrower one with the wider one"


def test_a_key_is_found_in_each_generation() -> None:
    layout = after(now(TABLE), now({**TABLE, "id": "bigint"}))
    assert (layout.as_of(0).key, layout.as_of(1).key) == ((0,), (3,))


def test_a_text_that_is_only_longer_is_the_same_column() -> None:
    layout = after(now(TABLE), now({**TABLE, "note": "text"}))
    assert seen(layout, layout.generation) == seen(after(now(TABLE)), 0)


def test_the_database_s_order_of_columns_does_not_matter() -> None:
    moved = {name: TABLE[name] for name in reversed(TABLE)}
    assert seen(after(now(TABLE), now(moved)), 1) == seen(after(now(TABLE)), 0)


def test_a_layout_comes_back_from_its_entry() -> None:
    layout = after(now(TABLE), now({**TABLE, "a": "bigint"}), now({"id": "integer", "b": "text"}))
    assert layout_of(json.loads(json.dumps(entry_of(layout)))) == layout
    id_ = {"name": "id", "type": "int"}
    plain = {"name": "s.t", "schema": [id_], "key": [0], "left_out": [["p", "point"]]}
    assert entry_of(layout_of(plain)) == plain


def test_a_catalog_of_before_takes_what_the_database_says_now() -> None:
    plain = [{"name": "id", "type": "int"}, {"name": "a", "type": "int"}]
    old = layout_of({"name": "s.t", "schema": plain, "key": [0]})
    first = grown({"s.t": old}, [now({"id": "integer", "a": "integer"})], 5)["s.t"]
    assert first.generation == 0 and first.columns[1].identity == "1.a"
    wider = grown({"s.t": old}, [now({"id": "integer", "a": "bigint"})], 5)["s.t"]
    assert wider.columns[2].before == 1 and wider.lost == frozenset()


@pytest.mark.parametrize(
    ("before", "then", "kept"),
    [
        ("integer", "bigint", True),
        ("bigint", "integer", False),
        ("real", "double precision", True),
        ("numeric(10,2)", "numeric(12,2)", True),
        ("numeric(10,2)", "numeric(12,4)", True),
        ("numeric(10,4)", "numeric(10,2)", False),
        ("numeric(10,2)", "numeric(11,4)", False),
        ("character varying(10)", "text", True),
        ("character varying(100000)", "text", True),
        ("character varying(10)", "character varying(20)", True),
        ("text", "character varying(100000)", False),
        ("character(5)", "character(9)", False),
        ("timestamp(3) without time zone", "timestamp(6) without time zone", True),
        ("timestamp(6) without time zone", "timestamp(3) without time zone", False),
        ("timestamp without time zone", "timestamp(0) without time zone", False),
        ("json", "jsonb", False),
        ("uuid", "text", True),
        ("text", "integer", False),
        ("int(11)", "bigint(20)", True),
        ("int(10) unsigned", "bigint(20)", True),
        ("bigint(20)", "bigint(20) unsigned", False),
        ("int(11)", "bigint(20) unsigned", False),
        ("varchar(20) character set latin1", "varchar(20) character set utf8mb4", True),
        ("varchar(20) character set utf8mb4", "varchar(20) character set latin1", False),
        ("varchar(20) character set utf8mb4", "text character set utf8mb4", True),
        ("text character set utf8mb4", "tinytext character set utf8mb4", False),
        ("enum('a','b')", "enum('a','b','c')", True),
        ("enum('a','b')", "enum('b','a')", False),
        ("enum('a','b')", "varchar(9)", False),
        ("binary(4)", "binary(8)", False),
        ("varbinary(4)", "varbinary(8)", True),
        ("datetime", "datetime(6)", True),
        ("datetime(6)", "datetime", False),
        ("float", "double", True),
        ("float", "float(5,2)", False),
        ("decimal(10,2)", "decimal(10,1)", False),
        ("year(4)", "int(11)", False),
    ],
)
def test_what_another_type_leaves_as_it_was(before: str, then: str, kept: bool) -> None:
    assert holds(before, then) is kept
    assert holds(before, before) and holds(then, then)
