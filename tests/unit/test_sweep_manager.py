"""The sweep manager: transactions over several places, truncates, snapshots, protocol."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.algebra.numbered import NumberedBags
from streaming.algebra.source_queries import Answer, Seen
from streaming.durable import as_json
from streaming.errors import FrescoError, ProtocolError
from streaming.messages import RelRun, Updates
from streaming.viewmanagers.asking.sweep import SweepManager
from streaming.viewmanagers.base import ManagedView
from tests.askedsources import tables, view
from tests.golden.test_sweep import Mediator

RELATIONS = tables(x__r="a b", y__s="b c", z__t="c d")


def spec(sql: str) -> ManagedView:
    return ManagedView("v", "g", view(sql, RELATIONS))


PAIR = spec("SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b")
CHAIN = spec("SELECT r.a, s.c, t.d FROM x.r r JOIN y.s s ON r.b = s.b JOIN z.t t ON s.c = t.c")


def asked_to_the_end(mediator: Mediator) -> list[Any]:
    while mediator.statements:
        mediator.ask()
    return mediator.lists[1:]


def test_a_view_of_one_relation_asks_nobody() -> None:
    mediator = Mediator(spec("SELECT r.a FROM x.r r WHERE r.b > 1"), x__r=[(1, 2)])
    assert mediator.lists == [(0, 0, True, {(1,): 1})]
    mediator.deliver(mediator.sources.commit(("x.r", 1, (3, 1)), ("x.r", 1, (4, 2))))
    assert mediator.lists[1:] == [(1, 1, True, {(4,): 1})]


def test_a_number_without_effect_on_the_view_has_an_empty_list() -> None:
    mediator = Mediator(PAIR)
    mediator.deliver(mediator.sources.commit(("x.r", 1, (1, 2)), ("x.r", -1, (1, 2))))
    assert not mediator.statements
    assert mediator.lists[1:] == [(1, 1, True, {})]


def test_numbers_that_leave_the_view_no_work_get_no_list() -> None:
    mediator = Mediator(PAIR)
    idle = RelRun(first=1, last=1, views=("v",), idle=("v",))
    other = RelRun(first=2, last=2, views=("w",))
    message = Updates(group="g", first=1, last=2, runs=(idle, other), relations={})
    assert mediator.manager.handle(message) == []


def test_a_sweep_whose_rows_run_out_asks_no_further() -> None:
    mediator = Mediator(CHAIN, z__t=[(3, 4)])
    mediator.deliver(mediator.sources.commit(("x.r", 1, (1, 2))))
    assert mediator.ask() == "y"
    assert not mediator.statements, "t is not asked"
    assert mediator.lists[1:] == [(1, 1, True, {})]


def test_places_left_of_a_changed_one_are_new_and_right_of_it_old() -> None:
    mediator = Mediator(CHAIN, x__r=[(1, 2)], z__t=[(3, 4)])
    mediator.deliver(
        mediator.sources.commit(("x.r", 1, (5, 2)), ("y.s", 1, (2, 3)), ("z.t", -1, (3, 4)))
    )
    assert mediator.ask() == "y", "r's change with s as it was"
    assert mediator.ask() == "x", "s's change with r as it is"
    assert mediator.ask() == "z", "and with t as it was"
    assert mediator.ask() == "y", "t's change with s as it is"
    assert mediator.ask() == "x", "and with r as it is"
    assert mediator.lists[1:] == [(1, 1, True, {})]


def test_a_self_join_is_swept_place_by_place() -> None:
    mediator = Mediator(spec("SELECT p.a, q.b FROM x.r p JOIN x.r q ON p.b = q.a"), x__r=[(1, 2)])
    mediator.deliver(mediator.sources.commit(("x.r", 1, (2, 1))))
    mediator.deliver(mediator.sources.commit(("x.r", -1, (1, 2))))
    assert asked_to_the_end(mediator) == [
        (1, 1, True, {(1, 1): 1, (2, 2): 1}),
        (2, 2, True, {(1, 1): -1, (2, 2): -1}),
    ]


def test_places_that_nothing_known_joins_with_wait_until_one_does() -> None:
    star = spec(
        "SELECT r.a, t.d, s.b FROM x.r r JOIN z.t t ON r.a < t.c + 9 JOIN y.s s ON s.b = r.b"
    )
    mediator = Mediator(star, x__r=[(1, 2)], z__t=[(3, 4)])
    mediator.deliver(mediator.sources.commit(("y.s", 1, (2, 3))))
    assert [mediator.ask(), mediator.ask()] == ["x", "z"], "t, at its left, is no neighbour of s"
    assert mediator.lists[1:] == [(1, 1, True, {(1, 4, 2): 1})]


# Truncates ----------------------------------------------------------------------------------------


def test_a_truncate_empties_the_view_and_brings_what_came_after_it() -> None:
    mediator = Mediator(PAIR, x__r=[(1, 2)], y__s=[(2, 3), (2, 4)])
    mediator.deliver(mediator.sources.commit(("x.r", 1, (7, 2)), truncated="x.r"))
    assert asked_to_the_end(mediator) == [
        (1, 1, True, {(1, 3): -1, (1, 4): -1, (7, 3): 1, (7, 4): 1})
    ]


def test_a_truncate_without_rows_after_it_asks_nobody() -> None:
    mediator = Mediator(PAIR, x__r=[(1, 2)], y__s=[(2, 3)])
    mediator.deliver(mediator.sources.commit(("y.s", 1, (2, 9)), truncated="x.r"))
    assert not mediator.statements
    assert mediator.lists[1:] == [(1, 1, True, {(1, 3): -1})]


def test_numbers_whose_rows_a_truncate_has_taken_share_its_list() -> None:
    mediator = Mediator(PAIR, x__r=[(1, 2)], y__s=[(2, 3)])
    mediator.deliver(mediator.sources.commit(("y.s", 1, (2, 4))))
    mediator.deliver(mediator.sources.commit(("y.s", 1, (2, 5))))
    mediator.deliver(mediator.sources.commit(("x.r", 1, (8, 2)), truncated="x.r"))
    mediator.deliver(mediator.sources.commit(("x.r", 1, (9, 2))))
    assert asked_to_the_end(mediator) == [
        (1, 3, False, {(1, 3): -1, (8, 3): 1, (8, 4): 1, (8, 5): 1}),
        (4, 4, True, {(9, 3): 1, (9, 4): 1, (9, 5): 1}),
    ]


def test_a_truncate_of_a_relation_that_is_not_asked_any_more_loses_nothing() -> None:
    mediator = Mediator(CHAIN, x__r=[(1, 2)], z__t=[(3, 4)])
    mediator.deliver(mediator.sources.commit(("y.s", 1, (2, 3))))
    assert mediator.ask() == "x"
    mediator.deliver(mediator.sources.commit(truncated="x.r"))
    assert asked_to_the_end(mediator) == [
        (1, 1, True, {(1, 3, 4): 1}),
        (2, 2, True, {(1, 3, 4): -1}),
    ]


def test_two_truncates_of_one_relation_take_the_numbers_between_them_too() -> None:
    mediator = Mediator(PAIR, x__r=[(1, 2)], y__s=[(2, 3)])
    mediator.deliver(mediator.sources.commit(("y.s", -1, (2, 3))))
    mediator.deliver(mediator.sources.commit(("x.r", 1, (5, 2)), truncated="x.r"))
    mediator.deliver(mediator.sources.commit(("y.s", 1, (2, 4))))
    mediator.deliver(mediator.sources.commit(truncated="x.r"))
    assert asked_to_the_end(mediator) == [(1, 2, False, {(1, 3): -1}), (3, 4, False, {})]


# State and protocol -------------------------------------------------------------------------------


def test_a_restored_manager_goes_on_where_the_saved_one_was() -> None:
    mediator = Mediator(CHAIN, x__r=[(1, 2)], z__t=[(3, 4)])
    mediator.deliver(mediator.sources.commit(("y.s", 1, (2, 3)), ("x.r", 1, (6, 2))))
    mediator.deliver(mediator.sources.commit(("z.t", 1, (3, 9)), truncated="z.t"))
    mediator.deliver(mediator.sources.commit(("x.r", -1, (1, 2))))
    while mediator.statements:
        saved = as_json(mediator.manager.snapshot())
        before = mediator.manager
        mediator.manager = SweepManager(CHAIN, mediator.sources.operators)
        mediator.manager.restore(saved)
        assert mediator.manager.umq.held == before.umq.held
        assert mediator.manager.work == before.work
        assert mediator.manager.mirror.rows() == before.mirror.rows()
        mediator.ask()
    assert mediator.lists[1:] == [
        (1, 2, False, {(1, 3, 9): 1, (6, 3, 9): 1}),
        (3, 3, True, {(1, 3, 9): -1}),
    ]


def waiting() -> Mediator:
    mediator = Mediator(PAIR, y__s=[(2, 3)])
    mediator.deliver(mediator.sources.commit(("x.r", 1, (1, 2))))
    return mediator


def updates(first: int, last: int, group: str = "g", runs: tuple[RelRun, ...] = ()) -> Updates:
    covered = runs or (RelRun(first=first, last=last, views=("v",)),)
    return Updates(group=group, first=first, last=last, runs=covered, relations={})


BAD = [
    (Answer("v", 2, {}, {"y": Seen(0)}), "without a query"),
    (Answer("w", 1, {}, {"y": Seen(0)}), "manager of v"),
    (updates(1, 1), "from the past"),
    (updates(3, 3), "a gap"),
    (updates(2, 2, group="h"), "belongs to group g"),
    (updates(2, 3, runs=(RelRun(first=2, last=2, views=("v",)),)), "runs end at 2"),
]


@pytest.mark.parametrize(("message", "rule"), BAD, ids=[rule for _, rule in BAD])
def test_a_message_out_of_its_protocol_changes_nothing(message: Any, rule: str) -> None:
    mediator = waiting()
    manager = mediator.manager
    state = (manager.progress, dict(manager.uqs), list(manager.umq.held), manager.work)
    with pytest.raises(ProtocolError, match=rule) as raised:
        manager.handle(message)
    assert raised.value.code == "PROTOCOL_VIEW_MANAGER"
    assert (manager.progress, manager.uqs, manager.umq.held, manager.work) == state
    assert asked_to_the_end(mediator) == [(1, 1, True, {(1, 3): 1})]


def test_an_answer_is_taken_once() -> None:
    mediator = waiting()
    mediator.ask()
    with pytest.raises(ProtocolError, match="without a query"):
        mediator.manager.handle(Answer("v", 1, {}, {}))


def test_a_snapshot_of_another_view_is_refused() -> None:
    other = SweepManager(ManagedView("w", "g", PAIR.tree), NumberedBags())
    with pytest.raises(ProtocolError, match="not of view w"):
        other.restore(waiting().manager.snapshot())


def test_a_view_that_is_no_project_select_join_is_refused() -> None:
    with pytest.raises(FrescoError, match="VIEW_NOT_PSJ"):
        SweepManager(spec("SELECT r.a, count(*) AS n FROM x.r r GROUP BY r.a"), NumberedBags())
