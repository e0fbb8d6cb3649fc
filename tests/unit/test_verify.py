"""`verify` says complete when the record is true, and else the right level with a witness."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from verified_bank import Bank, Change, arrow, transfers

from streaming.errors import FrescoError
from streaming.messages import Control
from streaming.proof.recorded_levels import EpochState, Observations, achieved, level_asked
from streaming.proof.verdicts import Judged, Verdict, verify_pipeline


def bank(folder: Path, count: int = 8, seed: int = 3, **levels: str) -> Bank:
    made = Bank(folder, transfers(count, seed), levels)
    made.record_updates()
    return made


def line(verdict: Verdict, name: str) -> Judged:
    return next(one for one in verdict.lines if one.name == name)


def levels(verdict: Verdict) -> dict[str, str]:
    return {one.name: one.achieved for one in verdict.lines}


@pytest.mark.parametrize("seed", range(3))
def test_a_true_record_is_complete_at_every_number_and_epoch(tmp_path: Path, seed: int) -> None:
    made = bank(tmp_path, count=12, seed=seed)
    for first, last in ((0, 0), (1, 4), (5, 5), (6, 12)):
        made.commit(first, last)
    verdict = verify_pipeline(tmp_path)
    assert verdict.holds and not verdict.problems
    assert set(levels(verdict).values()) == {"complete"}
    assert (line(verdict, "g").states, line(verdict, "g").epochs) == (13, 4)
    assert verdict.frontier == {"g": 12}


def test_a_sample_holds_zero_the_frontier_and_the_epochs_and_follows_its_seed(
    tmp_path: Path,
) -> None:
    made = bank(tmp_path, count=30)
    for first, last in ((0, 0), (1, 9), (10, 30)):
        made.commit(first, last)
    seen: list[tuple[str, int, int]] = []
    verdict = verify_pipeline(tmp_path, sample=8, seed=5, progress=lambda *at: seen.append(at))
    assert verdict.holds
    assert line(verdict, "total").states == 8
    assert seen[-1] == ("g", 8, 8)
    assert line(verdict, "total").epochs == 3


def test_a_number_that_the_changelog_skips_leaves_the_view_and_the_group_strong(
    tmp_path: Path,
) -> None:
    made = bank(tmp_path)
    made.commit(0, 0)
    skipped = made.states[1]["total"]
    made.commit(1, 8, states={2: {"total": skipped}, 3: {"total": skipped}})
    verdict = verify_pipeline(tmp_path)
    assert not verdict.holds
    assert levels(verdict) == {
        "g": "strong", "balance": "complete", "doubles": "complete", "total": "strong",
    }  # fmt: skip
    witness = line(verdict, "total").witness
    assert witness is not None
    assert (witness.number, witness.epoch) == (2, None)
    assert (witness.expected, witness.found) in ((0, 1), (1, 0))
    assert json.dumps(verdict.as_dict(), default=str)


def test_a_view_that_asks_for_strong_holds_at_strong(tmp_path: Path) -> None:
    made = bank(tmp_path, total="STRONG")
    made.commit(0, 0)
    made.commit(1, 8, states={n: {"total": made.states[0]["total"]} for n in range(1, 8)})
    verdict = verify_pipeline(tmp_path)
    assert verdict.holds
    assert (line(verdict, "g").asked, line(verdict, "g").achieved) == ("strong", "strong")
    assert line(verdict, "total").witness is None


def test_views_that_are_each_strong_but_never_together_make_a_group_that_is_only_convergent(
    tmp_path: Path,
) -> None:
    """MVC, Example 1: each view is right by itself; together they reflect no source state."""
    made = Bank(tmp_path, [[], *[[("north.entry", 1, (n, 1, n))] for n in range(1, 4)]])
    made.record_updates()
    made.commit(0, 0)
    for number in (1, 2):
        made.commit(number, number, states={number: {"total": made.states[number - 1]["total"]}})
    made.commit(3, 3)
    verdict = verify_pipeline(tmp_path)
    assert line(verdict, "balance").achieved == "complete"
    assert line(verdict, "total").achieved == "strong"
    assert line(verdict, "g").achieved == "convergent"


def test_an_epoch_that_equals_no_source_state_leaves_the_view_convergent(tmp_path: Path) -> None:
    made = bank(tmp_path)
    made.commit(0, 0)
    made.commit(1, 4, states={4: {"doubles": Counter({(7,): 1})}})
    made.commit(5, 8)
    verdict = verify_pipeline(tmp_path)
    assert line(verdict, "doubles").achieved == "convergent"
    witness = line(verdict, "doubles").witness
    assert witness is not None and witness.number == 4


def test_a_last_state_that_is_wrong_is_no_level_at_all(tmp_path: Path) -> None:
    made = bank(tmp_path)
    made.commit(0, 7)
    made.commit(8, 8, states={8: {"doubles": Counter({(7,): 2})}})
    verdict = verify_pipeline(tmp_path)
    found = line(verdict, "doubles")
    assert (found.achieved, found.holds) == ("none", False)
    assert line(verdict, "g").achieved == "none"


def test_states_that_go_back_are_weak() -> None:
    forth_and_back = [EpochState(1, 1, False, ("b",)), EpochState(2, 2, False, ("a",))]
    ends = [*forth_and_back, EpochState(3, 3, True, ("d",))]
    states = {0: ("a",), 1: ("x",), 2: ("b",), 3: ("d",)}
    assert achieved(Observations([1, 2], states, ends, True)) == "weak"
    assert achieved(Observations([1], states, ends[1:], True)) == "strong"


def test_complete_n_looks_at_every_nth_number() -> None:
    ends = [EpochState(1, 6, True, ("d",))]
    assert achieved(Observations([1, 2, 4, 5], {}, ends, True), every=3) == "complete-N"
    assert achieved(Observations([3], {}, ends, True), every=3) == "strong"
    assert level_asked("COMPLETE", 3) == "complete-N"
    assert [level_asked(name) for name in ("COMPLETE", "strong")] == ["complete", "strong"]


def test_an_epoch_whose_rows_overtook_is_compared_with_exactly_its_covered_numbers(
    tmp_path: Path,
) -> None:
    """Number 1 is south's, 2 north's: their views share no relation, so 2 may go first."""
    first: list[Change] = [("north.entry", 1, (1, 1, 10)), ("south.entry", 1, (2, 1, 10))]
    history: list[list[Change]] = [
        first,
        [("south.entry", 1, (3, 2, 0)), ("south.entry", -1, (2, 1, 10))],
        [("north.entry", 1, (4, 2, 5))],
    ]
    made = Bank(tmp_path, history, names=("balance", "doubles"))
    made.record_updates()
    made.commit(0, 0)
    balance = arrow(made.tables["balance"].schema, [(2, 1, 2, 5, 5)])
    made.publish({"balance": balance}, 2, 2)
    doubles = arrow(made.tables["doubles"].schema, [(1, 1, 2), (1, -1, 1)])
    made.publish({"doubles": doubles}, 1, 1)
    verdict = verify_pipeline(tmp_path)
    assert verdict.holds
    assert set(levels(verdict).values()) == {"complete"}
    assert line(verdict, "g").epochs == 3


def test_a_suspended_view_is_judged_up_to_its_last_good_number(tmp_path: Path) -> None:
    made = bank(tmp_path)
    made.commit(0, 3)
    frozen = made.states[3]["total"]
    stays = {n: {"total": frozen} for n in range(4, 9)}
    made.commit(4, 8, states=stays, suspended={"total": 3})
    verdict = verify_pipeline(tmp_path)
    assert verdict.holds
    found = line(verdict, "total")
    assert (found.achieved, found.note, found.states) == ("complete", "suspended after 3", 4)
    assert line(verdict, "g").achieved == "complete"


def test_a_truncated_relation_is_rebuilt_without_its_old_rows(tmp_path: Path) -> None:
    history = transfers(2, 1)
    north = Counter(c[2] for changes in history for c in changes if c[0] == "north.entry")
    gone: list[Change] = [("north.entry", -1, row) for row in north]
    made = Bank(tmp_path, [*history, gone, [("north.entry", 1, (99, 1, 7))]])
    states = made.states
    made.history[3] = []
    made.record_updates([Control(number=3, relation="north.entry", kind="truncate")])
    made.states = states
    made.commit(0, 4)
    verdict = verify_pipeline(tmp_path)
    assert verdict.holds, verdict


def test_a_retraction_without_its_row_is_a_problem(tmp_path: Path) -> None:
    made = Bank(tmp_path, transfers(3, 1))
    made.history[2] = [*made.history[2], ("north.entry", -1, (77, 1, 1))]
    made.record_updates()
    made.commit(0, 3)
    verdict = verify_pipeline(tmp_path)
    assert not verdict.holds
    told = "relation north.entry: at number 2 a retraction finds no row (77, 1"
    assert any(problem.startswith(told) for problem in verdict.problems)


def test_epochs_that_cover_less_than_before_are_a_problem(tmp_path: Path) -> None:
    made = bank(tmp_path)
    made.commit(0, 4)
    made.covered = [(0, 3)]
    made.commit(5, 8)
    verdict = verify_pipeline(tmp_path)
    assert any("epoch 2 no longer covers" in problem for problem in verdict.problems)


def test_sql_that_duckdb_cannot_run_is_named(tmp_path: Path) -> None:
    made = bank(tmp_path)
    made.commit(0, 8)
    path = tmp_path / "_catalog" / "views.json"
    path.write_text(path.read_text().replace("COUNT(*)", "no_such_function(amount)"))
    with pytest.raises(FrescoError, match="VERIFY_SQL") as error:
        verify_pipeline(tmp_path)
    assert error.value.where == "total"


def test_global_transactions_released_as_local_leave_the_group_weak_and_say_so(
    tmp_path: Path,
) -> None:
    made = bank(tmp_path)
    made.commit(0, 4)
    made.commit(5, 8, released={"g-17": 1, "g-18": 1})
    verdict = verify_pipeline(tmp_path)
    group = line(verdict, "g")
    assert (group.achieved, group.holds) == ("weak", False)
    assert group.note == "2 global transactions were released as local"
    assert line(verdict, "balance").achieved == "complete", "one source's view has lost nothing"
    assert not verdict.holds and not verdict.problems
