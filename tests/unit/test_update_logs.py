"""What messages of updates tell managers that ask of the sources' transactions (DESIGN 7)."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from streaming import packed_rows as packing
from streaming.cdc.intake import IntakeResult
from streaming.messages import Rows, Updates
from streaming.stages.source_logs import with_logs
from tests.intakeworld import insert, make, snapshot_of
from tests.sourcelog import SourceLog, Topics


def pack(table: pa.Table) -> Rows:
    return packing.pack(table, lambda content: "staged")


def updates(result: IntakeResult) -> Updates:
    return Updates(
        group="main",
        first=result.first,
        last=result.last,
        runs=result.runs["main"],
        relations={name: pack(table) for name, table in result.updates.items()},
    )


def test_a_message_names_its_transactions_and_how_far_its_source_is_delivered() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make()
    records = [*log.commit([insert("account", 1)]), *log.commit([insert("entry", 2)])]
    result = intake.step(topics.batch(records), 0)
    told = with_logs(updates(result), result, ["north"], pack)
    numbered = told[-1].logs["north"]
    assert numbered.numbers == tuple(range(told[-1].first, result.last + 1))
    assert all(one.isdigit() for one in numbered.transactions)
    assert list(numbered.positions) == sorted(numbered.positions)
    assert told[-1].delivered == {"north": numbered.positions[-1]}
    assert with_logs(updates(result), result, [], pack) == (updates(result),)


def test_a_transaction_that_waits_keeps_the_position_below_it() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make()
    first, second = log.commit([insert("account", 1)]), log.commit([insert("entry", 2)])
    third = log.commit([insert("account", 3)])
    late = [record for record in second if record[0] == log.topic("entry")]
    early = [record for record in second if record[0] != log.topic("entry")]
    result = intake.step(topics.batch([*first, *early, *third]), 0)
    numbered = pc.max(result.transactions["position"]).as_py()
    assert numbered <= result.delivered["north"] < log.lsn
    result = intake.step(topics.batch(late), 0)
    assert result.delivered["north"] == pc.max(result.transactions["position"]).as_py()


def test_the_initial_state_comes_alone_and_no_row_comes_twice() -> None:
    log, topics, intake = SourceLog("north"), Topics(), make(snapshot=True)
    records = snapshot_of(log, {"account": 2, "entry": 1})
    result = intake.step(topics.batch([*records, *log.commit([insert("account", 7)])]), 0)
    assert (result.first, result.last) == (0, 1)
    zero, rest = with_logs(updates(result), result, ["north"], pack)
    assert (zero.first, zero.last, rest.first, rest.last) == (0, 0, 1, 1)
    assert {name: rows.rows for name, rows in zero.relations.items()} == {
        "north.account": 2,
        "north.entry": 1,
    }
    assert {name: rows.rows for name, rows in rest.relations.items()} == {"north.account": 1}
    assert zero.delivered == {} and rest.delivered == result.delivered
