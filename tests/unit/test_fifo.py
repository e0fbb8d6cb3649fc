"""The FIFO adapter holds what saw too much and asks again what saw too little (DESIGN 7)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streaming.algebra.bag import Numbered
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.psj import psj_of
from streaming.algebra.source_queries import Known, Query, Seen, SourceAnswer, SourceQuery, Term
from streaming.ask.fifo import PROBE, FifoAdapter
from streaming.ask.processor import QueryProcessor
from streaming.durable import as_json
from streaming.errors import ProtocolError
from streaming.messages import RelRun, SourceLog, Updates
from tests.askedsources import tables, view

RELATIONS = tables(x__r="a b", y__s="b c")
PSJ = psj_of(view("SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b AND s.c > 2", RELATIONS))
OPERATORS = NumberedBags()
ROWS: Numbered = {(1, (1, 2, 2, 3)): 1}


def adapter(**more: Any) -> FifoAdapter[Numbered]:
    fresh = FifoAdapter("v", PSJ, OPERATORS, **more)
    fresh.handle(updates(0))
    return fresh


def updates(
    number: int, *transactions: int, source: str = "y", delivered: int | None = None
) -> Updates:
    """Number `number` with the source's transactions t1, t2, ... of these positions."""
    log = SourceLog(
        numbers=tuple(number for _ in transactions),
        transactions=tuple(f"t{position}" for position in transactions),
        positions=transactions,
    )
    upto = max(transactions, default=0) if delivered is None else delivered
    return Updates(
        group="g",
        first=number,
        last=number,
        runs=(RelRun(first=number, last=number, views=()),),
        relations={},
        logs={source: log} if transactions else {},
        delivered={source: upto} if transactions or number == 0 else {},
    )


def statement(id_: int = 1) -> SourceQuery[Numbered]:
    """What the processor sends for U = insert(r, [1,2])."""
    processor = QueryProcessor(PSJ, OPERATORS)
    (found,) = processor.handle(Query("v", id_, (Term(1, (Known((0,), {(1, (1, 2)): 1}),), (1,)),)))
    assert isinstance(found, SourceQuery)
    return found


def answer(step: int, upto: int, *missing: int, id_: int = 1) -> SourceAnswer[Numbered]:
    state = Seen(upto, frozenset(f"t{position}" for position in missing))
    return SourceAnswer("v", id_, step, "y", (ROWS,), state)


def test_an_answer_at_the_state_that_is_delivered_passes() -> None:
    channel = adapter()
    first = updates(1, 1)
    assert channel.handle(first) == [first]
    assert channel.handle(statement()) == [statement()]
    assert channel.handle(answer(1, upto=1)) == [answer(1, upto=1)]
    assert not channel.out


def test_moro_sartori_tx_is_in_the_answer_and_its_notification_comes_after_it() -> None:
    channel = adapter()
    channel.handle(statement())
    assert channel.handle(answer(1, upto=1)) == [], "held: tx is not delivered"
    tx = updates(1, 1)
    assert channel.handle(tx) == [tx, answer(1, upto=1)], "tx first, then the answer that saw it"


def test_moro_sartori_ty_is_not_in_the_answer_and_its_notification_comes_before_it() -> None:
    channel = adapter()
    channel.handle(statement())
    channel.handle(updates(1, 1))
    (again,) = channel.handle(answer(1, upto=0))
    assert again == replace(statement(), step=2), "asked again: the answer came without ty"
    assert channel.handle(answer(2, upto=1)) == [answer(1, upto=1)], "under the processor's step"


def test_a_transaction_in_the_log_that_the_snapshot_did_not_show_yet_counts_as_missed() -> None:
    channel = adapter()
    channel.handle(updates(1, 1, 2))
    channel.handle(statement())
    (again,) = channel.handle(answer(1, 2, 1))
    assert again == replace(statement(), step=2)


def test_an_undelivered_transaction_that_the_snapshot_does_not_show_is_not_waited_for() -> None:
    channel = adapter()
    channel.handle(statement())
    assert channel.handle(answer(1, 2, 2)) == [], "position 2 is not delivered"
    first = updates(1, 1)
    assert channel.handle(first) == [first]
    second = updates(2, 2)
    assert channel.handle(second) == [answer(1, 2, 2), second], "it belongs before t2"


def test_asking_again_is_repeated_until_an_answer_fits() -> None:
    channel = adapter()
    channel.handle(statement())
    for position in (1, 2, 3):
        channel.handle(updates(position, position))
        (again,) = channel.handle(answer(position, upto=position - 1))
        assert again == replace(statement(), step=position + 1)
    assert channel.handle(answer(4, upto=3)) == [answer(1, upto=3)]


def test_a_held_answer_is_asked_again_when_a_message_delivers_more_than_it_saw() -> None:
    channel = adapter()
    channel.handle(statement())
    assert channel.handle(answer(1, upto=1)) == []
    both = updates(1, 1, 2)
    assert channel.handle(both) == [both, replace(statement(), step=2)]


