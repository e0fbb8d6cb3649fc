"""`isolated`, message by message: the four steps of a session (moro-sartori 5.6)."""

from __future__ import annotations

import pytest

from streaming.algebra.bag import flat
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.psj import LEFT
from streaming.errors import FrescoError, ProtocolError
from streaming.isolated.add_del import IDS
from streaming.isolated.isolated_manager import Isolated
from streaming.isolated.session_messages import Ids, Installed, ReadIds, StartSession
from streaming.merge.machine import MergeMachine
from streaming.messages import ActionList, Rel
from tests.askedsources import view
from tests.isolatedworld import KNOWN, VIEWS, World, ids, in_step


def test_session_by_session() -> None:
    world = World()
    machine = world.machine
    sent = world.handle(StartSession())
    assert [(type(each), each.session, each.source) for each in sent] == [
        (ReadIds, 1, "x"),
        (ReadIds, 1, "y"),
    ], "step 1: one statement for each source"
    assert world.handle(Ids(1, "x", {})) == [], "until all have answered"
    sent = world.handle(Ids(1, "y", {}))
    assert [(each.request, each.source, len(each.parts)) for each in sent] == [(1, "x", 2)], (
        "step 2"
    )
    first = world.sources["x"].answer(sent[0])
    assert [flat(rows) for rows in first.rows] == [{(1, 2): 1}, {(1, 2): 1}]
    (asked,) = world.handle(first)
    assert (asked.source, flat(asked.parts[0].inputs[LEFT])) == ("y", {(1, 2): 1})
    rel, *lists = world.handle(world.sources["y"].answer(asked))
    assert isinstance(rel, Rel) and rel.runs[0].views == ("copy", "joined"), "step 3"
    assert [(a.view, a.first, flat(world.operators.open(a.delta))) for a in lists] == [
        ("copy", 0, {(1, 2): 1}),
        ("joined", 0, {(1, 3): 1}),
    ]
    assert world.handle(Installed(0)) == [] and machine.step == "idle", "nothing to delete"


def test_each_operator_is_at_the_source_that_its_rule_names() -> None:
    """Figure 2: +R goes to S's source and is joined there with S°; what stays of R meets +S at R's."""
    world = World()
    world.session()
    t1, t2 = world.commit("x.r", None, (5, 2)), world.commit("y.s", (2, 3), (2, 4))
    world.handle(StartSession())
    world.handle(Ids(2, "x", ids(t1)))
    sent = world.handle(Ids(2, "y", ids(t2)))
    assert {each.source: len(each.parts) for each in sent} == {"x": 4, "y": 2}, (
        "+ and - of each place"
    )
    (x_asked,), (y_asked,) = ([e for e in sent if e.source == source] for source in "xy")
    assert all(part.inputs.keys() == {IDS} for each in sent for part in each.parts)
    assert world.handle(world.sources["x"].answer(x_asked)) == [], "y is busy; -R is empty"
    found = world.handle(world.sources["y"].answer(y_asked))
    assert {e.source: [flat(p.inputs[LEFT]) for p in e.parts] for e in found} == {
        "y": [{(5, 2): 1}],
        "x": [{(2, 4): 1}, {(2, 3): 1}],
    }, "only changes travel"
    world.settle(found)
    assert world.contents("joined") == world.true("joined") == {(1, 4): 1, (5, 4): 1}


def test_what_commits_after_the_ids_were_read_waits_for_the_next_session() -> None:
    world = World()
    world.session()
    t1 = world.commit("x.r", (1, 2), (1, 9))
    asked = world.handle(StartSession())
    answers = [world.sources[each.source].answer(each) for each in asked]
    t2 = world.commit("x.r", (1, 9), (1, 2))
    assert [flat(answer.ids) for answer in answers] == [{(t1,): 1}, {}]
    world.settle([sent for answer in answers for sent in world.handle(answer)])
    assert (world.contents("copy"), world.true("copy")) == ({(1, 9): 1}, {(1, 2): 1})
    tables_left = world.sources["x"].tables.values()
    assert {row[-1] for rows in tables_left for _, row in rows if isinstance(row[-1], str)} == {t2}
    world.session()
    assert world.contents("copy") == {(1, 2): 1}
    assert not world.sources["x"].unhandled()


def test_a_session_that_finds_nothing_sends_nothing_and_has_no_number() -> None:
    world = World()
    world.session()
    before = len(world.lists)
    for _ in range(3):
        world.session()
    assert (len(world.lists), world.machine.number, world.machine.session) == (before, 0, 4)
    world.commit("x.r", None, (7, 7))
    world.session()
    assert world.machine.number == 1


def test_a_view_whose_sources_have_no_ids_is_idle_and_sends_no_list() -> None:
    world = World()
    world.session()
    world.lists.clear()
    world.commit("y.s", None, (2, 8))
    world.session()
    rel, *lists = world.lists
    assert isinstance(rel, Rel) and rel.runs[0].idle == ("copy",)
    assert [each.view for each in lists if isinstance(each, ActionList)] == ["joined"]


def test_a_notification_during_a_session_starts_another_one_after_it() -> None:
    world = World()
    sent = world.handle(StartSession())
    assert world.handle(StartSession()) == world.handle(StartSession()) == []
    world.settle(sent)
    assert world.machine.session == 2


def test_the_lists_of_a_session_are_one_warehouse_transaction_of_the_merge() -> None:
    world = World()
    merge = MergeMachine("g", tuple(VIEWS))
    for change in ((None, (5, 2)), ((5, 2), (5, 5))):
        world.lists.clear()
        world.session()
        for message in world.lists:
            merge.handle(message)
        batch = merge.take_batch()
        assert batch is not None and batch.ranges == ((world.machine.number,) * 2,)
        assert {part.view for part in batch.parts} == set(VIEWS)
        world.commit("x.r", *change)


def test_a_view_that_leaves_is_left_out_and_comes_back_whole() -> None:
    """Its triggers were away for a while: the delta tables do not hold all that changed."""
    world = World(restarts=True)
    world.session()
    world.machine.leave("joined")
    world.commit("x.r", None, (5, 2))
    world.lists.clear()
    world.session()
    rel, *lists = world.lists
    assert isinstance(rel, Rel) and rel.runs[0].views == ("copy",)
    assert [each.view for each in lists if isinstance(each, ActionList)] == ["copy"]
    world.machine.renew("joined")
    world.lists.clear()
    world.session()
    assert world.contents("joined") == world.true("joined") == {(1, 3): 1, (5, 3): 1}
    assert world.machine.number == 2 and not world.machine.fresh


@pytest.mark.parametrize("step", ["ids", "evaluate"])
def test_an_abandoned_session_s_ids_are_read_again(step: str) -> None:
    world = in_step(step)
    world.machine.abandon()
    assert (world.machine.step, world.machine.number) == ("idle", 0)
    world.session()
    assert world.contents("joined") == world.true("joined")
    assert world.machine.number == 1


@pytest.mark.parametrize("step", ["install", "delete"])
def test_a_session_whose_lists_have_been_sent_goes_to_its_end(step: str) -> None:
    world = in_step(step)
    with pytest.raises(ProtocolError):
        world.machine.leave("joined")
    assert world.machine.step == step and not world.machine.away


def test_a_view_with_an_aggregate_is_refused() -> None:
    total = view("SELECT COUNT(*) AS n FROM x.r", KNOWN)
    with pytest.raises(FrescoError, match="VIEW_NOT_PSJ"):
        Isolated("g", {"total": total}, NumberedBags())
