"""The mediator: RMQ and UMQ, parents that are asked, and which modes can be over views."""

from __future__ import annotations

import pytest

from streaming.algebra.bag import Numbered
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.psj import psj_of
from streaming.algebra.source_queries import QueryPart, SourceQuery
from streaming.algebra.tree import Relation
from streaming.errors import FrescoError, ProtocolError
from streaming.messages import Control, SourceLog, Updates
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.modes import MODES
from streaming.viewmanagers.over_views.mediator import Mediator
from streaming.viewmanagers.over_views.over_view_modes import check_over_views
from tests.askedsources import tables, view
from tests.unit.mediatedworld import GROUPS, RELATIONS, SPEC, World, spans

# UMQ and RMQ --------------------------------------------------------------------------------------


def test_number_0_brings_the_parents_whole() -> None:
    world = World()
    assert world.handle(world.al("q", 0, 0, {0: (1, 2)})) == [], "a list may overtake the numbering"
    assert world.handle(world.updates(0, 0, (0, 0, "pqv"), r={0: (5, 5)})) == [], "p is awaited"
    (message,) = world.handle(world.al("p", 0, 0, {0: (5, 1)}))
    assert message.relations == {
        "x.r": {(0, (5, 5)): 1},
        "p": {(0, (5, 1)): 1},
        "q": {(0, (1, 2)): 1},
    }


def test_a_number_waits_for_the_parents_that_rel_asks_for_work() -> None:
    world = World().begun()
    runs = [(1, 1, "v"), (2, 2, "pqv", "q"), (3, 3, "pqv"), (4, 4, "w")]
    assert spans(world.handle(world.updates(1, 4, *runs))) == [(1, 1)], "no parent is awaited for 1"
    (second,) = world.handle(world.al("p", 2, 2, {2: (1, 1)}))
    assert (second.first, second.last, second.relations) == (2, 2, {"p": {(2, (1, 1)): 1}})
    assert world.handle(world.al("q", 3, 3)) == []
    (rest,) = world.handle(world.al("p", 3, 3))
    assert (rest.first, rest.last, rest.relations) == (3, 4, {}), "empty lists are waited for too"
    assert [(run.first, run.last, run.views) for run in rest.runs] == [
        (3, 3, ("p", "q", "v")),
        (4, 4, ("w",)),
    ]


def test_a_whole_batch_goes_on_at_once_with_the_rows_as_they_came() -> None:
    world = World().begun()
    batch = world.updates(1, 900, (1, 900, "pqv"), r={3: (1, 1)})
    lists = [world.al("p", 1, 900, {7: (1, 1)}), world.al("q", 1, 900, {900: (1, 1)})]
    assert world.mediator.handle(batch) == world.mediator.handle(lists[0]) == []
    (message,) = world.mediator.handle(lists[1])
    assert isinstance(message, Updates)
    expected = {"x.r": batch.relations["x.r"], "p": lists[0].delta, "q": lists[1].delta}
    assert message.relations == expected, "references, not copies"
    assert message.runs == batch.runs


def test_a_part_of_a_message_has_its_part_of_everything() -> None:
    world = World().begun()
    log = SourceLog(numbers=(1, 3, 2), transactions=("a", "c", "b"), positions=(10, 20, 30))
    truncate = Control(number=3, relation="x.r", kind="truncate")
    world.handle(
        world.updates(
            1,
            3,
            (1, 3, "pqv"),
            r={1: (1, 1), 2: (2, 2)},
            controls=(truncate,),
            logs={"x": log},
            delivered={"x": 35},
        )
    )
    world.handle(world.al("p", 1, 3, {1: (1, 1), 2: (2, 2)}))
    (first,) = world.handle(world.al("q", 1, 1))
    assert first.relations == {"x.r": {(1, (1, 1)): 1}, "p": {(1, (1, 1)): 1}}
    assert first.logs["x"].transactions == ("a",)
    assert first.delivered == {"x": 19}, "c, at 20, has number 3"
    assert first.controls == ()
    (rest,) = world.handle(world.al("q", 2, 3))
    assert rest.relations == {"x.r": {(2, (2, 2)): 1}, "p": {(2, (2, 2)): 1}}
    assert (rest.logs["x"].transactions, rest.delivered) == (("c", "b"), {"x": 35})
    assert rest.controls == (truncate,)


def test_lists_of_several_messages_wait_in_rmq() -> None:
    world = World().begun()
    for first in (1, 3):
        world.handle(world.updates(first, first + 1, (first, first + 1, "pqv")))
        world.handle(world.al("p", first, first + 1))
    assert [len(lists) for lists in world.mediator.rmq.values()] == [2, 0]
    assert spans(world.handle(world.al("q", 1, 4))) == [(1, 2), (3, 4)], "cut by cut"
    assert not any(world.mediator.rmq.values()) and not world.mediator.umq


