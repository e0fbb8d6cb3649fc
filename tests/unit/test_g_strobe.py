"""Global-Strobe beyond Example 4: cuts, parts that change nothing, and its degrading to T-Strobe."""

from __future__ import annotations

from functools import partial

import pytest

from streaming.algebra.tree import Relation
from streaming.errors import ProtocolError
from streaming.viewmanagers.asking.g_strobe import GStrobe
from streaming.viewmanagers.asking.strobe import Strobe
from tests.askedsources import tables, view
from tests.strobeworld import Make, Played, one_message, part_of

R = {**tables(x__r="a b"), "y.s": Relation("y.s", tables(y__s="b c")["y.s"].schema, (1,))}
JOIN = view("SELECT r.a, r.b, s.c FROM x.r r JOIN y.s s ON r.b = s.b", R)
INITIAL = {"x.r": [(1, 2)], "y.s": [(3, 4), (3, 5)]}

restarts = pytest.mark.parametrize("restarts", [False, True], ids=["", "restarted at each message"])


def played(make: Make = GStrobe, restarts: bool = False) -> Played:
    return Played(make, JOIN, R, INITIAL, restarts)


@restarts
def test_with_the_gate_example_4_goes_through_the_state_before_the_global_one(
    restarts: bool,
) -> None:
    world = played(restarts=restarts)
    world.deliver(world.sources.commit(("x.r", 1, (1, 3)), ("x.r", -1, (1, 2))))
    world.deliver(part_of(world.sources.commit(("y.s", -1, (3, 4))), "T2", 2))
    assert world.manager.tt == {}, "held at the cut, and not in TT yet"
    world.deliver(world.evaluate("y"))
    assert world.sent == [(1, 1, False, {(1, 3, 4): 1, (1, 3, 5): 1})]
    assert world.manager.tt == {"T2": 1}
    world.deliver(part_of(world.sources.commit(("x.r", 1, (2, 3))), "T2", 2))
    world.settle()
    assert world.sent[1:] == [(2, 3, False, {(1, 3, 4): -1, (2, 3, 5): 1})]


def test_a_list_goes_across_a_cut_that_a_global_transaction_straddles() -> None:
    world = played()
    world.deliver(part_of(world.sources.commit(("y.s", -1, (3, 4))), "T1", 2))
    world.deliver(world.sources.commit(("x.r", 1, (6, 3))))
    world.deliver(world.sources.commit(("x.r", 1, (7, 3))))
    assert not world.manager.queue.held, "the gate is open while a part is missing"
    world.deliver(part_of(world.sources.commit(("x.r", -1, (1, 2))), "T1", 2))
    world.settle()
    assert [one[:2] for one in world.sent] == [(1, 4)]
    assert world.mv == world.sources.contents()


def test_a_part_is_processed_in_its_place_and_not_when_the_last_one_comes() -> None:
    """The history that Example 4's holding queue gets wrong."""
    world = played()
    world.deliver(part_of(world.sources.commit(("x.r", -1, (1, 2))), "T1", 2))
    world.deliver(world.sources.commit(("x.r", 1, (1, 3))))
    world.deliver(part_of(world.sources.commit(("y.s", -1, (3, 4))), "T1", 2))
    world.settle()
    assert world.mv == world.sources.contents() == {(1, 3, 5): 1}


def test_a_part_that_changes_nothing_here_is_waited_for_all_the_same() -> None:
    world = played()
    first = part_of(world.sources.commit(("x.r", 1, (8, 9))), "T1", 2)
    idle = first.runs[0].model_copy(update={"idle": ("v",)})
    world.deliver(first.model_copy(update={"runs": (idle,)}))
    world.deliver(world.sources.commit(("y.s", -1, (3, 4))))
    assert (world.manager.tt, world.sent) == ({"T1": 1}, [])
    world.deliver(part_of(world.sources.commit(("y.s", -1, (3, 5))), "T1", 2))
    assert [one[:2] for one in world.sent] == [(2, 3)]


def test_two_globals_whose_parts_are_interleaved_end_together() -> None:
    world = played()
    deletions = [("y.s", -1, (3, 4)), ("x.r", -1, (1, 2)), ("y.s", -1, (3, 5)), ("x.r", 1, (5, 5))]
    for deletion, id_ in zip(deletions, ("T1", "T2", "T2", "T1"), strict=True):
        world.deliver(part_of(world.sources.commit(deletion), id_, 2))
    world.settle()
    assert [one[:2] for one in world.sent] == [(1, 4)]


def test_parts_in_one_message_need_no_waiting() -> None:
    world = played()
    first = part_of(world.sources.commit(("y.s", -1, (3, 4))), "T1", 2)
    second = part_of(world.sources.commit(("x.r", -1, (1, 2))), "T1", 2)
    world.deliver(one_message(world.operators, first, second))
    assert world.sent == [(1, 2, False, {})]
    assert world.manager.globals == {}


@pytest.mark.parametrize("gate", [True, False])
def test_without_parts_it_is_t_strobe(gate: bool) -> None:
    worlds = [played(partial(make, gate=gate)) for make in (GStrobe, Strobe)]
    for world in worlds:
        world.deliver(world.sources.commit(("x.r", 1, (6, 3)), ("y.s", 1, (2, 2))))
        world.deliver(world.sources.commit(("y.s", -1, (3, 4))))
        world.settle()
        world.deliver(world.sources.commit(("x.r", -1, (6, 3)), ("x.r", 1, (6, 2))))
        world.settle()
    assert worlds[0].sent == worlds[1].sent
    assert worlds[0].mv == worlds[0].sources.contents()


def test_parts_out_of_their_protocol_are_refused_before_anything_changes() -> None:
    world = played()
    world.deliver(part_of(world.sources.commit(("y.s", -1, (3, 4))), "T1", 2))
    message = world.sources.commit(("x.r", -1, (1, 2)))
    more = part_of(message, "T1", 3)
    beyond = more.model_copy(update={"parts": (more.parts[0].model_copy(update={"number": 9}),)})
    twice = more.model_copy(update={"parts": more.parts * 2})
    single = part_of(message, "T3", 0)
    for bad in (more, beyond, twice, single):
        with pytest.raises(ProtocolError):
            world.deliver(bad)
    assert (world.manager.tt, world.manager.progress.number) == ({"T1": 1}, 1)
    world.deliver(part_of(message, "T1", 2))
    assert world.manager.tt == {}
