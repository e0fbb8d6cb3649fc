"""What breaks the protocol of a manager that asks is refused and changes nothing; a restart neither."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.algebra.source_queries import Answer, Query, Seen
from streaming.errors import FrescoError, ProtocolError
from streaming.messages import ActionList, Updates
from tests.askedmanagers import MAKES, ONE, TWO, played, state
from tests.askedsources import view
from tests.strobeworld import Played


def waiting(mode: str, **how: Any) -> Played:
    """Number 1 is received and its query, of id 1, has not been answered."""
    one = played(MAKES[mode], **how)
    one.deliver(one.sources.commit(("s.t", 1, (2, 4))))
    assert list(one.manager.uqs) == [1]
    return one


def number_two(one: Played, **changes: Any) -> Updates:
    return one.sources.commit(("s.r", 1, (5, 2))).model_copy(update=changes)


BREACHES = {
    "updates of another group": (
        lambda one: number_two(one, group="h"),
        "this manager belongs to group g",
    ),
    "a number from the past": (lambda one: one.sources.published[1], "numbers from the past"),
    "number 0 again": (lambda one: one.sources.published[0], "numbers from the past"),
    "a gap": (
        lambda one: (number_two(one), number_two(one))[1],
        "a gap: number 2 is missing",
    ),
    "runs that do not cover the numbers": (
        lambda one: number_two(one, runs=()),
        "runs end at 1",
    ),
    "an answer without a query": (
        lambda one: Answer("v", 2, {}, {"s": Seen(1)}),
        "an answer without a query",
    ),
    "an answer to another view": (
        lambda one: Answer("w", 1, {}, {"s": Seen(1)}),
        "this is the manager of v",
    ),
}


@pytest.mark.parametrize("mode", MAKES)
@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_is_refused_and_changes_nothing(mode: str, breach: str) -> None:
    make, rule = BREACHES[breach]
    one = waiting(mode)
    bad = make(one)
    before = state(one.manager, one.operators)
    with pytest.raises(ProtocolError, match=rule) as error:
        one.manager.handle(bad)
    assert error.value.code == "PROTOCOL_VIEW_MANAGER"
    assert state(one.manager, one.operators) == before


@pytest.mark.parametrize("mode", MAKES)
def test_a_second_answer_is_refused(mode: str) -> None:
    one = waiting(mode)
    answer = Answer("v", 1, {}, {"s": Seen(1)})
    one.manager.handle(answer)
    before = state(one.manager, one.operators)
    with pytest.raises(ProtocolError, match="an answer without a query"):
        one.manager.handle(answer)
    assert state(one.manager, one.operators) == before


@pytest.mark.parametrize("mode", ["compensating", "recompute"])
def test_an_exact_manager_refuses_an_answer_without_its_state(mode: str) -> None:
    one = waiting(mode)
    before = state(one.manager, one.operators)
    with pytest.raises(ProtocolError, match="state"):
        one.manager.handle(Answer("v", 1, {(0, (1, 2, 2, 3)): 1}, {}))
    assert state(one.manager, one.operators) == before


@pytest.mark.parametrize("mode", MAKES)
def test_the_initial_state_comes_by_itself(mode: str) -> None:
    one = played(MAKES[mode])
    fresh = MAKES[mode](one.sources.spec, one.operators)
    both = one.sources.published[0].model_copy(
        update={
            "last": 1,
            "runs": (one.sources.published[0].runs[0].model_copy(update={"last": 1}),),
        }
    )
    with pytest.raises(ProtocolError, match="comes by itself"):
        fresh.handle(both)
    assert state(fresh, one.operators) == state(
        MAKES[mode](one.sources.spec, one.operators), one.operators
    )


@pytest.mark.parametrize("mode", MAKES)
def test_a_number_that_leaves_the_view_no_work_gets_no_list_and_no_query(mode: str) -> None:
    one = played(MAKES[mode])
    run = one.sources.published[0].runs[0]
    quiet = Updates(
        group="g",
        first=1,
        last=2,
        runs=(
            run.model_copy(update={"first": 1, "last": 1, "views": ()}),
            run.model_copy(update={"first": 2, "last": 2, "idle": ("v",)}),
        ),
        relations={},
    )
    assert one.manager.handle(quiet) == []
    assert one.manager.progress.number == 2


@pytest.mark.parametrize("mode", MAKES)
def test_a_busy_number_without_rows_gets_an_empty_list(mode: str) -> None:
    one = played(MAKES[mode])
    one.deliver(one.sources.commit())
    one.settle()
    assert [(first, last, rows) for first, last, _, rows in one.sent] == [(1, 1, {})]


@pytest.mark.parametrize("mode", MAKES)
def test_a_snapshot_of_another_view_is_refused(mode: str) -> None:
    one = waiting(mode)
    before = state(one.manager, one.operators)
    with pytest.raises(ProtocolError, match="not of view v"):
        one.manager.restore({**one.manager.snapshot(), "view": "w"})
    assert state(one.manager, one.operators) == before


@pytest.mark.parametrize("mode", MAKES)
def test_a_restart_after_every_message_changes_nothing(mode: str) -> None:
    """Updates received while others wait, answers late, a truncate, a transaction over both."""
    outcomes = []
    for restarts in (False, True):
        one = played(MAKES[mode], restarts=restarts)
        commit = one.sources.commit
        one.deliver(commit(("s.t", 1, (2, 4))))
        one.deliver(commit(("s.r", 1, (5, 2)), ("s.t", -1, (2, 3))))
        late = one.evaluate("s")
        one.deliver(commit(("s.r", -1, (1, 2))))
        one.deliver(late)
        one.settle()
        one.deliver(commit(("s.t", 1, (2, 5))))
        one.deliver(commit(("s.r", 1, (6, 2)), truncated="s.r"))
        one.deliver(commit(("s.t", 1, (2, 6))))
        one.settle()
        outcomes.append((one.sent, one.mv, state(one.manager, one.operators)))
        if mode != "naive":
            assert one.mv == one.sources.contents()
    assert outcomes[0] == outcomes[1]


def test_eca_refuses_views_over_several_sources() -> None:
    with pytest.raises(FrescoError, match="over x, y") as error:
        played(MAKES["eca"], TWO)
    assert error.value.code == "VIEW_MODE_SOURCES"
    assert "compensating" in error.value.todo


@pytest.mark.parametrize("mode", MAKES)
def test_what_is_not_select_project_join_is_refused(mode: str) -> None:
    with pytest.raises(FrescoError) as error:
        played(MAKES[mode], tree=view("SELECT a, COUNT(*) AS n FROM s.r GROUP BY a", ONE))
    assert error.value.code == "VIEW_NOT_PSJ"


def test_messages_come_out_in_the_order_in_which_they_are_to_be_sent() -> None:
    one = waiting("eca")
    one.deliver(number_two(one))
    (query,) = one.statements
    kinds = [type(m) for m in one.manager.handle(Answer("v", 1, {}, {"s": Seen(2)}))]
    assert (query.id, kinds) == (1, [ActionList, Query]), "the list, then the gate opens"