def test_a_view_that_joins_is_given_its_parents_rows_with_its_first_number() -> None:
    world = World(ManagedView("v", "g", SPEC.tree, start=7))
    first = world.updates(7, 7, (7, 7, "pqv"), r={7: (1, 1)})
    given = {name: world.rows({7: (1, 1)}) for name in ("p", "q")}
    first = first.model_copy(update={"relations": {**first.relations, **given}})
    (message,) = world.handle(first)
    assert set(message.relations) == {"x.r", "p", "q"}
    world.handle(world.updates(8, 8, (8, 8, "pqv", "q")))
    assert spans(world.handle(world.al("p", 8, 8))) == [(8, 8)]


def test_a_parent_of_another_group_sends_its_lists_from_there() -> None:
    world = World(groups={"p": "h", "q": "g", "v": "g"})
    world.handle(world.updates(0, 0, (0, 0, "pqv")))
    world.refused(world.al("p", 0, 0), "p belongs to group h")
    world.handle(world.al("p", 0, 0, group="h"))
    assert spans(world.handle(world.al("q", 0, 0))) == [(0, 0)]


# A parent that is asked ---------------------------------------------------------------------------

ASKING_SPEC = ManagedView(
    "v", "g", view("SELECT r.a, p.b FROM x.r r JOIN p ON r.a = p.a", RELATIONS)
)


def test_a_parent_is_a_source_whose_transactions_are_its_numbers() -> None:
    world = World(ASKING_SPEC, asks=True)
    world.handle(world.updates(0, 0, (0, 0, "pv"), delivered={"x": 0}))
    (initial,) = world.handle(world.al("p", 0, 0, {0: (1, 1)}))
    assert initial.delivered == {"x": 0, "p": 0} and initial.logs == {}
    world.handle(world.updates(1, 3, (1, 1, "v"), (2, 3, "pv"), delivered={"x": 5}))
    (some,) = world.handle(world.al("p", 2, 3, {2: (2, 2)}))
    log = SourceLog(numbers=(2, 3), transactions=("2", "3"), positions=(2, 3))
    assert (some.logs, some.delivered) == ({"p": log}, {"x": 5, "p": 3})

    leaf = psj_of(ASKING_SPEC.tree).leaves[1]
    query: SourceQuery[Numbered] = SourceQuery("v", 1, 1, "p", (QueryPart(leaf, {}),))
    answer = world.mediator.answer(query)
    assert answer.rows == ({(0, (1, 1)): 1, (0, (2, 2)): 1},)
    assert answer.state.upto == 3 and answer.state.saw("3", 3)


def test_a_strong_list_is_one_transaction_of_its_parent() -> None:
    world = World(ASKING_SPEC, asks=True)
    world.handle(world.updates(0, 0, (0, 0, "pv")))
    world.handle(world.al("p", 0, 0))
    world.handle(world.updates(1, 3, (1, 3, "pv")))
    (unit,) = world.handle(world.al("p", 1, 3, {3: (1, 1)}, complete=False))
    assert unit.logs == {"p": SourceLog(numbers=(3,), transactions=("3",), positions=(3,))}


def test_nobody_else_is_answered_for() -> None:
    for world, query in (
        (World(ASKING_SPEC, asks=True), SourceQuery("v", 1, 1, "x", ())),
        (World(ASKING_SPEC, asks=True), SourceQuery("w", 1, 1, "p", ())),
        (World(ASKING_SPEC, asks=False), SourceQuery("v", 1, 1, "p", ())),
    ):
        with pytest.raises(ProtocolError, match="no rows for v to be asked here"):
            world.mediator.answer(query)


def test_a_parent_that_is_asked_must_not_have_a_source_s_name() -> None:
    relations = {**tables(p__r="a b"), "p": Relation("p", RELATIONS["p"].schema)}
    spec = ManagedView("v", "g", view("SELECT r.a FROM p.r r JOIN p ON r.a = p.a", relations))
    Mediator(spec, GROUPS, NumberedBags())
    with pytest.raises(FrescoError, match="VIEW_NAMED_LIKE_SOURCE"):
        Mediator(spec, GROUPS, NumberedBags(), asks=True)


def test_modes_that_cannot_be_over_views_say_why() -> None:
    able = [mode for mode, info in MODES.items() if not info.over_views]
    assert able == ["replica", "compensating", "sweep", "recompute"]
    for mode in able:
        check_over_views(mode, "v", ("p",))
    for mode, info in MODES.items():
        check_over_views(mode, "v", ())
        if mode in able:
            continue
        with pytest.raises(FrescoError) as error:
            check_over_views(mode, "v", ("p", "q"))
        assert error.value.code == "MODE_OVER_VIEWS"
        assert info.over_views in error.value.what and "p, q" in error.value.what
        assert "replica" in error.value.todo
