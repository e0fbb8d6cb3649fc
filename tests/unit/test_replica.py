"""The replica view manager: painting-mvc 3.3's contract and DESIGN 9's step protocol."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from streaming.algebra.tree import Aggregate, Aggregation, Project, Scan
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Limits, ViewError, choose
from streaming.errors import ProtocolError
from streaming.messages import ActionList, Control, RelRun, Rows, Updates
from streaming.packed_rows import locate, pack, unpack
from streaming.scalars.expression import Col, Column
from streaming.scalars.types import delta_schema
from streaming.viewmanagers.base import Codec, ManagedView
from streaming.viewmanagers.replica import ReplicaManager

ENTRY = Scan("north.entry", (Column("account", "bigint"), Column("amount", "decimal(18,2)")))
TOTAL = Aggregate(
    ENTRY,
    (),
    (Aggregation("sum", 1, "decimal(28,2)"),),
    (Column("total", "decimal(28,2)"),),
)
SPEC = ManagedView("total", "bank", TOTAL)


def no_stage(content: bytes) -> str:
    raise AssertionError("small rows travel inline")


CODEC = Codec(lambda table: pack(table, no_stage), lambda rows: locate(rows, Path("/nowhere")))


def entries(*signed: tuple[int, int, int, str]) -> Rows:
    """(number, multiplicity, account, amount) each."""
    columns = list(zip(*signed, strict=True))
    columns[3] = tuple(Decimal(amount) for amount in columns[3])
    arrow = delta_schema(ENTRY.schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)]
    return pack(pa.table(arrays, schema=arrow), no_stage)


def updates(
    first: int, last: int, *runs: RelRun, rows: Rows | None = None, **more: object
) -> Updates:
    covered = runs or (RelRun(first=first, last=last, views=("total",)),)
    relations = {} if rows is None else {"north.entry": rows}
    fields = {"group": "bank", "relations": relations, **more}
    return Updates(first=first, last=last, runs=covered, **fields)


def manager(spec: ManagedView = SPEC) -> ReplicaManager:
    return ReplicaManager(spec, DuckEvaluator(spec.tree, threads=1), CODEC)


def started() -> ReplicaManager:
    one = manager()
    one.handle(updates(0, 0, rows=entries((0, 1, 7, "5.00"))))
    one.advance()
    return one


def signed(actions: ActionList | None) -> list[tuple]:
    assert actions is not None
    if actions.delta is None:
        return []
    table = unpack(actions.delta, Path("/nowhere"))
    return sorted(zip(*(c.to_pylist() for c in table.columns), strict=True))


def test_number_0_is_evaluated_even_without_rows() -> None:
    actions = manager().handle(updates(0, 0))
    assert signed(actions) == [(0, 1, None)]


def test_one_list_answers_a_message_and_its_rows_are_tagged_number_by_number() -> None:
    one = started()
    actions = one.handle(updates(1, 3, rows=entries((1, 1, 7, "1.00"), (3, 1, 8, "2.00"))))
    assert actions is not None
    assert (actions.first, actions.last, actions.complete) == (1, 3, True)
    assert signed(actions) == [
        (1, -1, Decimal("5.00")),
        (1, 1, Decimal("6.00")),
        (3, -1, Decimal("6.00")),
        (3, 1, Decimal("8.00")),
    ]


def test_an_empty_list_is_sent_when_rel_has_the_view() -> None:
    one = started()
    transfer = entries((1, 1, 7, "-3.00"), (1, 1, 8, "3.00"))
    assert one.handle(updates(1, 1, rows=transfer)) == ActionList(
        group="bank", view="total", first=1, last=1
    )


def test_nothing_is_sent_or_computed_when_rel_asks_for_no_work() -> None:
    one = started()
    idle = RelRun(first=1, last=1, views=("other", "total"), idle=("total",))
    other = RelRun(first=2, last=2, views=("other",))
    assert one.handle(updates(1, 2, idle, other)) is None
    one.advance()
    assert one.number == 2
    assert one.evaluator.number == 0


def test_handling_again_before_advance_gives_the_same_list() -> None:
    one = started()
    message = updates(1, 1, rows=entries((1, 1, 7, "1.00")))
    assert signed(one.handle(message)) == signed(one.handle(message))
    one.discard()
    assert one.handle(message) is not None
    one.advance()
    assert one.number == 1


def test_the_snapshot_of_a_handled_message_is_the_state_after_it() -> None:
    one = started()
    one.handle(updates(1, 4))
    assert one.snapshot()["number"] == 4
    assert one.number == 0
    one.discard()
    assert one.snapshot()["number"] == 0


def test_several_messages_in_one_evaluation_give_a_list_each() -> None:
    one = started()
    first = updates(1, 2, rows=entries((2, 1, 7, "1.00")))
    idle = updates(3, 3, RelRun(first=3, last=3, views=("other",)))
    last = updates(4, 5, rows=entries((4, 1, 7, "1.00")))
    lists = one.handle_all([first, idle, last])
    assert [(a.first, a.last) for a in lists] == [(1, 2), (4, 5)]
    assert signed(lists[0]) == [(2, -1, Decimal("5.00")), (2, 1, Decimal("6.00"))]
    assert signed(lists[1]) == [(4, -1, Decimal("6.00")), (4, 1, Decimal("7.00"))]


def test_a_truncate_is_expanded_from_the_state() -> None:
    one = started()
    control = Control(number=2, relation="north.entry", kind="truncate")
    actions = one.handle(updates(1, 2, controls=(control,)))
    assert signed(actions) == [(2, -1, Decimal("5.00")), (2, 1, None)]


@pytest.mark.parametrize(
    ("message", "rule"),
    [
        (updates(0, 0), "numbers from the past"),
        (updates(2, 2), "a gap"),
        (updates(1, 1, group="other"), "belongs to group bank"),
        (updates(1, 3, RelRun(first=1, last=2, views=())), "runs end at 2"),
        (updates(1, 2, RelRun(first=2, last=2, views=())), "runs must cover"),
        (
            updates(1, 1, controls=(Control(number=2, relation="north.entry", kind="truncate"),)),
            "outside",
        ),
    ],
)
def test_a_message_that_breaks_the_protocol_changes_nothing(message: Updates, rule: str) -> None:
    one = started()
    before = one.snapshot()
    with pytest.raises(ProtocolError, match=rule):
        one.handle(message)
    assert one.snapshot() == before
    assert one.handle(updates(1, 1)) is not None


def test_a_suspended_view_says_its_last_good_number_and_sends_what_is_good() -> None:
    one = started()
    bad = updates(1, 9, rows=entries((2, 1, 7, "1.00"), (5, -1, 9, "4.00")))
    with pytest.raises(ViewError) as caught:
        one.handle(bad)
    lists, suspend = one.suspend([bad], caught.value)
    assert [(a.first, a.last) for a in lists] == [(1, 4)]
    assert signed(lists[0]) == [(2, -1, Decimal("5.00")), (2, 1, Decimal("6.00"))]
    assert suspend.after == 4
    assert suspend.error["code"] == "VIEW_RETRACTION_MISSING"
    one.advance()
    with pytest.raises(ProtocolError, match="suspended after number 4"):
        one.handle(updates(10, 10))


def test_a_view_that_fails_at_its_first_number_sends_no_list() -> None:
    one = started()
    bad = updates(1, 9, rows=entries((1, -1, 9, "4.00")))
    with pytest.raises(ViewError) as caught:
        one.handle(bad)
    lists, suspend = one.suspend([bad], caught.value)
    assert lists == []
    assert suspend.after == 0


def tainted(number: int, *columns: int) -> Control:
    return Control(number=number, relation="north.entry", kind="tainted", columns=columns)


def test_a_taint_stops_the_view_before_its_number_and_an_error_below_it_counts_first() -> None:
    for number, after, code in ((4, 3, "VIEW_INPUT_DAMAGED"), (8, 4, "VIEW_RETRACTION_MISSING")):
        one = started()
        rows = entries((2, 1, 7, "1.00"), (5, -1, 9, "4.00"))
        bad = updates(1, 9, rows=rows, controls=(tainted(number), tainted(9, 0)))
        with pytest.raises(ViewError, match="VIEW_INPUT_DAMAGED") as caught:
            one.handle(bad)
        lists, suspend = one.suspend([bad], caught.value)
        assert (suspend.after, suspend.error["code"]) == (after, code)
        assert [(a.first, a.last) for a in lists] == [(1, after)]
        assert len(signed(lists[0])) == 2


def test_a_taint_of_a_column_stops_only_the_views_that_read_it() -> None:
    amounts = Project(ENTRY, (Col(1, "decimal(18,2)"),), (Column("amount", "decimal(18,2)"),))
    one = manager(ManagedView("total", "bank", amounts))
    lost, other = tainted(1, 0), Control(number=1, relation="south.entry", kind="tainted")
    first = updates(0, 1, rows=entries((1, 1, 7, "5.00")), controls=(lost, other))
    assert signed(one.handle(first)) == [(1, 1, Decimal("5.00"))]
    one.advance()
    with pytest.raises(ViewError, match="VIEW_COLUMN_CHANGED") as caught:
        one.handle(updates(2, 5, controls=(tainted(4, 1), tainted(3, 0, 1))))
    assert caught.value.number == 3


def test_a_checkpoint_and_the_messages_since_restore_the_state(tmp_path: Path) -> None:
    one = started()
    kept = one.checkpoint(tmp_path, keep=lambda path: str(path.relative_to(tmp_path)))
    message = updates(1, 2, rows=entries((2, 1, 7, "1.00")))
    one.handle(message)
    one.advance()
    other = manager()
    other.restore(kept, [message], lambda name: tmp_path / name)
    assert other.snapshot() == one.snapshot()
    following = updates(3, 3, rows=entries((3, -1, 7, "1.00")))
    assert signed(other.handle(following)) == signed(one.handle(following))


def test_without_a_checkpoint_the_state_is_rebuilt_from_all_messages() -> None:
    one = started()
    other = manager()
    other.restore(None, [updates(0, 0, rows=entries((0, 1, 7, "5.00")))], Path)
    message = updates(1, 1, rows=entries((1, -1, 7, "5.00")))
    assert signed(other.handle(message)) == signed(one.handle(message))


def test_the_state_moves_to_another_evaluator_between_messages(tmp_path: Path) -> None:
    one, other = started(), started()
    one.move(DuckEvaluator(TOTAL, threads=1), tmp_path)
    message = updates(1, 1, rows=entries((1, -1, 7, "5.00")))
    assert signed(one.handle(message)) == signed(other.handle(message))


def test_the_evaluator_is_chosen_by_rows_of_state_and_batch() -> None:
    limits = Limits(duckdb_rows=100)
    assert choose(limits, state_rows=90, batch_rows=10) == "duckdb"
    assert choose(limits, state_rows=90, batch_rows=11) == "spark"


def test_a_checkpoint_of_another_view_is_refused(tmp_path: Path) -> None:
    kept = started().checkpoint(tmp_path, keep=str)
    other = manager(ManagedView("other", "bank", TOTAL))
    with pytest.raises(ProtocolError, match="not a checkpoint of other"):
        other.restore(kept, [], Path)


def test_a_view_added_later_begins_at_its_own_number() -> None:
    late = manager(ManagedView("total", "bank", TOTAL, start=41))
    actions = late.handle(updates(41, 41, rows=entries((41, 1, 7, "5.00"))))
    assert signed(actions) == [(41, 1, Decimal("5.00"))]
