"""`_updates`: appended once, read by number, grown with its relations."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from streaming.algebra.tree import Relation
from streaming.errors import FrescoError
from streaming.messages import Control
from streaming.scalars.expression import Column
from streaming.scalars.types import delta_schema
from streaming.warehouse.updates import LostColumn, UpdatesReader, UpdatesWriter
from streaming.warehouse.upkeep import Upkeep, UpkeepOptions, drop_below

ENTRY = Relation("north.Entry, odd", (Column("id", "bigint"), Column("a b", "string")))
GROWN = Relation(ENTRY.name, (*ENTRY.schema, Column("A B", "date")))
OTHER = Relation("south.entry", (Column("id", "int"),))


def rows(relation: Relation, numbers: range) -> pa.Table:
    values = [list(numbers), [1] * len(numbers), list(numbers)]
    values += [[None] * len(numbers)] * (len(relation.schema) - 1)
    schema = delta_schema(relation.schema)
    arrays = [pa.array(one, field.type) for one, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def map_rows(numbers: range) -> pa.Table:
    return pa.table(
        {
            "number": list(numbers),
            "source": ["north"] * len(numbers),
            "transaction": [str(n) for n in numbers],
            "position": list(numbers),
            "committed_ms": [n * 1000 for n in numbers],
        }
    )


def numbers(found: pa.Table) -> list[int]:
    return sorted(found.column("_number").to_pylist())


def test_updates_the_number_map_and_controls_come_in_one_commit_once(tmp_path: Path) -> None:
    writer = UpdatesWriter(str(tmp_path), "bank", [ENTRY, OTHER])
    step = {ENTRY.name: rows(ENTRY, range(1, 6)), OTHER.name: rows(OTHER, range(3, 9))}
    control = Control(number=4, relation=ENTRY.name, kind="truncate")
    before = writer.table.version
    assert writer.append(1, step, map_rows(range(1, 9)), [control])
    assert writer.table.version == before + 1
    assert not writer.append(1, step, map_rows(range(1, 9)), [control])
    assert not UpdatesWriter(str(tmp_path), "bank", [ENTRY, OTHER]).append(1, step)
    reader = UpdatesReader(str(tmp_path))
    assert numbers(reader.updates(ENTRY.name, ENTRY.schema, 1, 4)) == [2, 3, 4]
    assert numbers(reader.updates(OTHER.name, OTHER.schema, -1, 99)) == list(range(3, 9))
    found = reader.transactions(6, 7).to_pylist()
    assert found == [
        {
            **{"number": 7, "source": "north", "transaction": "7", "position": "7"},
            "committed_ms": 7000,
        }
    ]
    assert reader.controls(3, 9) == [control]
    assert reader.controls(4, 9) == []


def test_lost_columns_are_kept_by_name_apart_from_what_concerns_a_whole_relation(
    tmp_path: Path,
) -> None:
    writer = UpdatesWriter(str(tmp_path), "bank", [ENTRY])
    lost = Control(number=3, relation=ENTRY.name, kind="tainted", columns=(1,), what="w", where="p")
    whole = Control(number=5, relation=ENTRY.name, kind="tainted", what="all", where="there")
    writer.append(1, {}, map_rows(range(1, 6)), [whole, lost])
    reader = UpdatesReader(str(tmp_path))
    assert reader.controls(-1, 9) == [whole]
    assert reader.lost_columns(-1, 9) == [LostColumn(3, ENTRY.name, "a b", None, "w")]
    assert reader.lost_columns(3, 9) == []


def test_only_the_columns_asked_for_are_read(tmp_path: Path) -> None:
    UpdatesWriter(str(tmp_path), "bank", [ENTRY]).append(1, {ENTRY.name: rows(ENTRY, range(3))})
    found = UpdatesReader(str(tmp_path)).updates(ENTRY.name, ENTRY.schema, -1, 9, columns=[0])
    assert found.column_names == ["_number", "_multiplicity", "c0"]


def test_relations_and_columns_are_added_while_old_rows_stay(tmp_path: Path) -> None:
    writer = UpdatesWriter(str(tmp_path), "bank", [ENTRY])
    writer.append(1, {ENTRY.name: rows(ENTRY, range(3))})
    writer.add_relations([GROWN, OTHER])
    version = writer.table.version
    writer.add_relations([GROWN, OTHER])
    assert writer.table.version == version
    writer.append(2, {ENTRY.name: rows(GROWN, range(3, 5)), OTHER.name: rows(OTHER, range(2))})
    reader = UpdatesReader(str(tmp_path))
    found = reader.updates(GROWN.name, GROWN.schema, -1, 9)
    assert numbers(found) == [0, 1, 2, 3, 4]
    assert found.schema == delta_schema(GROWN.schema)
    retyped = Relation(OTHER.name, (Column("id", "string"),))
    with pytest.raises(FrescoError, match=r"WAREHOUSE_SCHEMA.*int32.*string"):
        writer.add_relations([retyped])


def test_upkeep_folds_and_drops_without_touching_later_numbers(tmp_path: Path) -> None:
    writer = UpdatesWriter(str(tmp_path), "bank", [ENTRY])
    for step in range(1, 7):
        writer.append(step, {ENTRY.name: rows(ENTRY, range(step * 10, step * 10 + 10))})
    assert drop_below(writer.table, 25) == 1
    done = Upkeep(None, [writer.table], UpkeepOptions(small_files=3)).run(60)
    assert (done.folded, done.written) == (5, 1)
    reader = UpdatesReader(str(tmp_path))
    assert numbers(reader.updates(ENTRY.name, ENTRY.schema, -1, 99)) == list(range(20, 70))
    assert not writer.append(6, {ENTRY.name: rows(ENTRY, range(60, 70))})


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(FrescoError, match="READ_NO_WAREHOUSE"):
        UpdatesReader(str(tmp_path))
