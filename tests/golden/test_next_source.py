"""strobe-family Example 1: next_source and source_evaluate, step by step.

r1, r2, r3 are at the sources x, y, z; V = r1 join r2 join r3; U2 is an update to r2. Then
next_source(Q) = (x, r1 join U2), and after A^1 next_source(A^1 join r3) = (z, A^1 join r3).
"""

from __future__ import annotations

from streaming.algebra.numbered import NumberedBags
from streaming.algebra.psj import LEFT, joined, psj_of
from streaming.algebra.source_queries import (
    Answer,
    Known,
    Query,
    Seen,
    SourceAnswer,
    SourceQuery,
    Term,
)
from streaming.ask.processor import QueryProcessor
from streaming.ask.working import Portion, Working
from tests.askedsources import tables, view

RELATIONS = tables(x__r1="a b", y__r2="b c", z__r3="c d")
PSJ = psj_of(
    view(
        "SELECT r1.a, r1.b, r2.c, r3.d FROM x.r1 r1 JOIN y.r2 r2 ON r1.b = r2.b"
        " JOIN z.r3 r3 ON r2.c = r3.c",
        RELATIONS,
    )
)
U2 = {(1, (2, 3)): 1}
"""insert(r2, [2,3]), number 1."""
Q = Query("v", 1, (Term(1, (Known((1,), U2),), (0, 2)),))


def processor(**statistics: int) -> QueryProcessor:
    rows = {name.replace("__", "."): count for name, count in statistics.items()}
    return QueryProcessor(PSJ, NumberedBags(), rows)


def test_example_1_next_source() -> None:
    route = processor().route
    working = Working(1, (Known((1,), U2),), (0, 2))
    assert route.next_source(working) == ("x", (Portion(((1,),), (0,)),))

    first = {(1, (1, 2, 2, 3)): 1}
    working = route.answered(working, (Portion(((1,),), (0,)),), (first,))
    assert working == Working(1, (Known((0, 1), first),), (2,))
    assert route.next_source(working) == ("z", (Portion(((0, 1),), (2,)),))

    second = {(1, (1, 2, 2, 3, 3, 4)): 1}
    working = route.answered(working, (Portion(((0, 1),), (2,)),), (second,))
    assert working == Working(1, (Known((0, 1, 2), second),), ())
    assert route.next_source(working) is None, "nil"


def test_example_1_source_evaluate() -> None:
    machine = processor()
    (first,) = machine.handle(Q)
    assert isinstance(first, SourceQuery)
    assert (first.id, first.step, first.source) == (1, 1, "x")
    (part,) = first.parts
    assert part.tree == joined(PSJ, (1,), (0,), base=True), "r1 join U2"
    assert part.inputs == {LEFT: U2}

    a1 = {(1, (1, 2, 2, 3)): 1}
    (second,) = machine.handle(SourceAnswer("v", 1, 1, "x", (a1,), Seen(4)))
    assert isinstance(second, SourceQuery)
    assert (second.id, second.step, second.source) == (1, 2, "z")
    (part,) = second.parts
    assert part.tree == joined(PSJ, (0, 1), (2,), base=True), "A1 join r3"
    assert part.inputs == {LEFT: a1}

    a2 = {(1, (1, 2, 2, 3, 3, 4)): 1}
    (answer,) = machine.handle(SourceAnswer("v", 1, 2, "z", (a2,), Seen(7)))
    assert answer == Answer("v", 1, {(1, (1, 2, 3, 4)): 1}, {"x": Seen(4), "z": Seen(7)})
    assert not machine.under_way


def test_alternatively_z_is_contacted_first_when_r3_is_known_to_be_smaller() -> None:
    (first,) = processor(x__r1=1000, z__r3=10).handle(Q)
    assert isinstance(first, SourceQuery)
    assert first.source == "z"
    assert first.parts[0].tree == joined(PSJ, (1,), (2,), base=True), "U2 join r3"
