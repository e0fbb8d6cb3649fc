"""Oddity 29: a column with a value that cannot be read is whole again once every such value is gone.

The oracle is the source's own table: a value that does not fit stands in it or not.
"""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pytest

from streaming.captured.captured_schema import CapturedRelation
from streaming.proof.verdicts import verify_pipeline
from streaming.warehouse.initial import relations_at, taints
from streaming.warehouse.updates import UpdatesReader
from tests.changedtable import VIEWS, Table, entry
from tests.unit.test_verify_changed_columns import recorded

ODD = ("NaN-like", "1.2345", "99999999999999999999")
"""Three texts that a numeric(18,2) does not hold exactly."""


def whole(folder: Path, captured: CapturedRelation, after: int = -1) -> bool:
    """Whether the amounts can be read at the end of what is recorded."""
    reader = UpdatesReader(str(folder))
    relation = captured.relation
    lost = taints(folder, reader, {relation.name: relation.schema}, after, reader.last)
    assert all(one.columns == (2,) for one in lost), lost
    return not lost


def held(folder: Path) -> list[tuple[object, ...]]:
    """The relation after all that is recorded."""
    reader, relation = UpdatesReader(str(folder)), entry().relation
    rows = relations_at(reader, {relation.name: relation.schema}, reader.last)[relation.name]
    columns = [column.to_pylist() for column in rows.columns[2:]]
    assert all(count > 0 for count in rows.column("_multiplicity").to_pylist())
    return sorted(zip(*columns, strict=True), key=repr)


def true_rows(table: Table) -> list[tuple[object, ...]]:
    rows = (tuple(row.values()) for row in table.rows.values())
    read = [(i, a, None if m is None else Decimal(m), n) for i, a, m, n in rows]
    return sorted(read, key=repr)


def test_a_value_that_was_corrected_is_gone(tmp_path: Path) -> None:
    table = Table()
    table.commit(*(table.put(i, account=i, amount="6.00", note="n") for i in (1, 2, 9)))
    number = table.commit(table.put(1, amount=ODD[0]))
    table.commit(table.put(1, amount=None))
    recorded(tmp_path, table)
    assert table.suspended["totals"].error["code"] == "VIEW_VALUE_UNFIT"
    assert table.suspended["totals"].after == number - 1
    assert "view resume" in table.suspended["totals"].error["todo"]
    assert whole(tmp_path, entry()) and held(tmp_path) == true_rows(table)
    verdict = verify_pipeline(tmp_path)
    assert verdict.holds and not verdict.problems, verdict


def test_it_is_still_there_in_another_row_or_as_another_value(tmp_path: Path) -> None:
    table = Table()
    table.commit(*(table.put(i, account=1, amount=ODD[0], note="n") for i in (1, 2)))
    table.commit(table.put(1, amount=ODD[1]), table.delete(2))
    recorded(tmp_path, table)
    assert not whole(tmp_path, entry())


def test_one_that_comes_and_goes_in_one_transaction_is_nobody_s_trouble() -> None:
    table = Table()
    table.commit(table.put(1, account=1, amount=ODD[0], note="n"), table.put(1, amount="1.00"))
    table.check(*VIEWS)


@pytest.mark.parametrize("with_schema", [False, True], ids=["plain", "with_schema_part"])
def test_values_that_the_source_converted_are_not_taken_for_corrected(
    tmp_path: Path, with_schema: bool
) -> None:
    """As many come as go, but others: what the rows were is not what the log takes away."""
    table = Table(with_schema)
    table.commit(*(table.put(i, account=i, amount="6.00", note="n") for i in (1, 2)))
    table.retype("amount", "text", lambda old: f"v{old}")
    table.commit(table.put(1, account=5))
    table.commit(table.put(1, amount="7.00"), table.put(2, amount="8.00"))
    recorded(tmp_path, table)
    assert not whole(tmp_path, entry())


def test_a_source_that_empties_the_table_ends_it_too(tmp_path: Path) -> None:
    table = Table()
    table.commit(*(table.put(i, account=1, amount=ODD[i], note="n") for i in (1, 2)))
    table.commit(table.put(3, amount=ODD[0], account=1, note="lost"),)  # fmt: skip
    table.rows.clear()
    table.commit(table.log.row("entry", "t", None, None, key="0", order=1))
    table.commit(table.put(4, account=1, amount="3.00", note="again"))
    recorded(tmp_path, table)
    assert whole(tmp_path, entry()) and held(tmp_path) == true_rows(table)
    assert verify_pipeline(tmp_path).holds


@pytest.mark.parametrize("key", [("id",), ()], ids=["keyed", "keyless"])
def test_a_column_is_whole_exactly_while_no_such_value_stands_in_its_table(
    tmp_path: Path, key: tuple[str, ...]
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for history in range(4):
        table = Table(key=key)
        for _ in range(rng.randrange(4, 14)):
            if rng.random() < 0.1:
                table.rows.clear()
                table.commit(table.log.row("entry", "t", None, None, key="0", order=1))
                continue
            records = []
            for _ in range(rng.randrange(1, 4)):
                id_ = rng.randrange(4)
                if id_ in table.rows and rng.random() < 0.3:
                    records.append(table.delete(id_))
                else:
                    amount = rng.choice((None, "1.00", "2.00", rng.choice(ODD)))
                    records.append(table.put(id_, account=1, amount=amount, note="n"))
            table.commit(*records)
        folder = tmp_path / str(history)
        folder.mkdir()
        recorded(folder, table)
        bad = any(row["amount"] in ODD for row in table.rows.values())
        assert whole(folder, entry()) == (not bad), table.rows
        if not bad:
            assert held(folder) == true_rows(table)
        verdict = verify_pipeline(folder)
        assert verdict.holds, verdict
