"""hacid-slides: the correct case and the two anomalies under IVMA, the same histories under ECA; and
strobe-family Example 0, the anomaly over several sources. Numbers in brackets are the slides' events.

A leaf has only the columns its view uses: where V projects on W alone, r2[2,3] is known as [2].
"""

from __future__ import annotations

from typing import Any

from streaming.algebra.bag import Bag, Numbered, flat
from streaming.algebra.source_queries import Known, Term
from streaming.viewmanagers.asking.eca import EcaManager
from streaming.viewmanagers.asking.naive import NaiveManager
from tests.askedsources import tables, view
from tests.strobeworld import Played

R = tables(s__r1="w x", s__r2="x y")
V_W = view("SELECT r1.w FROM s.r1 r1 JOIN s.r2 r2 ON r1.x = r2.x", R)
V_WY = view("SELECT r1.w, r2.y FROM s.r1 r1 JOIN s.r2 r2 ON r1.x = r2.x", R)
INSERTION = ("s.r1", [(1, 2)]), ("s.r2", [])
DELETION = ("s.r1", [(1, 2)]), ("s.r2", [(2, 3)])


def ivma(tree: Any, *initial: tuple[str, list[Any]], **how: Any) -> Played:
    return Played(lambda spec, ops, keys: NaiveManager(spec, ops, **how), tree, R, dict(initial))


def eca(tree: Any, *initial: tuple[str, list[Any]]) -> Played:
    """As published: no gate."""
    return Played(lambda spec, ops, keys: EcaManager(spec, ops, gate=False), tree, R, dict(initial))


def rows(*found: tuple[Any, ...], sign: int = 1) -> Numbered:
    return {(0, row): sign for row in found}


def asked(played: Played, query: int) -> tuple[Term[Numbered], ...]:
    return played.queries[query - 1].terms


def uqs(played: Played) -> list[int]:
    return list(played.manager.uqs)


def collect(played: Played) -> Bag:
    return flat(played.manager.collect)


def test_the_correct_case_keeps_duplicates() -> None:
    for played in (
        ivma(V_W, ("s.r1", [(1, 2)]), ("s.r2", [(2, 4)])),
        eca(V_W, ("s.r1", [(1, 2)]), ("s.r2", [(2, 4)])),
    ):
        assert played.mv == {(1,): 1}
        u1 = played.sources.commit(("s.r2", 1, (2, 3)))  # (1)
        played.deliver(u1)  # (2)
        assert asked(played, 1) == (Term(1, (Known((1,), rows((2,))),), (0,)),), "(3)"
        assert played.mv == {(1,): 1}
        a1 = played.evaluate("s")  # (4)
        assert flat(a1.rows[0]) == {(1, 2, 2): 1}, "(5), not projected yet"
        played.deliver(a1)  # (6)
        assert played.mv == {(1,): 2}, "(7)"
        assert not uqs(played)


def test_the_insertion_anomaly_ivma_counts_4_twice() -> None:
    played = ivma(V_W, *INSERTION)
    assert played.mv == {}
    u1 = played.sources.commit(("s.r2", 1, (2, 3)))  # (1)
    played.deliver(u1)  # (2)
    assert asked(played, 1) == (Term(1, (Known((1,), rows((2,))),), (0,)),)
    u2 = played.sources.commit(("s.r1", 1, (4, 2)))  # (3)
    a1 = played.evaluate("s")  # (5), (8)
    played.deliver(u2)  # (6)
    assert asked(played, 2) == (Term(1, (Known((0,), rows((4, 2))),), (1,)),), "(7)"
    assert uqs(played) == [1, 2]
    played.deliver(a1)  # (9)
    assert played.mv == {(1,): 1, (4,): 1}, "(12): A1 = {[1], [4]}"
    a2 = played.evaluate("s")  # (10), (11)
    played.deliver(a2)  # (13)
    assert played.mv == {(1,): 1, (4,): 2}, "(14)"
    assert played.sources.contents() == {(1,): 1, (4,): 1}
    assert played.sent == [(1, 1, True, {(1,): 1, (4,): 1}), (2, 2, True, {(4,): 1})]


def test_the_insertion_anomaly_eca_compensates_q2() -> None:
    played = eca(V_W, *INSERTION)
    u1 = played.sources.commit(("s.r2", 1, (2, 3)))  # (1)
    played.deliver(u1)  # (2)
    q1 = (Term(1, (Known((1,), rows((2,))),), (0,)),)
    assert asked(played, 1) == q1, "(4): pi_W(r1 x [2,3])"
    assert (uqs(played), collect(played), played.mv) == ([1], {}, {})
    u2 = played.sources.commit(("s.r1", 1, (4, 2)))  # (3)
    a1 = played.evaluate("s")  # (5), (8)
    played.deliver(u2)  # (6)
    assert asked(played, 2) == (
        Term(1, (Known((0,), rows((4, 2))),), (1,)),
        Term(-1, (Known((1,), rows((2,))), Known((0,), rows((4, 2)))), ()),
    ), "(7): pi_W([4,2] x r2) - pi_W([4,2] x [2,3])"
    assert (uqs(played), collect(played), played.mv) == ([1, 2], {}, {})
    played.deliver(a1)  # (9)
    assert collect(played) == {(1,): 1, (4,): 1}, "(12)"
    assert (uqs(played), played.mv, played.sent) == ([2], {}, [])
    a2 = played.evaluate("s")  # (10), (11): {[4]} - {[4]}
    played.deliver(a2)  # (13)
    assert (uqs(played), collect(played)) == ([], {})
    assert played.mv == {(1,): 1, (4,): 1} == played.sources.contents()
    assert played.sent == [(1, 2, False, {(1,): 1, (4,): 1})]


