"""moro-sartori, figure 1: one update interferes and is not detected, another is detected and does not.

TR2 is the warehouse's query Q for R = {tx(1), ty(2)}, asked because of an update of another source. The
network is reliable and FIFO, the source locks rows, readers read what is committed:

    T0  Q is sent                      T5   ty(20) is notified
    T1  TR1 locks tx, sets x = 10      T6   TR1 commits
    T2  TR2 reads ty(2), waits for tx  T7   TR2 reads tx(10)
    T3  TR3 locks ty, sets y = 20      T8   the answer {tx(10), ty(2)} is sent
    T4  TR3 commits                    T10  tx(10) is notified
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from streaming.algebra.bag import Bag, Numbered, bag, evaluate, flat, numbered
from streaming.algebra.compensate import compensate
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.psj import psj_of
from streaming.algebra.source_queries import Seen, SourceAnswer, SourceQuery, Term
from streaming.algebra.tree import Scan
from streaming.ask.fifo import FifoAdapter
from streaming.isolated.add_del import IDS, at_source, delta_table, table_in
from streaming.isolated.isolated_manager import Isolated
from streaming.isolated.session_messages import (
    Deleted,
    DeleteIds,
    Evaluate,
    Evaluated,
    Ids,
    Installed,
    StartSession,
)
from streaming.messages import ActionList, Updates
from streaming.scalars.expression import Column
from streaming.viewmanagers.asking.compensating import CompensatingManager
from streaming.viewmanagers.asking.sweep import SweepManager
from tests.askedsources import tables, view
from tests.lockedsource import LockedSource
from tests.strobeworld import Played

R = Scan("i.r", (Column("x", "bigint"),))
CHANGES = {"TR1": {(1,): -1, (10,): 1}, "TR3": {(2,): -1, (20,): 1}}
ANSWER: Bag = {(10,): 1, (2,): 1}


def played_to(end: int) -> tuple[LockedSource, list[int | None]]:
    """The schedule up to T`end`, and what TR2 has read."""
    source, read = LockedSource({"tx": (1,), "ty": (2,)}), []
    events = [
        lambda: None,
        lambda: source.update("TR1", "tx", (10,)),
        lambda: read.append(source.read("ty")),
        lambda: source.update("TR3", "ty", (20,)),
        lambda: source.commit("TR3"),
        lambda: source.notify("TR3"),
        lambda: source.commit("TR1"),
        lambda: read.append(source.read("tx")),
        lambda: source.notify("the answer"),
        lambda: None,
        lambda: source.notify("TR1"),
    ]
    for event in events[: end + 1]:
        event()
    return source, read


def test_the_schedule_step_by_step() -> None:
    assert played_to(0)[0].rows == {"tx": (1,), "ty": (2,)}
    assert played_to(1)[0].locks == {"tx": "TR1"}
    source, read = played_to(2)
    assert read == [(2,)] and source.read("tx") is None, "TR2 waits"
    assert played_to(3)[0].locks == {"tx": "TR1", "ty": "TR3"}
    assert played_to(4)[0].committed == ["TR3"]
    assert played_to(5)[0].channel == ["TR3"]
    assert played_to(6)[0].committed == ["TR3", "TR1"]
    source, read = played_to(10)
    assert bag(read) == ANSWER
    assert source.channel == ["TR3", "the answer", "TR1"], "in the order sent"


def test_detection_by_order_of_arrival_is_wrong_about_both() -> None:
    channel = played_to(10)[0].channel
    interfering = channel[: channel.index("the answer")]
    assert interfering == ["TR3"]
    has = [
        name for name, change in CHANGES.items() if any(ANSWER.get(row) == 1 for row in new(change))
    ]
    assert has == ["TR1"]


def new(change: Bag) -> list[tuple[int]]:
    return [row for row, count in change.items() if count > 0]


def compensated(wanted: Iterable[str], state: Seen) -> Bag:
    """The answer brought to the state after `wanted`, by what `state` says it saw."""
    operators, positions = NumberedBags(), {"TR3": 1, "TR1": 2}
    difference: Numbered = {}
    for name, change in CHANGES.items():
        sign = state.saw(name, positions[name]) - (name in wanted)
        part = {row: sign * count for row, count in change.items() if sign}
        difference = operators.plus(difference, numbered(part))
    rows, cross = compensate(
        operators, psj_of(R), Term(1, (), (0,)), numbered(ANSWER), {0: difference}, True
    )
    assert cross == ()
    return flat(rows)


@pytest.mark.parametrize(
    ("wanted", "table"),
    [((), [1, 2]), (("TR3",), [1, 20]), (("TR1",), [10, 2]), (("TR1", "TR3"), [10, 20])],
)
def test_detection_by_snapshot_is_right_about_both(
    wanted: tuple[str, ...], table: list[int]
) -> None:
    """DESIGN 7: the state names what the answer saw, TR1 and not TR3, which is no prefix of the log."""
    state = Seen(2, frozenset({"TR3"}))
    assert state.saw("TR1", 2) and not state.saw("TR3", 1)
    assert compensated(wanted, state) == {(x,): 1 for x in table}


def test_compensating_by_arrival_leaves_a_bag_that_no_state_has() -> None:
    assert compensated((), Seen(1)) == {(10,): 1, (2,): 2, (20,): -1}


# The managers: V = S x R, asked for because of an insertion into S at another source --------------

KNOWN = tables(n__s="k", i__r="x")
V = view("SELECT s.k, r.x FROM n.s s CROSS JOIN i.r r", KNOWN)
TRUE = [
    {(7, 1): 1, (7, 2): 1},
    {(7, 1): 1, (7, 20): 1},
    {(7, 10): 1, (7, 20): 1},
]
"""V after the insertion, TR3 and TR1, as they commit."""


Scheduled = tuple[SourceQuery[Numbered], tuple[Updates, SourceAnswer[Numbered], Updates]]


def scheduled(played: Played) -> Scheduled:
    """Q; then notification of ty, the answer as figure 1 has it, notification of tx."""
    played.deliver(played.sources.commit(("n.s", 1, (7,))))
    (question,) = played.statements
    played.statements.clear()
    ty = played.sources.commit(("i.r", -1, (2,)), ("i.r", 1, (20,)))
    tx = played.sources.commit(("i.r", -1, (1,)), ("i.r", 1, (10,)))
    return question, (ty, answer_of(played, question), tx)


def answer_of(played: Played, question: SourceQuery[Numbered]) -> SourceAnswer[Numbered]:
    (part,) = question.parts
    rows = played.operators.evaluate(part.tree, {"i.r": numbered(ANSWER), **part.inputs})
    state = Seen(2, frozenset({"i1"}))
    return SourceAnswer(question.view, question.id, question.step, "i", (rows,), state)


def shown(played: Played) -> list[Bag]:
    """The view after each list."""
    states: list[Bag] = []
    for *_, rows in played.sent:
        old = states[-1] if states else {}
        states.append(flat(played.operators.plus(numbered(old), numbered(rows))))
    return states


def test_sweep_over_a_fifo_network_shows_a_state_that_never_was() -> None:
    played = Played(lambda s, o, k: SweepManager(s, o), V, KNOWN, {"i.r": [(1,), (2,)]})
    for message in scheduled(played)[1]:
        played.deliver(message)
    played.settle()
    assert shown(played)[0] == {(7, 10): 1, (7, 2): 2, (7, 20): -1}
    assert shown(played)[-1] != TRUE[-1], "and it stays wrong"


def test_compensating_by_snapshots_shows_every_state() -> None:
    played = Played(lambda s, o, k: CompensatingManager(s, o), V, KNOWN, {"i.r": [(1,), (2,)]})
    adapter = FifoAdapter("v", played.manager.psj, played.operators, exact=True)
    adapter.handle(played.sources.published[0])
    question, (ty, answer, tx) = scheduled(played)
    adapter.handle(played.sources.published[1])
    (sent,) = adapter.handle(question)
    assert isinstance(sent, SourceQuery)
    travelled = SourceAnswer("v", sent.id, sent.step, "i", answer.rows, answer.state)
    for message, through in ((ty, [ty]), (travelled, []), (tx, [tx, answer])):
        found = adapter.handle(message)
        assert found == through, "the answer is held until TR1, which it saw, is there"
        for each in found:
            played.deliver(each)
    played.settle()
    assert shown(played) == TRUE


# isolated -----------------------------------------------------------------------------------------


def delta_tables(source: LockedSource) -> dict[str, Bag]:
    names = (delta_table(R, "inserted").relation, delta_table(R, "deleted").relation)
    return {
        name: bag(rows) for name, rows in zip(names, (source.inserted, source.deleted), strict=True)
    }


@pytest.mark.parametrize(
    ("read_at", "ids", "table"),
    [(0, [], [1, 2]), (5, ["TR3"], [1, 20]), (10, ["TR1", "TR3"], [10, 20])],
)
def test_the_ids_read_fix_the_state_whatever_the_table_has(
    read_at: int, ids: list[str], table: list[int]
) -> None:
    assert played_to(read_at)[0].ids() == ids
    source, _ = played_to(10)
    current = source.atomic()
    assert current == [(10,), (20,)]
    has = {"i.r": bag(current), IDS: bag([(each,) for each in ids]), **delta_tables(source)}
    assert evaluate(table_in(R, "past"), has) == {(1,): 1, (2,): 1}
    assert evaluate(table_in(R, "old"), has) == {(x,): 1 for x in table}


def test_equation_3_read_row_by_row_under_read_committed_is_wrong() -> None:
    """TR2's own reading, then the delta rows: the statement must be atomic, as 5.4 says in passing."""
    source, read = played_to(10)
    has = {"i.r": bag(read), IDS: {}, **delta_tables(source)}
    assert evaluate(table_in(R, "past"), has) == {(1,): 1, (2,): 2}
    assert played_to(5)[0].atomic() is None, "an atomic statement waits for TR1"


