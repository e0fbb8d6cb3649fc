"""Copies of chosen relations: what is asked of them alone is answered at home (strobe-family 9)."""

from __future__ import annotations

from typing import Any

from streaming.algebra.bag import numbered
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.psj import psj_of
from streaming.algebra.source_queries import Copied, QueryPart, Seen, SourceQuery
from streaming.algebra.tree import Join, Scan
from streaming.ask.copies import CopiedCodec, Copies
from streaming.ask.state_codec import SeenCodec
from streaming.durable import as_json
from streaming.messages import Control, RelRun, SourceLog, Updates
from tests.askedsources import tables, view

RELATIONS = tables(x__r="a b", x__t="a d", y__s="b c")
TREE = view(
    "SELECT r.a, s.c, t.d FROM x.r r JOIN y.s s ON r.b = s.b JOIN x.t t ON r.a = t.a", RELATIONS
)
OPERATORS = NumberedBags()
R, S = (Scan(name, RELATIONS[name].schema) for name in ("x.r", "y.s"))


def copies(*copied: str) -> Copies[Any]:
    found: Copies[Any] = Copies(psj_of(TREE), OPERATORS, copied)
    found.add(updates(0, 0, {"x.r": {(0, (1, 1)): 1, (0, (2, 2)): 1}, "y.s": {(0, (1, 5)): 1}}))
    return found


def updates(first: int, last: int, rows: dict[str, Any], **more: Any) -> Updates:
    return Updates(
        group="g",
        first=first,
        last=last,
        runs=(RelRun(first=first, last=last, views=("v",)),),
        relations={name: OPERATORS.pack(each) for name, each in rows.items()},
        **{"delivered": {"x": first, "y": first}, **more},
    )


def statement(source: str, *trees: Any, **inputs: Any) -> SourceQuery[Any]:
    return SourceQuery("v", 1, 3, source, tuple(QueryPart(tree, inputs) for tree in trees))


def test_a_statement_over_copies_is_answered_with_all_that_was_handed_on() -> None:
    found = copies("x.r")
    found.add(updates(1, 2, {"x.r": {(1, (3, 1)): 1, (2, (1, 1)): -1}}, delivered={"x": 2, "y": 0}))
    known = Scan("left", RELATIONS["y.s"].schema)
    join = Join(known, R, ((0, 1),), None)
    answer = found.answer(statement("x", R, join, left={(7, (1, 5)): 1}))
    assert answer is not None
    assert (answer.view, answer.id, answer.step, answer.source) == ("v", 1, 3, "x")
    assert answer.rows == (
        numbered({(2, 2): 1, (3, 1): 1}),
        {(7, (1, 5, 3, 1)): 1},
    )
    assert answer.state == Copied(2, frozenset(), 2, whole=False)
    assert found.answered == 1


def test_what_asks_for_another_relation_too_travels_as_a_whole() -> None:
    t = Scan("x.t", RELATIONS["x.t"].schema)
    assert copies("x.r").answer(statement("x", R, t)) is None
    assert copies("x.r").answer(statement("x", Join(R, t, ((0, 0),), None))) is None
    assert copies("x.r").answer(statement("y", S)) is None
    assert copies("x.r", "x.t").answer(statement("x", R, t)) is not None
    probe = SourceQuery("v", 0, 1, "x", ())
    assert copies("x.r").answer(probe) is None, "it asks for the source's state"
    assert copies().answer(statement("x", R)) is None


def test_a_truncate_takes_what_came_before_it() -> None:
    found = copies("x.r", "y.s")
    rows = {(1, (3, 3)): 1, (2, (4, 4)): 1, (3, (4, 4)): -1, (3, (5, 5)): 1}
    truncate = Control(number=2, relation="x.r", kind="truncate")
    found.add(updates(1, 3, {"x.r": rows}, controls=(truncate,)))
    assert found.rows["x.r"] == numbered({(5, 5): 1})
    assert found.rows["y.s"] == numbered({(1, 5): 1})


def test_the_state_names_what_was_numbered_out_of_the_logs_order() -> None:
    """Where global transactions cross, y2 may have a number before y1 has."""
    found = copies("y.s")
    assert found.states["y"].whole
    log = SourceLog(numbers=(1,), transactions=("y2",), positions=(2,))
    found.add(updates(1, 1, {}, logs={"y": log}, delivered={"y": 0}))
    state = found.states["y"]
    assert [state.saw(f"y{n}", n) for n in (1, 2, 3)] == [False, True, False]
    assert state.upto == 2
    log = SourceLog(numbers=(2,), transactions=("y1",), positions=(1,))
    found.add(updates(2, 2, {}, logs={"y": log}, delivered={"y": 2}))
    assert found.states["y"] == Copied(2, frozenset(), 2, whole=True)


def test_a_snapshot_brings_copies_and_states_back() -> None:
    found = copies("x.r")
    log = SourceLog(numbers=(1,), transactions=("x2",), positions=(2,))
    found.add(updates(1, 1, {"x.r": {(1, (9, 9)): 1}}, logs={"x": log}, delivered={"x": 0}))
    found.answer(statement("x", R))
    again: Copies[Any] = Copies(psj_of(TREE), OPERATORS, ("x.r",))
    again.restore(as_json(found.snapshot()))
    assert (again.rows, again.states) == (found.rows, found.states)
    assert again.answered == 1
    done = updates(2, 2, {}, delivered={"x": 2})
    again.add(done)
    found.add(done)
    assert again.states == found.states == {"x": Copied(2, frozenset(), 2, whole=False)}


def test_states_of_copies_and_of_sources_go_through_one_codec() -> None:
    codec = CopiedCodec(SeenCodec())
    for state in (Copied(3, frozenset({"y5"}), 5, True), Seen(4, frozenset({"y2"}))):
        assert codec.back(as_json(codec.note(state))) == state
