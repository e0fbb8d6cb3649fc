"""Groups of complete-N views: the warehouse goes from every Nth state to the next (MVC 6.3)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable

from streaming.engines.evaluator import Limits
from streaming.merge.by_blocks import BlockMerge
from streaming.metrics import Metrics
from streaming.pipeline.catalog import parse_view, save_catalog
from streaming.pipeline.configured_groups import block_size
from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse
from streaming.runtime.manifests import ManifestStore
from streaming.runtime.step import Fence, Stage, Stepper
from streaming.stages.block_stage import BlockStage
from streaming.stages.evaluators import Evaluators
from streaming.stages.merge_stage import MergeStage
from streaming.viewmanagers.base import ManagedView
from streaming.warehouse.upkeep import Upkeep
from tests.intakeworld import relations, row
from tests.sourcelog import SourceLog, Topics
from tests.steppedstages import GROUP, SteppedStages

SQL = {
    "counts": "SELECT v, COUNT(*) AS times FROM north.account GROUP BY v",
    "entries": "SELECT id, v FROM north.entry",
}
GREATEST = 2**31 - 1


class Blocked(SteppedStages):
    """The stages of views that are complete every `every` numbers."""

    every = 4

    def __init__(self, *made: Any) -> None:
        super().__init__(*made)
        folder, views = made[0], made[2]
        fence = Fence(folder / "blocks", {"process": "a test"})
        actions = self._topics.actions(GROUP)

        def stepper(stage: Stage) -> Stepper:
            chain = ManifestStore(folder / "_state" / "blocks" / stage.name.replace(":", "-"))
            return Stepper(stage, chain, fence, self._publish)

        managers = []
        for view in views:
            evaluators = Evaluators(view.tree, cast(Any, None), folder / "spark", Limits())
            spec = ManagedView(view.name, GROUP, view.tree)
            managers.append(BlockStage(spec, self.every, evaluators, folder, actions, Metrics(), 3))
        old = self._merge.stage
        assert isinstance(old, MergeStage)
        names = tuple(view.name for view in views)
        merge = MergeStage(
            lambda: BlockMerge(GROUP, names, self.every),
            old.writer,
            Upkeep(old.writer),
            Metrics(),
            None,
            folder,
        )
        self._managers = [stepper(one) for one in managers]
        self._merge = stepper(merge)


def pipeline(folder: Path, sql: dict[str, str]) -> Blocked:
    captured = relations()
    known = {one.relation.name: one.relation for one in captured}
    clause = f"WITH COMPLETE EVERY {Blocked.every} CONSISTENCY"
    views = [
        parse_view(f"CREATE MATERIALIZED VIEW {name} {clause} AS {text}", known)
        for name, text in sql.items()
    ]
    assert block_size(views, lambda _: ()) == Blocked.every
    save_catalog(folder, views, {GROUP: list(sql)}, known)
    return Blocked(folder, captured, views)


def changed(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        DeltaTable(str(folder / f"{GROUP}_changes")).to_pyarrow_table().to_pylist()
    )
    return found


@pytest.mark.parametrize("seed", range(3))
def test_every_nth_state_is_published_and_none_between(tmp_path: Path, seed: int) -> None:
    chance, log, topics = random.Random(seed), SourceLog("north"), Topics()
    stages, there, number = pipeline(tmp_path, SQL), dict[int, dict[str, Any]](), 0
    while number < 50:
        records = []
        for _ in range(chance.randint(1, 9)):
            number += 1
            new = row(number, chance.choice("ab"))
            changes: list[Any] = [("account", "c", None, new)]
            if there and chance.random() < 0.5:
                gone = there.pop(chance.choice(list(there)))
                changes.append(("account", "d", gone, None))
            if chance.random() < 0.3:
                changes = [("entry", "c", None, new)]
            else:
                there[number] = new
            records += log.commit(changes)
        stages.feed(topics.batch(records))
        if chance.random() < 0.3:
            stages.close()
            stages = stages.again()
    newest = Warehouse(tmp_path).epochs(GROUP)[-1]
    assert newest.frontier == number // Blocked.every * Blocked.every, f"seed {seed}"
    numbers = {one["number"] for one in changed(tmp_path)}
    assert numbers and all(each % Blocked.every == 0 for each in numbers), f"seed {seed}"
    verdict = verify_pipeline(tmp_path)
    assert verdict.holds, (seed, verdict)
    assert {line.achieved for line in verdict.lines} == {"complete-N"}, f"seed {seed}"
    stages.close()


def test_what_comes_and_goes_inside_a_block_is_not_written(tmp_path: Path) -> None:
    stages, log, topics = pipeline(tmp_path, SQL), SourceLog("north"), Topics()
    one = row(1, "a")
    history: list[Any] = [("c", None, one), ("d", one, None)] * 2
    for op, before, after in history:
        stages.feed(topics.batch(log.commit([("entry", op, before, after)])))
    newest = Warehouse(tmp_path).epochs(GROUP)[-1]
    assert newest.frontier == Blocked.every
    assert [one for one in changed(tmp_path) if one["view"] == "entries"] == []
    stages.close()


def test_an_error_inside_a_block_leaves_the_view_at_the_block_before(tmp_path: Path) -> None:
    sql = {**SQL, "following": "SELECT id, id + 1 AS following FROM north.account"}
    stages, log, topics = pipeline(tmp_path, sql), SourceLog("north"), Topics()
    for number in range(1, 13):
        id_ = GREATEST if number == 7 else number
        stages.feed(topics.batch(log.commit([("account", "c", None, row(id_))])))
    newest = Warehouse(tmp_path).epochs(GROUP)[-1]
    assert (newest.frontier, dict(newest.suspended)) == (12, {"following": 4})
    rows = Warehouse(tmp_path).read("following", suspended_as_of=True).to_pylist()
    assert sorted(one["id"] for one in rows) == [1, 2, 3, 4]
    stages.close()


def test_only_views_of_one_n_without_parents_and_children_make_a_group_of_blocks() -> None:
    known = {one.relation.name: one.relation for one in relations()}

    def view(name: str, clause: str) -> Any:
        return parse_view(f"CREATE MATERIALIZED VIEW {name} {clause} AS {SQL['entries']}", known)

    four, five = "WITH COMPLETE EVERY 4 CONSISTENCY", "WITH COMPLETE EVERY 5 CONSISTENCY"
    assert block_size([view("a", four), view("b", four)], lambda _: ()) == 4
    assert block_size([view("a", four), view("b", five)], lambda _: ()) is None
    assert block_size([view("a", four), view("b", "")], lambda _: ()) is None
    assert block_size([view("a", four)], lambda _: ("child",)) is None
    assert block_size([view("a", f"{four} USING c_strobe")], lambda _: ()) is None
