"""What is captured and cannot be used is refused when it is described, before anything has started."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.captured.captured_schema import captured, schema_from_connect
from streaming.errors import FrescoError


def refused(code: str, **relation: Any) -> FrescoError:
    with pytest.raises(FrescoError) as caught:
        captured(topic="north.public.t", **relation)
    assert caught.value.code == code and caught.value.where == relation["name"]
    return caught.value


def test_a_table_of_which_no_column_can_be_read_is_left_out_or_refused() -> None:
    error = refused("SOURCE_NO_COLUMNS", name="north.t", columns=[("at", "time"), ("b", "box")])
    assert "north.t" in error.what and "leave the table out" in error.todo
    refused("SOURCE_NO_COLUMNS", name="north.t", columns=[])
    assert captured("north.t", "topic", [("at", "time"), ("n", "int4")]).refused == (
        ("at", "time"),
    )


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([("id", "text")], "parts is not there"),
        ([("parts", "int4")], "id is not there"),
        ([("ID", "text"), ("n", "int4")], "id is not there, parts is not there"),
        ([("id", "text"), ("parts", "text")], "parts is string"),
        ([("id", "text"), ("parts", "float8")], "parts is double"),
        ([("id", "bytea"), ("parts", "int4")], "id is binary"),
        ([("id", "timestamp"), ("parts", "int4")], "id is timestamp_ntz"),
        ([("id", "text"), ("parts", "time")], "parts is not there"),
    ],
)
def test_a_table_of_tags_that_cannot_tag_is_refused(columns: Any, says: str) -> None:
    """Else the first tagged transaction would find out, and every step after it again."""
    error = refused("SOURCE_GLOBAL_TABLE", name="north.fresco_global", columns=columns)
    assert error.what.endswith(f": {says}") and "CREATE TABLE fresco_global" in error.todo
    captured("north.another_global", "topic", [("at", "date")])


@pytest.mark.parametrize("type_", ["text", "varchar(9)", "uuid", "int8"])
def test_tags_of_every_type_with_one_text_are_taken(type_: str) -> None:
    columns = [("parts", "int2"), ("more", "date"), ("id", type_)]
    found = captured("north.fresco_global", "topic", columns, key=["id"])
    assert found.relation.key == (2,)


ROW = {"field": "after", "fields": [{"field": "id", "type": "int32"}]}


@pytest.mark.parametrize(
    "part",
    [
        None,
        "a schema",
        [],
        {},
        {"fields": None},
        {"fields": [7]},
        {"fields": [{"type": "int32"}]},
        {"type": "struct", "fields": [{"field": "id", "type": "int32"}]},
        {"fields": [{"field": "after", "type": "string"}]},
        {"fields": [{"field": "after", "fields": ["id"]}]},
        {"fields": [{"field": "after", "fields": [{"field": "id"}]}]},
    ],
)
def test_a_schema_part_that_is_no_change_event_s_is_refused(part: Any) -> None:
    """`null` is what Connect's converter sends for events without a schema."""
    with pytest.raises(FrescoError) as caught:
        schema_from_connect(part, "north.t", "north.public.t")
    assert caught.value.code == "SOURCE_SCHEMA_PART"
    assert caught.value.where == "topic north.public.t"
    assert "ExtractNewRecordState" in caught.value.todo and "columns" in caught.value.todo


def test_a_key_part_that_is_none_is_refused_too() -> None:
    assert schema_from_connect({"fields": [ROW]}, "north.t", "t", None).relation.key == ()
    with pytest.raises(FrescoError, match="SOURCE_SCHEMA_PART"):
        schema_from_connect({"fields": [ROW]}, "north.t", "t", {"fields": [3]})
