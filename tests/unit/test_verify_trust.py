"""`verify` takes nothing on trust: what epochs say of themselves, and retractions at every number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recorded_views import Recorded, Rows

from streaming.algebra.tree import Relation
from streaming.messages import Control
from streaming.proof.verdicts import Verdict, verify_pipeline
from streaming.scalars.expression import Column

Q = Relation("s.q", (Column("id", "int"), Column("at", "timestamp"), Column("day", "date")), (0,))
FAR = (-100_000_000_000_000_000, -800_000)
"""A moment and a day before the year 1, counted from 1970."""


def recorded(folder: Path, updates: Rows, controls: list[Control] | None = None) -> Recorded:
    made = Recorded(folder, [Q], {"v": "SELECT id FROM s.q", "w": "SELECT id AS i FROM s.q"})
    made.record({"s.q": updates}, controls or [])
    return made


def steps(folder: Path, *said: dict[str, Any]) -> Verdict:
    """Numbers 0, 1, 2 add a row each, one epoch for each, which says these things of itself."""
    rows = [(n, 1, n, None, None) for n in range(len(said))]
    made = recorded(folder, rows)
    for number, one in enumerate(said):
        made.publish(number, number, {v: [(number, 1, number)] for v in "vw"}, **one)
    return verify_pipeline(folder)


def test_epochs_that_go_on_from_each_other_have_no_problem(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = [{"positions": {"s": str(n)}} for n in (9, 9, 10)]
    assert steps(tmp_path, *said).holds


PROBLEMS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a frontier beyond what is covered": (
        [{}, {"frontier": 2}, {}], "group g: epoch 2 says frontier 2, and covers 0..1",
    ),
    "a frontier below what is covered": (
        [{}, {}, {"frontier": 1}], "group g: epoch 3 says frontier 1, and covers 0..2",
    ),
    "runs that overlap": (
        [{}, {"covered": ((0, 1), (1, 1))}, {}],
        "group g: epoch 2 covers 0..1, 1..1, which overlap or are out of order",
    ),
    "an epoch that adds what was there": (
        [{}, {"added": ((0, 1),)}, {}], "group g: epoch 2 adds 0..1, which epoch 1 has covered",
    ),
    "an epoch that adds less than it covers": (
        [{}, {}, {"added": ()}], "group g: epoch 3 says it adds  to 0..1, and covers 0..2",
    ),
    "a source that goes back": (
        [{"positions": {"s": "10"}}, {"positions": {"s": "9"}}, {"positions": {"s": "11"}}],
        "group g: epoch 2 has source s at 9, after 10",
    ),
    "a source that is forgotten": (
        [{"positions": {"s": "10"}}, {}, {}], "group g: epoch 2 has source s at None, after 10",
    ),
    "a view that was suspended earlier than it was": (
        [{}, {"suspended": {"v": 1}}, {"suspended": {"v": 0}}],
        "group g: epoch 3 has view v suspended after 0, not 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PROBLEMS)
def test_what_an_epoch_says_must_follow_from_the_one_before(tmp_path: Path, what: str) -> None:
    said, told = PROBLEMS[what]
    verdict = steps(tmp_path, *said)
    assert told in verdict.problems
    assert not verdict.holds


def test_an_epoch_must_not_cover_more_than_was_recorded(tmp_path: Path) -> None:
    made = Recorded(tmp_path, [Q], {"v": "SELECT id FROM s.q"})
    made.record({"s.q": [(0, 1, 1, None, None)]}, last=1)
    made.publish(0, 2, {"v": [(0, 1, 1)]})
    told = "group g: epoch 1 covers 2, and updates are recorded up to 1 only"
    assert verify_pipeline(tmp_path).problems == (told,)


def test_a_retraction_without_its_row_is_told_beside_a_truncate_at_every_number(
    tmp_path: Path,
) -> None:
    """A truncate empties its relation at its own number; it excuses nothing before or after."""
    updates: Rows = [
        (0, 1, 1, None, None),
        (1, -1, 8, None, None),
        (3, 1, 2, None, None),
        (4, -1, 1, None, None),
        (4, 1, 5, *FAR), (5, -2, 5, *FAR),
    ]  # fmt: skip
    made = recorded(tmp_path, updates, [Control(number=2, relation="s.q", kind="truncate")])
    made.publish(0, 5, {})
    problems = [one for one in verify_pipeline(tmp_path).problems if one.startswith("relation")]
    assert problems == [
        f"relation s.q: at number {number} a retraction finds no row {row} (it stands -1 times then)"
        for number, row in (
            (1, (8, None, None)),
            (4, (1, None, None)),
            (5, (5, "-1199-02-15 14:13:20+00:00", "-0221-09-04")),
        )
    ]


def test_a_suspended_view_that_does_not_stand_still_is_found(tmp_path: Path) -> None:
    """Its rows in the table are those of its last good number, at every later epoch."""
    made = recorded(tmp_path, [(n, 1, n, None, None) for n in range(3)])
    made.publish(0, 0, {v: [(0, 1, 0)] for v in "vw"})
    suspended = {"w": 0}
    made.publish(1, 1, {"v": [(1, 1, 1)]}, suspended=suspended)
    assert verify_pipeline(tmp_path).holds
    made.publish(2, 2, {"v": [(2, 1, 2)], "w": [(1, 1, 77)]}, suspended=suspended)
    (found,) = (one for one in verify_pipeline(tmp_path).lines if one.name == "w")
    assert not found.holds
    assert str(found.witness) == "number 0, epoch 3: (77,) expected 0, found 1"
