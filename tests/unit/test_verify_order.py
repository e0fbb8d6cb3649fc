"""`verify` finds epochs that are a state of no schedule equivalent to the sources' (MVC 4)."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from recorded_views import Recorded, Rows

from streaming.algebra.tree import Relation
from streaming.messages import Control
from streaming.proof.conflict_order import Touch, overtaken
from streaming.proof.recorded_levels import Overtaken
from streaming.proof.verdicts import Judged, Verdict, verify_pipeline
from streaming.scalars.expression import Column
from streaming.warehouse.epoch import Epoch, merge_runs

PAIR = (Column("id", "int"), Column("state", "string"))


def relation(name: str, *key: int) -> Relation:
    return Relation(f"s.{name}", PAIR, key)


def line(verdict: Verdict, name: str) -> Judged:
    return next(one for one in verdict.lines if one.name == name)


def judged(
    folder: Path,
    views: Sequence[str],
    touched: Sequence[Sequence[tuple[str, int]]],
    epochs: Sequence[int],
    suspended: dict[str, int] | None = None,
    controls: Sequence[Control] = (),
    keyed: bool = True,
) -> Verdict:
    """What `verify` says where each number of `epochs` is one epoch, number 0 being the first.

    Args:
        views: the relations that have a view each.
        touched: for each number from 1 on, the (relation, id) to which it adds a row.
        suspended: view -> its last good number, from the second epoch on.
    """
    names = sorted({*views, *(name for rows in touched for name, _ in rows)})
    updates: dict[str, list[Sequence[object]]] = {f"s.{name}": [] for name in names}
    for number, rows in enumerate(touched, start=1):
        for name, id_ in rows:
            updates[f"s.{name}"].append((number, 1, id_, f"at {number}" if keyed else "same"))
    made = Recorded(
        folder,
        [relation(name, *(0,) * keyed) for name in names],
        {f"over_{name}": f"SELECT id, state FROM s.{name}" for name in views},
    )
    made.record(updates, controls)
    made.publish(0, 0, {})
    for number in epochs:
        changes = {
            f"over_{name}": [row for row in updates[f"s.{name}"] if row[0] == number]
            for name in views
            if number <= (suspended or {}).get(f"over_{name}", number)
        }
        made.publish(number, number, changes, suspended=suspended or {})
    return verify_pipeline(folder)


def test_an_order_that_is_archived_before_it_moved_stands_in_two_views(tmp_path: Path) -> None:
    """DESIGN 5: open (0), moving (1), archived (2); 2 is published first."""
    states = {name: f"SELECT id FROM s.orders WHERE state = '{name}'" for name in ("open", "filed")}
    made = Recorded(tmp_path, [relation("orders", 0)], states)
    moves: Rows = [
        (0, 1, 7, "open"),
        (1, -1, 7, "open"), (1, 1, 7, "moving"),
        (2, -1, 7, "moving"), (2, 1, 7, "filed"),
    ]  # fmt: skip
    made.record({"s.orders": moves})
    made.publish(0, 0, {"open": [(0, 1, 7)]})
    made.publish(2, 2, {"filed": [(2, 1, 7)]})
    made.publish(1, 1, {"open": [(1, -1, 7)]})
    verdict = verify_pipeline(tmp_path)
    group = line(verdict, "g")
    assert not verdict.holds and not group.holds
    assert group.achieved == "convergent", "the last epoch is right again"
    assert group.witness == Overtaken(2, 1, 2, "s.orders", (7,))
    assert str(group.witness) == (
        "epoch 2 covers transaction 2 and not 1, which comes before it: row (7,) of s.orders"
    )


def test_rows_that_lost_a_suspended_view_and_overtook_by_it(tmp_path: Path) -> None:
    """T1 on q and r, T2 on q and s: the view over q is suspended, and T2 is published first."""
    rows = [[("q", 1), ("r", 1)], [("q", 1), ("s", 1)]]
    verdict = judged(tmp_path, ["q", "r", "s"], rows, [2, 1], suspended={"over_q": 0})
    assert line(verdict, "g").witness == Overtaken(2, 1, 2, "s.q", (1,))
    assert not verdict.holds


def test_a_dependent_submission_that_forgot_a_relation_no_view_reads(tmp_path: Path) -> None:
    """T1 on r; T2 on r and q; T3 on q and s, and q is read by no view: T3 goes before T2."""
    rows = [[("r", 1)], [("r", 1), ("q", 4)], [("q", 4), ("s", 1)]]
    verdict = judged(tmp_path, ["r", "s"], rows, [1, 3, 2])
    assert line(verdict, "g").witness == Overtaken(3, 2, 3, "s.q", (4,))


def test_the_order_goes_on_through_a_transaction_that_no_view_shows(tmp_path: Path) -> None:
    rows = [[("r", 1), ("q", 4)], [("q", 4), ("p", 2)], [("p", 2), ("s", 1)]]
    verdict = judged(tmp_path, ["r", "s"], rows, [3, 1, 2])
    assert line(verdict, "g").witness == Overtaken(2, 1, 3, "s.q", (4,))


def test_transactions_on_different_rows_may_overtake(tmp_path: Path) -> None:
    rows = [[("q", 1), ("r", 1)], [("q", 2), ("s", 1)]]
    verdict = judged(tmp_path, ["q", "r", "s"], rows, [2, 1])
    assert verdict.holds, verdict
    assert line(verdict, "g").achieved == "complete"


def test_a_transaction_that_no_view_shows_may_come_at_any_time(tmp_path: Path) -> None:
    assert judged(tmp_path, ["s"], [[("q", 1)], [("q", 1), ("s", 1)]], [2, 1]).holds


def test_without_a_key_the_whole_row_is_in_order(tmp_path: Path) -> None:
    rows = [[("q", 1), ("r", 1)], [("q", 1), ("s", 1)]]
    verdict = judged(tmp_path, ["r", "s"], rows, [2, 1], keyed=False)
    assert line(verdict, "g").witness == Overtaken(2, 1, 2, "s.q", (1, "same"))


@pytest.mark.parametrize(("truncated", "key"), [(1, (2,)), (2, (1,))])
def test_a_truncate_is_in_order_with_every_row_of_its_relation(
    tmp_path: Path, truncated: int, key: tuple[object, ...]
) -> None:
    """One of two transactions on different rows of q empties it too."""
    rows = [[("q", 1), ("r", 1)], [("q", 2), ("s", 1)]]
    control = Control(number=truncated, relation="s.q", kind="truncate")
    verdict = judged(tmp_path, ["r", "s"], rows, [2, 1], controls=[control])
    assert line(verdict, "g").witness == Overtaken(2, 1, 2, "s.q", key)


def test_an_epoch_ahead_of_a_truncate_is_compared_all_the_same(tmp_path: Path) -> None:
    """Number 1 is of r, number 2 empties q: they commute, and the epoch that covers 0 and 2 counts."""
    made = Recorded(
        tmp_path,
        [relation("q", 0), relation("r", 0)],
        {"over_q": "SELECT id FROM s.q", "over_r": "SELECT id FROM s.r"},
    )
    empty = Control(number=2, relation="s.q", kind="truncate")
    made.record({"s.q": [(0, 1, 5, "x")], "s.r": [(1, 1, 6, "x")]}, [empty])
    made.publish(0, 0, {"over_q": [(0, 1, 5)]})
    made.publish(2, 2, {"over_q": [(2, -1, 5)]})
    made.publish(1, 1, {"over_r": [(1, 1, 6)]})
    verdict = verify_pipeline(tmp_path)
    assert verdict.holds and line(verdict, "over_q").epochs == 3
    wrong = Recorded(
        tmp_path / "wrong",
        [relation("q", 0), relation("r", 0)],
        {"over_q": "SELECT id FROM s.q", "over_r": "SELECT id FROM s.r"},
    )
    wrong.record({"s.q": [(0, 1, 5, "x")], "s.r": [(1, 1, 6, "x")]}, [empty])
    wrong.publish(0, 0, {"over_q": [(0, 1, 5)]})
    wrong.publish(2, 2, {})
    wrong.publish(1, 1, {"over_q": [(1, -1, 5)], "over_r": [(1, 1, 6)]})
    assert not line(verify_pipeline(tmp_path / "wrong"), "over_q").holds


# The rule itself, against all schedules -------------------------------------------------------------


def schedules(touched: Sequence[frozenset[Touch]]) -> set[tuple[int, ...]]:
    """Every order of the numbers that exchanging neighbours which share no row leads to."""

    def share(a: int, b: int) -> bool:
        return any(
            r == s and (k == m or None in (k, m)) for r, k in touched[a] for s, m in touched[b]
        )

    found = {tuple(range(len(touched)))}
    left = list(found)
    while left:
        order = left.pop()
        for at, (a, b) in enumerate(pairwise(order)):
            other = (*order[:at], b, a, *order[at + 2 :])
            if not share(a, b) and other not in found:
                found.add(other)
                left.append(other)
    return found


def is_source_state(
    covered: frozenset[int], touched: Sequence[frozenset[Touch]], shown: set[str]
) -> bool:
    """Some schedule has a prefix with just those of the transactions that the views show."""
    seen = {n for n, rows in enumerate(touched) if any(name in shown for name, _ in rows)}
    prefixes = {
        frozenset(order[:length]) & seen
        for order in schedules(touched)
        for length in range(len(order) + 1)
    }
    return covered & seen in prefixes


def test_a_covered_set_is_told_exactly_when_no_equivalent_schedule_has_it() -> None:
    seed = int(os.environ.get("FRESCO_SEED") or random.SystemRandom().randrange(2**32))
    print(f"FRESCO_SEED={seed}")
    chance = random.Random(seed)
    told = 0
    for _ in range(400):
        rows: list[Touch] = [(name, key) for name in "pqr" for key in ((1,), (2,), None)]
        weights = [3, 3, 1] * 3
        touched = [
            frozenset(chance.choices(rows, weights, k=chance.choice((0, 1, 1, 2, 2))))
            for _ in range(6)
        ]
        shown = {name for name in "pqr" if chance.random() < 0.7}
        covered = frozenset(n for n in range(6) if chance.random() < 0.6)
        runs = merge_runs((n, n) for n in covered)
        frontier = runs[0][1] if runs and runs[0][0] == 0 else -1
        found = overtaken(Epoch("g", 1, (), runs, frontier), dict(enumerate(touched)), shown)
        wrong = not is_source_state(covered, touched, shown)
        assert (found is not None) == wrong, (touched, shown, covered, found)
        if found is not None:
            told += 1
            assert found.number not in covered and found.covered in covered
            assert found.number < found.covered
    assert 40 < told < 360
