"""The merge stage under each discipline and bound: what is held back goes with empty steps (MVC 4.3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.merge.batching import GREEDY, Batching, bound
from streaming.merge.disciplines import Discipline
from streaming.merge.machine import MergeMachine
from streaming.pipeline.catalog import parse_view, save_catalog
from streaming.readers import Warehouse
from streaming.runtime.pulse import NOTHING
from tests.intakeworld import insert, relations
from tests.sourcelog import SourceLog, Topics
from tests.steppedstages import GROUP, SteppedStages

VIEWS = {"accounts": "SELECT id FROM north.account", "entries": "SELECT id FROM north.entry"}


class Submitting(SteppedStages):
    """The merge submits as a test says; views as in `VIEWS`."""

    batching: Batching = GREEDY
    discipline: Discipline = "declared"

    def merge_of(self, views: tuple[str, ...]) -> MergeMachine:
        return MergeMachine(GROUP, views, batching=self.batching, discipline=self.discipline)


def run(folder: Path, batching: Batching, discipline: Discipline) -> tuple[Submitting, list[int]]:
    """Six transactions in one step, then steps without messages; epochs there are after each."""
    captured = relations()
    known = {one.relation.name: one.relation for one in captured}
    views = [
        parse_view(f"CREATE MATERIALIZED VIEW {n} AS {sql}", known) for n, sql in VIEWS.items()
    ]
    save_catalog(folder, views, {GROUP: list(VIEWS)}, known)
    kind = type("Given", (Submitting,), {"batching": batching, "discipline": discipline})
    stages, log, topics = kind(folder, captured, views), SourceLog("north"), Topics()
    stages.feed(topics.batch([log.begin("9")]))
    records = []
    for number in range(6):
        table = "account" if number % 2 else "entry"
        records += log.commit([insert(table, number)])
    stages.feed(topics.batch(records))
    told = [Warehouse(folder).epochs(GROUP)[-1].epoch]
    while len(told) < 2 or told[-1] > told[-2]:
        stages._merge.batch(NOTHING)
        told.append(Warehouse(folder).epochs(GROUP)[-1].epoch)
    return stages, told


@pytest.mark.parametrize(
    ("batching", "discipline", "epochs", "frontier"),
    [
        (GREEDY, "declared", [2, 2], 6),
        (bound(1, 0), "declared", [7, 7], 6),
        (bound(1, 0), "sequential", [2, 3, 4, 5, 6, 7, 7], 6),
        (bound(1, 0), "dependent", [3, 5, 7, 7], 6),
        (bound(2, 60_000), "declared", [3, 3], 4),
    ],
    ids=["greedy", "one by one", "sequential", "dependent", "a bound whose rest waits"],
)
def test_what_is_ready_is_committed_as_the_discipline_allows(
    tmp_path: Path, batching: Batching, discipline: Discipline, epochs: list[int], frontier: int
) -> None:
    stages, told = run(tmp_path, batching, discipline)
    assert told == epochs
    newest = Warehouse(tmp_path).epochs(GROUP)[-1]
    assert newest.frontier == frontier
    rows = [len(Warehouse(tmp_path).read(view)) for view in VIEWS]
    assert rows == [3, 3 if frontier == 6 else 2], "number 6 overtakes 5, which waits for one more"
    stages.close()


def test_a_start_in_between_goes_on_with_what_was_held_back(tmp_path: Path) -> None:
    stages, told = run(tmp_path, bound(1, 0), "sequential")
    stages.close()
    again = stages.again()
    again._merge.batch(NOTHING)
    assert Warehouse(tmp_path).epochs(GROUP)[-1].epoch == told[-1], "all of it was there"
    again.close()
