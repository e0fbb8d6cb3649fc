"""REL on the action lists gives what REL by itself gives, through real stages (MVC 3.2; `rel`)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from streaming.errors import FrescoError
from streaming.pipeline.catalog import parse_view, save_catalog
from streaming.readers import Warehouse
from tests.intakeworld import relations, row
from tests.sourcelog import SourceLog, Topics
from tests.steppedstages import GROUP, SteppedStages

VIEWS = {
    "a_numbers": "SELECT id, id + 1 AS following FROM north.account",
    "entries": "SELECT id, v FROM north.entry",
    "large": "SELECT v, COUNT(*) AS times FROM north.account WHERE id > 40 GROUP BY v",
}
"""The first by name is the carrier, and an overflow suspends it."""
GREATEST = 2**31 - 1


class Riding(SteppedStages):
    rides = True


def history(seed: int) -> list[list[tuple[Any, ...]]]:
    """Transactions over one table or both; at 20 one that `a_numbers` cannot take."""
    chance, made = random.Random(seed), []
    for number in range(1, 31):
        tables = chance.choice((["account"], ["entry"], ["account", "entry"]))
        changes = [(one, number * 2 + at) for at, one in enumerate(tables)]
        if number == 20:
            changes = [("account", GREATEST)]
        made.append([(one, "c", None, row(id_, str(id_ % 4))) for one, id_ in changes])
    return made


def run(kind: type[SteppedStages], folder: Path, seed: int) -> SteppedStages:
    """The history in batches, the stages in drawn orders, with starts over what is durable."""
    chance, log, topics = random.Random(seed), SourceLog("north"), Topics()
    captured = relations()
    known = {one.relation.name: one.relation for one in captured}
    views = [
        parse_view(f"CREATE MATERIALIZED VIEW {n} AS {sql}", known) for n, sql in VIEWS.items()
    ]
    save_catalog(folder, views, {GROUP: list(VIEWS)}, known)
    stages = kind(folder, captured, views)
    names = [*(f"view:{name}" for name in VIEWS), f"merge:{GROUP}"]
    left = history(seed)
    while left:
        size = chance.randint(1, 6)
        records = [one for changes in left[:size] for one in log.commit(changes)]
        del left[:size]
        stages.number(topics.batch(records))
        for name in chance.sample(names, len(names)):
            stages.step(name)
        if chance.random() < 0.3:
            stages.close()
            stages = stages.again()
    for name in (*names, names[-1]):
        stages.step(name)
    return stages


def changes(folder: Path) -> list[str]:
    """Every change of every view, and what of it is covered."""
    table = DeltaTable(str(folder / f"{GROUP}_changes")).to_pyarrow_table()
    newest = Warehouse(folder).epochs(GROUP)[-1]
    rows = sorted(map(repr, table.to_pylist()))
    return [*rows, f"frontier {newest.frontier}, suspended {dict(newest.suspended)}"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.deep) for n in (1, 2))])
def test_the_same_topics_give_the_same_changelog_either_way(tmp_path: Path, seed: int) -> None:
    direct = run(SteppedStages, tmp_path / "direct", seed)
    riding = run(Riding, tmp_path / "riding", seed)
    assert changes(tmp_path / "riding") == changes(tmp_path / "direct"), f"seed {seed}"
    assert "frontier 30, suspended {'a_numbers': 19}" in changes(tmp_path / "riding")[-1]
    assert f"{GROUP}.rel.{GROUP}" in direct.records
    assert f"{GROUP}.rel.{GROUP}" not in riding.records, "nothing comes from the integrator itself"
    kinds = {
        field["value"]
        for record in riding.records[f"{GROUP}.actions.{GROUP}"]
        for field in record["headers"]
        if field["key"] == "type"
    }
    assert {b"actions", b"suspend", b"rel"} <= kinds, "the carrier forwards REL without a list too"
    direct.close()
    riding.close()


@pytest.mark.parametrize(("first", "then"), [(SteppedStages, Riding), (Riding, SteppedStages)])
def test_a_start_with_the_other_routing_is_refused(
    tmp_path: Path, first: type[SteppedStages], then: type[SteppedStages]
) -> None:
    stages = run(first, tmp_path, 1)
    stages.close()
    folder, captured, views, folds = stages._made
    with pytest.raises(FrescoError, match=r"MERGE_SNAPSHOT.*set rel back"):
        then(folder, captured, views, folds, stages.records)
