"""SWEEP as ryco-pyco's mediators use it: figure 9's ViewChange, and Example 4's two views.

The paper prints no numbers for figure 9; rows are put in so that every intermediate state shows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streaming.algebra.bag import Numbered, flat
from streaming.algebra.source_queries import Answer, Query, SourceAnswer, SourceQuery
from streaming.ask.processor import QueryProcessor
from streaming.messages import ActionList, Updates
from streaming.viewmanagers.asking.holding_queue import HeldBatch
from streaming.viewmanagers.asking.sweep import Sweep, SweepInHand, SweepManager
from streaming.viewmanagers.base import ManagedView
from tests.askedsources import Sources, tables, view

CHAIN = tables(x__s1="a b", y__s2="b c", z__s3="c d")
CHAIN_VIEW = ManagedView(
    "v",
    "g",
    view(
        "SELECT s1.a, s2.b, s2.c, s3.d FROM x.s1 s1 JOIN y.s2 s2 ON s1.b = s2.b"
        " JOIN z.s3 s3 ON s2.c = s3.c",
        CHAIN,
    ),
)


class Mediator:
    """A manager and its query processor; statements go to the sources when a test says so."""

    def __init__(
        self, spec: ManagedView, kind: type[SweepManager[Numbered]] = SweepManager, **rows: Any
    ):
        initial = {name.replace("__", "."): found for name, found in rows.items()}
        self.sources = Sources(spec, initial)
        self.manager = kind(spec, self.sources.operators)
        self.processor = QueryProcessor(self.manager.psj, self.sources.operators)
        self.statements: list[SourceQuery[Numbered]] = []
        self.lists: list[tuple[int, int, bool, dict[Any, int]]] = []
        self.deliver(self.sources.published[0])

    def deliver(self, message: Updates | SourceAnswer[Numbered]) -> None:
        queue: list[Any] = [message]
        while queue:
            each = queue.pop(0)
            match each:
                case Updates() | Answer():
                    queue += self.manager.handle(each)
                case Query() | SourceAnswer():
                    queue += self.processor.handle(each)
                case SourceQuery():
                    self.statements.append(each)
                case ActionList():
                    delta = {} if each.delta is None else self.sources.operators.open(each.delta)
                    self.lists.append((each.first, each.last, each.complete, flat(delta)))

    def ask(self) -> str:
        """The next statement is answered at its source's state of the moment; returns the source."""
        statement = self.statements.pop(0)
        self.deliver(self.sources.answer(statement))
        return statement.source

    @property
    def sweep(self) -> Sweep[Numbered]:
        assert self.manager.work is not None
        return self.manager.work.sweeps[0]


def test_figure_9_left_pass_then_right_pass_without_concurrent_updates() -> None:
    mediator = Mediator(CHAIN_VIEW, x__s1=[(1, 2)], z__s3=[(3, 4), (3, 5)])
    assert mediator.lists == [(0, 0, True, {})]
    mediator.deliver(mediator.sources.commit(("y.s2", 1, (2, 3))))
    assert mediator.sweep.have == (1,)
    assert flat(mediator.sweep.temp) == {(2, 3): 1}, "dV = dS"
    assert mediator.sweep.order == (0, 2)
    assert mediator.ask() == "x", "left: j = UpdateSource - 1"
    assert mediator.sweep.have == (0, 1)
    assert flat(mediator.sweep.temp) == {(1, 2, 2, 3): 1}
    assert mediator.ask() == "z", "right: j = UpdateSource + 1"
    assert mediator.lists[1:] == [(1, 1, True, {(1, 2, 3, 4): 1, (1, 2, 3, 5): 1})]
    assert not mediator.manager.umq


def test_figure_9_the_passes_go_away_from_the_changed_relation() -> None:
    rows = {"y__s2": [(2, 3)], "z__s3": [(3, 4)]}
    mediator = Mediator(CHAIN_VIEW, **rows)
    mediator.deliver(mediator.sources.commit(("x.s1", 1, (1, 2))))
    assert [mediator.ask(), mediator.ask()] == ["y", "z"], "right pass only"
    mediator.deliver(mediator.sources.commit(("z.s3", 1, (3, 5))))
    assert [mediator.ask(), mediator.ask()] == ["y", "x"], "left pass only, nearest first"
    assert mediator.lists[1:] == [(1, 1, True, {(1, 2, 3, 4): 1}), (2, 2, True, {(1, 2, 3, 5): 1})]


