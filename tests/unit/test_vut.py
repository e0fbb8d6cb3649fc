"""The view update table in runs: colours are read from one number per column."""

from __future__ import annotations

from streaming.merge.covered import Covered, merged
from streaming.merge.machine import MergeMachine
from streaming.merge.vut import VUT
from streaming.merge.vut_rows import Block, RelShape, Row
from streaming.messages import ActionList, Rel, RelRun, Rows

BOTH = RelShape((0, 1), (0, 1))
SECOND_IDLE = RelShape((0, 1), (0,))
FIRST = RelShape((0,), (0,))


def filled(*runs: tuple[int, int, RelShape], whole_columns: bool = False) -> tuple[VUT, list[Row]]:
    """A table of two columns with these runs in one block."""
    vut, block = VUT(2, whole_columns), Block(runs[-1][1])
    rows = [Row(*run) for run in runs]
    vut.add(rows)
    block.add(rows)
    vut.add_block(block)
    return vut, rows


def test_a_new_row_is_white_where_it_needs_a_list_red_where_it_is_idle_and_black_elsewhere() -> (
    None
):
    vut, _ = filled((0, 4, SECOND_IDLE), (5, 9, FIRST))
    assert [vut.cell(x, 3, SECOND_IDLE)[0] for x in (0, 1)] == ["w", "r"]
    assert [vut.cell(x, 7, FIRST)[0] for x in (0, 1)] == ["w", "b"]
    assert vut.white_cells() == 10


def test_a_list_paints_its_column_across_runs_and_splits_the_last_one() -> None:
    vut, (row, long) = filled((0, 4, BOTH), (5, 9, BOTH))
    assert vut.paint(0, 6) == 6
    assert list(vut.bands(row)) == [(0, 4)]
    assert list(vut.bands(long)) == [(5, 6), (7, 9)]
    assert (vut.first_white(0), vut.first_white(1)) == (7, 0)
    assert vut.white_cells() == 3 + 10
    assert vut.red(BOTH) == -1


def test_painting_where_nothing_is_white_says_so() -> None:
    vut, _ = filled((0, 4, FIRST))
    assert vut.paint(1, 4) is None
    assert vut.paint(0, 9) == 4
    assert vut.first_white(0) is None


def test_a_row_below_a_column_that_is_painted_already_is_red_at_once() -> None:
    vut = VUT(2)
    vut.paint(0, 6)
    block, rows = Block(9), [Row(0, 4, FIRST), Row(5, 9, FIRST)]
    vut.add(rows)
    block.add(rows)
    vut.add_block(block)
    assert vut.first_white(0) == 7


def test_a_row_is_blocked_once_by_each_row_right_above_it() -> None:
    _, (first, second, third) = filled((0, 0, FIRST), (1, 1, BOTH), (2, 2, BOTH))
    assert [row.blockers for row in (first, second, third)] == [0, 1, 1]
    assert (first.below, second.below) == ([second], [third])


def test_a_block_finds_its_busy_cells_by_number() -> None:
    block = Block(9)
    block.add([Row(0, 4, FIRST), Row(5, 6, BOTH), Row(7, 9, SECOND_IDLE)])
    assert [block.first_busy(1, number) for number in (0, 6, 7)] == [5, 6, None]
    assert [block.last_busy(1, 0, last) for last in (4, 5, 9)] == [None, 5, 6]
    assert block.last_busy(1, 6, 5) is None, "nothing lies between"
    assert block.busy_cells(0, 3) == 7


def test_gray_rows_are_forgotten() -> None:
    merge = MergeMachine("g", ("a", "b"))
    for start in range(0, 1_000, 10):
        runs = tuple(RelRun(first=n, last=n, views=("a",)) for n in range(start, start + 10))
        merge.handle(Rel(group="g", first=start, last=start + 9, runs=runs))
        merge.handle(ActionList(group="g", view="a", first=start, last=start + 9))
        merge.take_batch()
    assert merge.vut.rows() == []
    assert len(merge.vut._rows) <= 10
    assert not any(merge.vut.due) and not any(merge.vut.lists)


def test_ranges_merge_when_they_touch() -> None:
    assert merged([(5, 6), (0, 1), (2, 2), (8, 9)]) == [(0, 2), (5, 6), (8, 9)]


def test_covered_numbers_close_up_to_the_frontier() -> None:
    covered = Covered()
    covered.add(4, 5)
    covered.add(2, 2)
    assert (covered.frontier, covered.ahead) == (-1, [(2, 2), (4, 5)])
    covered.add(3, 3)
    assert covered.ahead == [(2, 5)]
    covered.add(8, 9)
    covered.add(0, 1)
    assert (covered.frontier, covered.ahead) == (5, [(8, 9)])
    covered.add(6, 7)
    assert (covered.frontier, covered.ahead) == (9, [])


def test_the_picture_shows_runs_colours_and_lists() -> None:
    merge = MergeMachine("g", ("balance", "total"))
    runs = (
        RelRun(first=0, last=7, views=("balance", "total")),
        RelRun(first=8, last=9, views=("total",), idle=("total",)),
    )
    merge.handle(Rel(group="g", first=0, last=9, runs=runs))
    merge.handle(ActionList(group="g", view="balance", first=0, last=4, delta=Rows(rows=3)))
    assert merge.painted() == (
        "              balance total\n"
        "        0..4     r      w    {balance[0..4]}\n"
        "        5..7     w      w    {}\n"
        "        8..9     b      r    {}"
    )
    assert merge.cells_by_colour() == {"white": 11, "red": 7, "gray": 0, "black": 2}


def test_cells_by_colour_count_gray_rows_until_they_are_in_a_batch() -> None:
    merge = MergeMachine("g", ("a", "b"))
    merge.handle(Rel(group="g", first=0, last=9, runs=(RelRun(first=0, last=9, views=("a",)),)))
    merge.handle(ActionList(group="g", view="a", first=0, last=3))
    assert merge.cells_by_colour() == {"white": 6, "red": 0, "gray": 4, "black": 10}
    assert merge.waiting == 4
    merge.take_batch()
    assert merge.cells_by_colour() == {"white": 6, "red": 0, "gray": 0, "black": 6}