def deletions(played: Played) -> None:
    """Both deletions are carried out before a query is evaluated."""
    u1 = played.sources.commit(("s.r1", -1, (1, 2)))
    u2 = played.sources.commit(("s.r2", -1, (2, 3)))
    played.deliver(u1)
    assert asked(played, 1) == (Term(1, (Known((0,), rows((1, 2), sign=-1)),), (1,)),)
    played.deliver(u2)


def test_the_deletion_anomaly_ivma_leaves_1_3() -> None:
    played = ivma(V_WY, *DELETION)
    assert played.mv == {(1, 3): 1}
    deletions(played)
    assert asked(played, 2) == (Term(1, (Known((1,), rows((2, 3), sign=-1)),), (0,)),)
    a1, a2 = played.evaluate("s"), played.evaluate("s")
    assert (a1.rows, a2.rows) == (({},), ({},))
    played.deliver(a1)
    assert played.mv == {(1, 3): 1}
    played.deliver(a2)
    assert played.mv == {(1, 3): 1}, "the anomaly"
    assert played.sources.contents() == {}


def test_the_deletion_anomaly_eca_ends_empty() -> None:
    played = eca(V_WY, *DELETION)
    deletions(played)
    assert asked(played, 2) == (
        Term(1, (Known((1,), rows((2, 3), sign=-1)),), (0,)),
        Term(-1, (Known((0,), rows((1, 2), sign=-1)), Known((1,), rows((2, 3), sign=-1))), ()),
    ), "(r1 x -[2,3]) - (-[1,2] x -[2,3])"
    assert (uqs(played), collect(played)) == ([1, 2], {})
    played.deliver(played.evaluate("s"))
    assert (uqs(played), collect(played), played.mv) == ([2], {}, {(1, 3): 1})
    played.deliver(played.evaluate("s"))
    assert (uqs(played), collect(played), played.mv) == ([], {}, {})
    assert played.sent == [(1, 2, False, {(1, 3): -1})]


E0 = tables(x__r1="a b", y__r2="b c", z__r3="c d")
CHAIN = view(
    "SELECT r1.a, r1.b, r2.c, r3.d FROM x.r1 r1 JOIN y.r2 r2 ON r1.b = r2.b"
    " JOIN z.r3 r3 ON r2.c = r3.c",
    E0,
)
E0_ROWS = {"x.r1": [(1, 2)], "z.r3": [(3, 4)]}


def example_0(deletions: str) -> Played:
    """Steps 1 to 3."""
    played = Played(
        lambda spec, ops, keys: NaiveManager(spec, ops, deletions=deletions), CHAIN, E0, E0_ROWS
    )
    assert played.mv == {}
    u1 = played.sources.commit(("y.r2", 1, (2, 3)))
    played.deliver(u1)
    assert [one.source for one in played.statements] == ["x"], "1: Q1^1 = r1 x [2,3]"
    a11 = played.evaluate("x")
    assert flat(a11.rows[0]) == {(1, 2, 2, 3): 1}
    played.deliver(a11)
    assert [one.source for one in played.statements] == ["z"], "2: Q1^2 = [1,2,3] x r3"
    u2 = played.sources.commit(("x.r1", -1, (1, 2)))
    played.deliver(u2)
    return played


def test_strobe_family_example_0_the_conventional_algorithm_ends_with_1_2_3_4() -> None:
    played = example_0(deletions="view")
    assert len(played.queries) == 1, "3: the view is empty, no action is taken for the deletion"
    assert (played.mv, played.sent) == ({}, [])
    a12 = played.evaluate("z")
    assert flat(a12.rows[0]) == {(1, 2, 2, 3, 3, 4): 1}
    played.deliver(a12)
    assert played.mv == {(1, 2, 3, 4): 1}, "4: incorrect"
    assert played.sources.contents() == {}
    assert played.sent == [(1, 1, True, {(1, 2, 3, 4): 1}), (2, 2, True, {})]


def test_example_0_with_signed_deletion_queries_shows_both_source_states() -> None:
    played = example_0(deletions="query")
    played.deliver(played.evaluate("z"))
    assert played.mv == {(1, 2, 3, 4): 1} == played.sources.states[1]
    played.settle()
    assert played.mv == {} == played.sources.states[2]