def test_isolated_is_right_about_both() -> None:
    """A session begins at T5 and is answered at T8; what the notifications say does not matter."""
    operators: NumberedBags = NumberedBags()
    machine = Isolated("g", {"v": R}, operators)
    source, mv = played_to(0)[0], {}

    def session(until: int, asked_at: int) -> Bag:
        """One session whose ids are read at T`asked_at` and whose statement is evaluated at T`until`."""
        nonlocal mv
        (read,) = machine.handle(StartSession())
        found = [(each,) for each in played_to(asked_at)[0].ids() if each not in handled]
        sent = machine.handle(Ids(read.session, "i", numbered(bag(found))))
        now, _ = played_to(until)
        while sent and isinstance(sent[0], Evaluate):
            (asked,) = sent
            has = {name: numbered(rows) for name, rows in unhandled(now).items()}
            has["i.r"] = numbered(bag(now.atomic() or []))
            parts = [(at_source(part.tree), {**has, **part.inputs}) for part in asked.parts]
            rows = [operators.evaluate(tree, known) for tree, known in parts]
            sent = machine.handle(Evaluated(asked.session, asked.request, "i", tuple(rows)))
        for each in sent:
            if isinstance(each, ActionList) and each.delta is not None:
                change = operators.renumbered(operators.open(each.delta), 0)
                mv = flat(operators.plus(numbered(mv), change))
        for each in machine.handle(Installed(machine.number)):
            assert isinstance(each, DeleteIds)
            handled.extend(row[0] for _, row in each.ids)
            machine.handle(Deleted(each.session, "i"))
        return mv

    def unhandled(now: LockedSource) -> dict[str, Bag]:
        found = delta_tables(now).items()
        return {n: {r: c for r, c in rows.items() if r[-1] not in handled} for n, rows in found}

    handled: list[str] = []
    assert source.atomic() == [(1,), (2,)]
    assert session(until=0, asked_at=0) == {(1,): 1, (2,): 1}
    assert session(until=8, asked_at=5) == {(1,): 1, (20,): 1}, "TR1 is in the table, and undone"
    assert handled == ["TR3"]
    assert session(until=10, asked_at=10) == {(10,): 1, (20,): 1}
    assert handled == ["TR3", "TR1"]
