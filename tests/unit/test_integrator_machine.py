"""The integrator's machine: numbers, global transactions, what straddles a snapshot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streaming.durable import as_json
from streaming.errors import ProtocolError
from streaming.integrator.integrator_machine import (
    Assignment,
    Completed,
    IntegratorMachine,
    Numbered,
    numbers_of,
)
from streaming.integrator.knots import Keys, Touched
from streaming.integrator.window import Closed, PartOfGlobal
from streaming.pipeline.merge_groups import merge_groups, spanning


def started(sources: tuple[str, ...] = ("a", "b"), **options: int) -> IntegratorMachine:
    machine = IntegratorMachine(sources, **options)
    assert machine.handle(Completed(0, closed=tuple(Closed(s) for s in sources))).last == 0
    return machine


def given(result: Numbered) -> dict[tuple[str, int], int]:
    return {
        (a.source, a.first + i): a.number + a.step * i
        for a in result.assignments
        for i in range(a.last - a.first + 1)
    }


def keys_of(touched: dict[tuple[str, int], set[int]]) -> Keys:
    def keys(source: str, first: int, last: int) -> Touched:
        pairs = [
            (ordinal, key)
            for ordinal in range(first, last + 1)
            for key in touched.get((source, ordinal), {1000 + ordinal})
        ]
        return Touched(np.array([o for o, _ in pairs]), np.array([k for _, k in pairs]))

    return keys


def crossing(touched: dict[tuple[str, int], set[int]], **options: int) -> Numbered:
    """G1 before G2 at a, G2 before G1 at b, a local one between them at a."""
    parts = (
        PartOfGlobal("a", 1, "g1", 2),
        PartOfGlobal("a", 3, "g2", 2),
        PartOfGlobal("b", 1, "g2", 2),
    )
    machine = started(**options)
    blocks = {"a": (1, 3), "b": (1, 2)}
    every = (*parts, PartOfGlobal("b", 2, "g1", 2))
    return machine.handle(Completed(0, blocks, every, keys=keys_of(touched)))


def test_local_transactions_are_numbered_as_blocks_in_the_order_of_their_sources() -> None:
    result = started().handle(Completed(0, {"b": (1, 2), "a": (1, 3)}))
    assert result.assignments == (Assignment("a", 1, 3, 1), Assignment("b", 1, 2, 4))
    assert (result.first, result.last, result.held) == (1, 5, 0)


def test_nothing_is_numbered_before_every_snapshot_is_closed() -> None:
    machine = IntegratorMachine(("a", "b"))
    waiting = machine.handle(Completed(0, {"a": (1, 2)}, closed=(Closed("a"),)))
    assert (waiting.first, waiting.last, waiting.held) == (0, -1, 2)
    result = machine.handle(Completed(0, closed=(Closed("b"),)))
    assert (result.first, result.last) == (0, 2)


def test_a_part_holds_everything_later_from_its_source_until_all_parts_are_in() -> None:
    machine = started()
    first = machine.handle(Completed(0, {"a": (1, 3)}, (PartOfGlobal("a", 2, "g", 2),)))
    assert given(first) == {("a", 1): 1}
    assert first.held == 2 and first.overdue == ("g",)
    second = machine.handle(Completed(9, {"b": (1, 2)}, (PartOfGlobal("b", 2, "g", 2),)))
    numbers = given(second)
    assert numbers[("a", 2)] == numbers[("b", 2)]
    assert numbers[("b", 1)] < numbers[("b", 2)] < numbers[("a", 3)]


def test_a_part_that_does_not_come_in_time_is_released_as_local_and_reported() -> None:
    machine = started(timeout_ms=100)
    machine.handle(Completed(1000, {"a": (1, 2)}, (PartOfGlobal("a", 1, "g", 2),)))
    assert machine.handle(Completed(1099)).released == ()
    late = machine.handle(Completed(1100))
    assert late.released == ("g",) and given(late) == {("a", 1): 1, ("a", 2): 2}
    after = machine.handle(Completed(1200, {"b": (1, 1)}, (PartOfGlobal("b", 1, "g", 2),)))
    assert given(after) == {("b", 1): 3}, "the part that comes after all is local too"


def test_crossing_global_transactions_without_a_common_key_get_a_number_each() -> None:
    numbers = given(crossing({}))
    assert numbers[("a", 1)] == numbers[("b", 2)]
    assert numbers[("a", 3)] == numbers[("b", 1)]
    assert len(set(numbers.values())) == 3


def test_crossing_global_transactions_that_conflict_both_ways_become_one_unit() -> None:
    touched = {("a", 1): {1}, ("a", 3): {1}, ("b", 1): {1}, ("b", 2): {1}}
    result = crossing(touched)
    numbers = given(result)
    assert len({numbers[m] for m in (("a", 1), ("a", 3), ("b", 1), ("b", 2))}) == 1
    assert len(set(numbers.values())) == 2 and result.largest == 4


def test_a_crossing_keeps_the_order_of_the_key_that_both_touch() -> None:
    touched = {("b", 1): {7}, ("b", 2): {7}}
    numbers = given(crossing(touched))
    assert numbers[("b", 1)] < numbers[("b", 2)]
    touched = {("a", 1): {7}, ("a", 2): {7}, ("a", 3): {7}}
    numbers = given(crossing(touched))
    assert numbers[("a", 1)] < numbers[("a", 2)] < numbers[("a", 3)]


def test_a_unit_larger_than_allowed_is_released_as_local_and_reported() -> None:
    touched = {("a", 1): {1}, ("a", 3): {1}, ("b", 1): {1}, ("b", 2): {1}}
    result = crossing(touched, max_unit=3)
    assert result.released == ("g1", "g2")
    assert len(set(given(result).values())) == 5


def test_log_order_is_kept_and_no_key_is_asked_for_while_the_logs_agree() -> None:
    machine = started()
    parts = tuple(PartOfGlobal(s, o, f"g{o}", 2) for s in ("a", "b") for o in (1, 2, 3))
    result = machine.handle(Completed(0, {"a": (1, 3), "b": (1, 3)}, parts))
    numbers = given(result)
    assert [numbers[("a", o)] for o in (1, 2, 3)] == [1, 2, 3]
    assert [numbers[("b", o)] for o in (1, 2, 3)] == [1, 2, 3]


def test_a_global_transaction_that_straddles_a_snapshot_joins_number_0() -> None:
    machine = IntegratorMachine(("a", "b"))
    closed = (Closed("a", (("g", 2, 1),)), Closed("b"))
    waiting = machine.handle(Completed(0, {"b": (1, 2)}, closed=closed))
    assert waiting.last == -1 and waiting.overdue == ("g",)
    touched = {("b", 1): {1}, ("b", 2): {2}, ("b", 3): {1, 3}, ("b", 4): {1}}
    result = machine.handle(
        Completed(0, {"b": (3, 4)}, (PartOfGlobal("b", 3, "g", 2),), keys=keys_of(touched))
    )
    # b1 touches the part's key before it and must come along; b2 does not.
    assert given(result) == {("b", 1): 0, ("b", 3): 0, ("b", 2): 1, ("b", 4): 2}


def test_a_straddling_part_that_never_comes_lets_number_0_go_after_the_timeout() -> None:
    machine = IntegratorMachine(("a", "b"), timeout_ms=50)
    machine.handle(Completed(0, closed=(Closed("a", (("g", 2, 1),)), Closed("b"))))
    result = machine.handle(Completed(50))
    assert (result.first, result.last) == (0, 0) and result.released == ("g",)


@pytest.mark.parametrize(
    "message",
    [
        Completed(0, {"a": (2, 3)}),
        Completed(0, {"x": (1, 1)}),
        Completed(0, {"a": (1, 1)}, (PartOfGlobal("a", 2, "g", 2),)),
        Completed(0, closed=(Closed("a"),)),
    ],
)
def test_a_message_against_the_protocol_raises_and_changes_nothing(message: Completed) -> None:
    machine = started()
    before = machine.snapshot()
    with pytest.raises(ProtocolError):
        machine.handle(message)
    assert machine.snapshot() == before


def test_a_snapshot_of_the_machine_is_json_and_restores_it() -> None:
    machine = started()
    machine.handle(Completed(5, {"a": (1, 3)}, (PartOfGlobal("a", 2, "g", 2),)))
    saved: Any = as_json(machine.snapshot())
    again = IntegratorMachine(("a", "b"))
    again.restore(saved)
    message = Completed(6, {"b": (1, 1)}, (PartOfGlobal("b", 1, "g", 2),))
    assert again.handle(message) == machine.handle(message)
    assert again.snapshot() == machine.snapshot()


def test_assignments_become_a_number_for_each_ordinal() -> None:
    assignments = (Assignment("a", 1, 3, 5), Assignment("a", 5, 5, 9, 0))
    numbers = numbers_of(assignments, {"a": np.arange(1, 7), "b": np.arange(1, 3)})
    assert numbers["a"].tolist() == [5, 6, 7, -1, 9, -1]
    assert numbers["b"].tolist() == [-1, -1]


# Groups -------------------------------------------------------------------------------------------


def test_disjoint_groups_are_the_components_of_sharing_a_base_relation() -> None:
    views = {"v1": ["r", "s"], "v2": ["s", "t"], "v3": ["q"], "v4": ["p"]}
    groups = merge_groups(views, "disjoint")
    assert [group.views for group in groups] == [("v1", "v2"), ("v3",), ("v4",)]
    assert groups[0].relations == ("r", "s", "t")
    together = merge_groups(views, "disjoint", spans=[["q", "p"]])
    assert [group.views for group in together] == [("v1", "v2"), ("v3", "v4")]
    assert spanning(groups, ["r", "q"]) == ("main_v1", "main_v3")


def test_a_single_group_holds_every_view() -> None:
    (group,) = merge_groups({"v1": ["r"], "v2": ["s"]})
    assert (group.name, group.views, group.relations) == ("main", ("v1", "v2"), ("r", "s"))
