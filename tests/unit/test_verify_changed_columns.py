"""Oddity 17 and the proof: `verify` holds for the views that go on when a column is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streaming.messages import Control
from streaming.pipeline.catalog import save_catalog
from streaming.proof.verdicts import verify_pipeline
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.group_writer import GroupWriter
from streaming.warehouse.updates import UpdatesReader, UpdatesWriter
from tests.changedtable import OTHER, READ, VIEWS, Table, entry
from tests.unit.verified_bank import arrow

RELATIONS = {one.relation.name: one.relation for one in (entry(), OTHER)}


def recorded(folder: Path, table: Table) -> None:
    """What the table's pipeline sent, as the real writers record it, one epoch for each batch."""
    save_catalog(folder, list(table.views.values()), {"main": list(VIEWS)}, RELATIONS)
    updates = UpdatesWriter(str(folder), "p", list(RELATIONS.values()))
    views = {name: ViewTable(name, one.schema, one.key or ()) for name, one in table.views.items()}
    writer = GroupWriter(str(folder), "p", "main", list(views.values()))
    batches = [result for result in table.results if result.first <= result.last]
    for step, result in enumerate(batches, 1):
        whole = [
            Control(number=number, relation=name, kind="tainted")
            for number, names in result.tainted.items()
            for name in names
        ]
        controls = [*result.controls, *whole]
        updates.append(step, result.updates, result.transactions, controls, result.last)
        deltas = {
            name: arrow(
                one.schema,
                [(n, m, *r) for n, m, r in table.sent[name] if result.first <= n <= result.last],
            )
            for name, one in views.items()
        }
        covered, added = ((0, result.last),), ((result.first, result.last),)
        gone = {v: one.after for v, one in table.suspended.items() if one.after < result.last}
        epoch = Epoch("main", step, added, covered, result.last, suspended=gone)
        writer.commit(deltas, epoch)
    updates.close()
    writer.close()


def dropped(table: Table) -> int:
    table.drop("amount")
    return table.commit(table.put(1, account=7))


def retyped(table: Table) -> int:
    table.retype("amount", "text", lambda _: "much")
    return table.commit(table.put(1, account=7, amount="abc"))


def dropped_after_a_truncate(table: Table) -> int:
    table.rows.clear()
    table.commit(table.log.row("entry", "t", None, None, key="0", order=1))
    table.commit(*(table.put(i, account=i, amount="3.00", note="again") for i in (1, 2)))
    return dropped(table)


@pytest.mark.parametrize("change", [dropped, retyped, dropped_after_a_truncate])
def test_oddity_17_verify_holds_for_all_views_up_to_where_they_went(
    tmp_path: Path, change: Callable[[Table], int]
) -> None:
    table = Table()
    table.commit(*(table.put(i, account=i % 2, amount="6.00", note="n") for i in (1, 2, 9)))
    number = change(table)
    table.commit(table.delete(1), table.put(2, note="x"))
    table.commit(table.put(1, account=3), table.delete(2))
    table.check(*set(VIEWS) - READ["amount"])
    recorded(tmp_path, table)

    verdict = verify_pipeline(tmp_path)
    assert verdict.holds, verdict
    lines = {line.name: line for line in verdict.lines if line.kind == "view"}
    assert {line.achieved for line in lines.values()} == {"complete"}
    suspended = {name for name, line in lines.items() if line.note}
    assert suspended == READ["amount"]
    assert lines["totals"].note == f"suspended after {number - 1}"
    reader = UpdatesReader(str(tmp_path))
    lost = reader.lost_columns(-1, 99)[0]
    assert (lost.number, lost.relation, lost.column) == (number, "north.entry", "amount")
    assert all(control.kind == "truncate" for control in reader.controls(-1, 99))


def test_a_wrong_row_after_the_change_is_still_found(tmp_path: Path) -> None:
    table = Table()
    table.commit(*(table.put(i, account=1, amount="6.00", note="n") for i in (1, 2)))
    dropped(table)
    number = table.commit(table.delete(2))
    lost = [one for one in table.sent["notes"] if one[0] == number]
    table.sent["notes"] = [one for one in table.sent["notes"] if one not in lost]
    recorded(tmp_path, table)
    (wrong,) = (line for line in verify_pipeline(tmp_path).lines if line.name == "notes")
    assert not wrong.holds and wrong.witness is not None
    assert (wrong.witness.number, wrong.witness.row) == (number, (2, "n"))


def test_a_relation_that_lacks_records_is_judged_up_to_there(tmp_path: Path) -> None:
    table = Table()
    table.commit(*(table.put(i, account=1, amount="6.00", note="n") for i in (1, 2)))
    table.commit((table.put(3, account=1)[0], '{"op": "c", "source": {"lsn": 1}}'))
    table.commit(table.delete(3), table.delete(1))
    table.check("others")
    recorded(tmp_path, table)
    verdict = verify_pipeline(tmp_path)
    assert verdict.holds and verdict.problems == (), verdict
