"""An answer that belongs inside a message is handed on between its two parts."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.algebra.source_queries import Seen, SourceAnswer
from streaming.ask.splitting import belongs_after, paced, split
from streaming.messages import Control, GlobalPart, RelRun, Rows, SourceLog, Updates
from tests.unit.test_fifo import adapter, answer, statement


def message(first: int, last: int, **more: Any) -> Updates:
    """Number n is y's transaction tn at position n."""
    numbers = tuple(range(first, last + 1))
    log = SourceLog(
        numbers=numbers, transactions=tuple(f"t{n}" for n in numbers), positions=numbers
    )
    return Updates(
        group="g",
        first=first,
        last=last,
        runs=(RelRun(first=first, last=last, views=("v",)),),
        relations={"y.s": Rows(rows=1, path="p", sha256="s")},
        logs={"y": log},
        delivered={"y": last, "x": 5},
        **more,
    )


def test_an_answer_that_saw_the_first_two_of_three_comes_after_these() -> None:
    channel = adapter()
    channel.handle(statement())
    assert channel.handle(answer(1, 2)) == []
    before, passed, after = channel.handle(message(1, 3))
    assert isinstance(before, Updates) and (before.first, before.last) == (1, 2)
    assert passed == SourceAnswer("v", 1, 1, "y", answer(1, 2).rows, Seen(2))
    assert isinstance(after, Updates) and (after.first, after.last) == (3, 3)
    assert before.relations == after.relations, "the rows are not copied"
    assert (before.delivered, after.delivered) == ({}, {"y": 3, "x": 5})
    assert channel.out == {} and channel.number == 3


def test_two_answers_that_are_held_cut_a_message_in_three() -> None:
    channel = adapter()
    channel.handle(statement(1))
    channel.handle(statement(2))
    channel.handle(answer(2, 3, id_=2))
    channel.handle(answer(1, 1))
    found = channel.handle(message(1, 4))
    briefs = [(m.first, m.last) if isinstance(m, Updates) else m.id for m in found]  # type: ignore[union-attr]
    assert briefs == [(1, 1), 1, (2, 3), 2, (4, 4)]


@pytest.mark.parametrize(
    ("state", "after"),
    [
        (Seen(0), 0),
        (Seen(2), 2),
        (Seen(3, frozenset({"t3"})), 2),
        (Seen(3, frozenset({"t2"})), None),
        (Seen(4), None),
        (Seen(9), None),
    ],
    ids=["none", "a prefix", "t3 is not visible yet", "no prefix", "all", "more than all"],
)
def test_where_an_answer_belongs(state: Seen, after: int | None) -> None:
    assert belongs_after(message(1, 4), "y", state) == after


def test_parts_of_one_number_are_not_parted() -> None:
    log = SourceLog(numbers=(1, 1), transactions=("t1", "t2"), positions=(1, 2))
    one = message(1, 1).model_copy(update={"logs": {"y": log}, "delivered": {"y": 2}})
    assert belongs_after(one, "y", Seen(1)) is None


def test_each_number_s_controls_runs_and_tags_stay_with_it() -> None:
    whole = message(
        1,
        4,
        controls=tuple(Control(number=n, relation="y.s", kind="truncate") for n in (1, 3)),
        parts=(GlobalPart(number=2, id="g", parts=2), GlobalPart(number=4, id="g", parts=2)),
    )
    runs = (RelRun(first=1, last=3, views=("v",)), RelRun(first=4, last=4, views=()))
    one, other = split(whole.model_copy(update={"runs": runs}), 2)
    assert [c.number for c in one.controls] == [1] and [c.number for c in other.controls] == [3]
    assert [(r.first, r.last) for r in one.runs] == [(1, 2)]
    assert [(r.first, r.last) for r in other.runs] == [(3, 3), (4, 4)]
    assert [p.number for p in one.parts] == [2] and [p.number for p in other.parts] == [4]
    assert (one.logs["y"].numbers, other.logs["y"].numbers) == ((1, 2), (3, 4))


def spans(found: tuple[tuple[Updates, ...], Updates | None]) -> list[tuple[int, int] | None]:
    """The numbers of the pieces, and last those of what waits."""
    pieces, later = found
    return [m and (m.first, m.last) for m in (*pieces, later)]


@pytest.mark.parametrize(
    ("state", "found"),
    [
        (Seen(4), [(1, 4), None]),
        (Seen(2), [(1, 2), (3, 4)]),
        (Seen(0), [(1, 4)]),
        (Seen(3, frozenset({"t2"})), [(1, 4), None]),
    ],
    ids=["all of it", "a prefix", "none of it", "no prefix: held as ever"],
)
def test_a_message_is_paced_by_the_state_that_answers_are_given_at(
    state: Seen, found: list[tuple[int, int] | None]
) -> None:
    assert spans(paced(message(1, 4), {"y": state})) == found


def test_an_answer_at_the_state_that_paces_passes_at_once() -> None:
    channel = adapter()
    (seen,), later = paced(message(1, 4), {"y": Seen(3, frozenset({"t3"}))})
    assert later is not None and seen.delivered == {"y": 2, "x": 5}
    assert not seen.cut and later.cut, "only the message's end is a cut"
    channel.handle(seen)
    channel.handle(statement())
    assert channel.handle(answer(1, 2)) == [answer(1, 2)]
    assert channel.handle(later) == [later]


def test_a_message_ends_at_the_state_of_each_of_its_sources() -> None:
    """Odd numbers are x's transactions, even ones y's; an answer of y at 4 waits for the second piece."""
    logs = {
        source: SourceLog(
            numbers=tuple(numbers),
            transactions=tuple(f"t{n}" for n in numbers),
            positions=tuple(numbers),
        )
        for source, numbers in (("x", (1, 3, 5)), ("y", (2, 4, 6)))
    }
    both = message(1, 6).model_copy(update={"logs": logs, "delivered": {"x": 5, "y": 6}})
    found = paced(both, {"x": Seen(1), "y": Seen(4)})
    assert spans(found) == [(1, 1), (2, 4), (5, 6)]
    assert [piece.delivered for piece in found[0]] == [{"x": 2, "y": 1}, {"x": 4, "y": 5}]
    channel = adapter()
    channel.handle(found[0][0])
    channel.handle(statement())
    held = answer(1, 4)
    assert channel.handle(held) == []
    assert channel.handle(found[0][1]) == [found[0][1], held]
