"""What the Strobe family's managers refuse, and that nothing has changed when they did."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from streaming.algebra.source_queries import Answer
from streaming.algebra.tree import Relation
from streaming.durable import as_json
from streaming.errors import FrescoError, ProtocolError
from streaming.messages import Control, Updates
from streaming.viewmanagers.asking.c_strobe import CStrobe
from streaming.viewmanagers.asking.g_strobe import GStrobe
from streaming.viewmanagers.asking.strobe import Strobe
from streaming.viewmanagers.base import ManagedView
from tests.askedsources import tables, view
from tests.strobeworld import Make, Played

R = tables(x__r="a b", y__s="b c")
JOIN = view("SELECT r.a, r.b, s.c FROM x.r r JOIN y.s s ON r.b = s.b", R)

managers = pytest.mark.parametrize(
    "make",
    [Strobe, partial(Strobe, gate=False), GStrobe, CStrobe, partial(CStrobe, period=2)],
    ids=["strobe", "strobe without a gate", "g_strobe", "c_strobe", "periodic"],
)


def busy(make: Make) -> Played:
    """A manager with an open query, a held deletion and a held insertion."""
    world = Played(make, JOIN, R, {"x.r": [(1, 2)]})
    world.deliver(world.sources.commit(("y.s", 1, (2, 3))))
    world.deliver(world.sources.commit(("x.r", -1, (1, 2))))
    world.deliver(world.sources.commit(("x.r", 1, (5, 2))))
    return world


def state(world: Played) -> Any:
    """The snapshot with the rows themselves in place of references."""

    def opened(value: Any) -> Any:
        if isinstance(value, dict):
            if value.keys() == {"rows", "ipc", "path", "sha256"}:
                return world.operators.packed[int(value["path"])]
            return {key: opened(each) for key, each in value.items()}
        return [opened(each) for each in value] if isinstance(value, list) else value

    return opened(as_json(world.manager.snapshot()))


def broken(updates: Updates) -> dict[str, Updates]:
    run = updates.runs[0]
    tainted = Control(number=updates.last + 1, relation="x.r", kind="truncate")
    return {
        "another group": updates.model_copy(update={"group": "h"}),
        "a number from the past": updates.model_copy(update={"first": 3}),
        "a gap": updates.model_copy(update={"first": 5}),
        "runs with a hole": updates.model_copy(
            update={"last": 6, "runs": (run, run.model_copy(update={"first": 6, "last": 6}))}
        ),
        "runs that end early": updates.model_copy(update={"last": 5}),
        "a control of another message": updates.model_copy(update={"controls": (tainted,)}),
    }


@managers
def test_updates_out_of_their_protocol_raise_and_change_nothing(make: Make) -> None:
    world = busy(make)
    before = state(world)
    for why, message in broken(world.sources.commit(("x.r", 1, (7, 7)))).items():
        with pytest.raises(ProtocolError) as error:
            world.manager.handle(message)
        assert error.value.code == "PROTOCOL_VIEW_MANAGER", why
        assert "view v" in error.value.what, why
        assert "updates of" in error.value.what, why
        assert state(world) == before, why


@managers
def test_an_answer_without_a_query_and_one_of_another_view_change_nothing(make: Make) -> None:
    world = busy(make)
    before = state(world)
    open_id = next(iter(world.manager.uqs))
    for answer in (Answer("v", 99, {}), Answer("w", open_id, {})):
        with pytest.raises(ProtocolError) as error:
            world.manager.handle(answer)
        assert f"answer {answer.view}/{answer.id}" in error.value.what
        assert state(world) == before


@managers
def test_a_second_answer_to_one_query_is_refused(make: Make) -> None:
    world = busy(make)
    answer = Answer("v", next(iter(world.manager.uqs)), {})
    world.manager.handle(answer)
    before = state(world)
    with pytest.raises(ProtocolError):
        world.manager.handle(answer)
    assert state(world) == before


@managers
def test_a_snapshot_of_another_view_is_refused(make: Make) -> None:
    world = busy(make)
    before = state(world)
    with pytest.raises(ProtocolError):
        world.manager.restore({**world.manager.snapshot(), "view": "w"})
    assert state(world) == before


@managers
def test_a_restored_manager_goes_on_as_the_one_that_was_never_stopped(make: Make) -> None:
    stopped, other = busy(make), busy(make)
    stopped._restarts = True
    stopped.restart()
    assert state(stopped) == state(other)
    for world in (stopped, other):
        world.settle()
    assert stopped.sent == other.sent
    assert stopped.mv == stopped.sources.contents() == {(5, 2, 3): 1}
    assert state(stopped) == state(other)


@managers
def test_views_without_keys_and_self_joins_are_refused_at_once(make: Make) -> None:
    keys = {name: relation.key for name, relation in R.items()}
    world = busy(make)
    for sql, code in (
        ("SELECT r.a, s.c FROM x.r r JOIN y.s s ON r.b = s.b", "VIEW_KEY_MISSING"),
        ("SELECT p.a, q.a AS a2 FROM x.r p JOIN x.r q ON p.b = q.a", "VIEW_SELF_JOIN"),
        ("SELECT a, count(*) AS n FROM x.r GROUP BY a", "VIEW_NOT_PSJ"),
    ):
        with pytest.raises(FrescoError) as error:
            make(ManagedView("v", "g", view(sql, R)), world.operators, keys)
        assert error.value.code == code
    bare = {"x.r": Relation("x.r", R["x.r"].schema), "y.s": R["y.s"]}
    with pytest.raises(FrescoError) as error:
        make(
            ManagedView("v", "g", JOIN), world.operators, {name: r.key for name, r in bare.items()}
        )
    assert "x.r has no primary key" in error.value.what