def test_figure_9_local_compensation_removes_concurrent_updates_of_the_relation_asked() -> None:
    mediator = Mediator(CHAIN_VIEW, x__s1=[(1, 2)], z__s3=[(3, 4)])
    mediator.deliver(mediator.sources.commit(("y.s2", 1, (2, 3))))
    mediator.deliver(mediator.sources.commit(("x.s1", -1, (1, 2)), ("x.s1", 1, (7, 2))))
    assert mediator.ask() == "x", "x has (7,2) by now"
    assert flat(mediator.sweep.temp) == {(1, 2, 2, 3): 1}, "(7,2) taken off, (1,2) put back"
    mediator.deliver(mediator.sources.commit(("z.s3", 1, (3, 9))))
    mediator.deliver(mediator.sources.commit(("z.s3", -1, (3, 4))))
    assert mediator.manager.work.batch.units == ((1, 1),)
    assert [one.change.first for one in mediator.manager.umq.held] == [2, 3, 4]
    assert mediator.ask() == "z", "z has only (3,9) by now"
    assert mediator.lists[1:] == [(1, 1, True, {(1, 2, 3, 4): 1})], "as if nothing had come between"
    while mediator.statements:
        mediator.ask()
    assert mediator.lists[2:] == [
        (2, 2, True, {(1, 2, 3, 4): -1, (7, 2, 3, 4): 1}),
        (3, 3, True, {(7, 2, 3, 9): 1}),
        (4, 4, True, {(7, 2, 3, 4): -1}),
    ]


BASES = tables(x__b1="a", y__b2="a")


def join_of_bases(name: str) -> ManagedView:
    return ManagedView(
        name, "g", view("SELECT b1.a FROM x.b1 b1 JOIN y.b2 b2 ON b1.a = b2.a", BASES)
    )


def test_example_4_both_views_follow_the_one_update_message_order() -> None:
    """dV/11 has only the effect of dB1/11, dV/21 that of both, whenever the answers are computed."""
    for answered_between in (True, False):
        mediator = Mediator(join_of_bases("v1"), y__b2=[(1,)])
        mediator.deliver(mediator.sources.commit(("x.b1", 1, (1,))))
        if answered_between:
            assert mediator.ask() == "y"
        mediator.deliver(mediator.sources.commit(("y.b2", 1, (1,))))
        while mediator.statements:
            mediator.ask()
        assert mediator.lists[1:] == [(1, 1, True, {(1,): 1}), (2, 2, True, {(1,): 1})]


class AsPrinted(SweepManager[Numbered]):
    """Figure 9 word by word: the updates subtracted are those of the update's own source."""

    def compensated(self, work: SweepInHand[Numbered], place: int, rows: Numbered) -> Numbered:
        (update_source,) = work.batch.change.deltas
        return super().compensated(work, place, rows) if place == update_source else rows


def test_figure_9_as_printed_counts_a_concurrent_update_twice() -> None:
    for kind, total in ((SweepManager, 1), (AsPrinted, 2)):
        mediator = Mediator(join_of_bases("v"), kind)
        mediator.deliver(mediator.sources.commit(("x.b1", 1, (1,))))
        mediator.deliver(mediator.sources.commit(("y.b2", 1, (1,))))
        while mediator.statements:
            mediator.ask()
        counts = [delta.get((1,), 0) for _, _, _, delta in mediator.lists]
        assert sum(counts) == total
    assert mediator.sources.states[-1] == {(1,): 1}


class InParallel(SweepManager[Numbered]):
    """Section 3.3's "in parallel": each changed parent is swept as if the others were done."""

    def _begun(self, first: int, batch: HeldBatch[Numbered]) -> SweepInHand[Numbered]:
        work = super()._begun(first, batch)
        every = frozenset(self.psj.places)
        return replace(work, sweeps=tuple(replace(sweep, new=every) for sweep in work.sweeps))


def test_parents_changed_under_one_du_id_must_be_swept_one_after_the_other() -> None:
    for kind, total in ((SweepManager, 1), (InParallel, 2)):
        mediator = Mediator(join_of_bases("v"), kind)
        mediator.deliver(mediator.sources.commit(("x.b1", 1, (1,)), ("y.b2", 1, (1,))))
        while mediator.statements:
            mediator.ask()
        (_, (first, last, complete, delta)) = mediator.lists
        assert (first, last, complete, delta) == (1, 1, True, {(1,): total})
    assert mediator.sources.states[-1] == {(1,): 1}