def test_a_message_that_delivers_less_than_an_answer_saw_leaves_it_held() -> None:
    channel = adapter()
    channel.handle(statement())
    channel.handle(answer(1, upto=2))
    first, second = updates(1, 1), updates(2, 2)
    assert channel.handle(first) == [first]
    assert channel.handle(second) == [second, answer(1, upto=2)]


def test_another_sources_updates_change_nothing() -> None:
    channel = adapter()
    channel.handle(statement())
    channel.handle(updates(1, 7, source="x"))
    assert channel.handle(answer(1, upto=0)) == [answer(1, upto=0)]
    assert channel.handle(updates(2, 9, source="elsewhere"))


def test_exact_only_holds() -> None:
    channel = adapter(exact=True)
    channel.handle(updates(1, 1))
    channel.handle(statement())
    channel.handle(statement(2))
    assert channel.handle(answer(1, upto=0)) == [answer(1, upto=0)], "what it misses is added later"
    ahead = answer(2, upto=2, id_=2)
    assert channel.handle(ahead) == [], "what it saw too much must be known first"
    second = updates(2, 2)
    assert channel.handle(second) == [second, replace(ahead, step=1)]


def test_what_every_later_statement_sees_is_forgotten() -> None:
    channel = adapter()
    channel.handle(updates(1, 1))
    channel.handle(statement())
    channel.handle(statement(2))
    channel.handle(answer(1, upto=1))
    assert channel.delivered["y"].entries == (("t1", 1),), "the second statement may still miss it"
    channel.handle(answer(2, upto=1, id_=2))
    assert channel.delivered["y"].entries == ()


def test_a_source_that_is_not_asked_is_asked_for_its_state_alone() -> None:
    channel = adapter(probe_after=2)
    channel.handle(updates(1, 1))
    second = updates(2, 2)
    probe = SourceQuery("v", PROBE, 1, "y", ())
    assert channel.handle(second) == [second, probe]
    assert channel.handle(SourceAnswer("v", PROBE, 1, "y", (), Seen(2, frozenset({"t2"})))) == []
    assert channel.delivered["y"].entries == (("t2", 2),), "t1 has been seen"
    third = updates(3, 3)
    assert channel.handle(third) == [third, replace(probe, step=2)]
    channel.handle(SourceAnswer("v", PROBE, 2, "y", (), Seen(3)))
    assert channel.delivered["y"].entries == ()


def test_a_restored_adapter_goes_on_where_the_saved_one_was() -> None:
    channel = adapter()
    channel.handle(updates(1, 1))
    channel.handle(statement())
    channel.handle(answer(1, upto=2))
    saved = as_json(channel.snapshot())
    passes, asks_again = (FifoAdapter("v", PSJ, OPERATORS) for _ in range(2))
    passes.restore(saved)
    assert (passes.out, passes.delivered) == (channel.out, channel.delivered)
    assert passes.handle(updates(2, 2))[1:] == [answer(1, upto=2)]
    asks_again.restore(saved)
    assert asks_again.handle(updates(2, 2, 3))[1:] == [replace(statement(), step=2)]


def waiting(channel: FifoAdapter[Numbered]) -> None:
    channel.handle(updates(1, 1))
    channel.handle(statement())


def held(channel: FifoAdapter[Numbered]) -> None:
    waiting(channel)
    channel.handle(answer(1, upto=2))


BAD = [
    (waiting, updates(1, 1), "expected number 2"),
    (waiting, updates(3, 3), "expected number 2"),
    (waiting, updates(2, 2, delivered=0), "goes back"),
    (
        waiting,
        updates(2, 2).model_copy(
            update={"logs": {"y": SourceLog(numbers=(2,), transactions=(), positions=(2,))}}
        ),
        "differ in length",
    ),
    (waiting, statement(), "sent already"),
    (waiting, replace(statement(2), view="w"), "channel of v"),
    (waiting, replace(statement(2), source="elsewhere"), "uses no relation"),
    (waiting, answer(2, upto=1), "without a statement"),
    (waiting, answer(1, upto=1, id_=2), "without a statement"),
    (waiting, replace(answer(1, upto=1), view="w"), "without a statement"),
    (waiting, replace(answer(1, upto=1), source="x"), "went to y"),
    (waiting, replace(answer(1, upto=1), rows=()), "0 parts, not 1"),
    (held, answer(1, upto=2), "second answer"),
]


@pytest.mark.parametrize(("before", "message", "rule"), BAD, ids=lambda one: str(one)[:40])
def test_a_message_out_of_its_protocol_changes_nothing(
    before: Any, message: Any, rule: str
) -> None:
    channel = adapter()
    before(channel)
    state = (channel.number, channel.step, dict(channel.out), dict(channel.delivered))
    with pytest.raises(ProtocolError, match=rule) as raised:
        channel.handle(message)
    assert raised.value.code == "PROTOCOL_FIFO_ADAPTER"
    assert (channel.number, channel.step, channel.out, channel.delivered) == state


def test_a_snapshot_of_another_view_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not of view w"):
        FifoAdapter("w", PSJ, OPERATORS).restore(adapter().snapshot())
