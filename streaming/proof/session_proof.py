"""What can be judged of a group of isolated views from the warehouse alone (moro-sartori).

Its sessions number themselves and read the sources past any log, so there are no recorded updates to
recompute from: whether its states are the sources' is for `fresco verify --source` to say. Here its two
tables are compared with each other: at each epoch the changes up to its number add up to the rows.
"""

from __future__ import annotations

import random
from typing import Any

from streaming.proof import recorded
from streaming.proof.proof_engine import open_engine
from streaming.proof.recomputed import differences
from streaming.proof.recorded_levels import Judged, Witness
from streaming.proof.relation_history import History
from streaming.readers import Warehouse
from streaming.scalars.expression import Column
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.epoch import Epoch

RECORDED, DIFFERENT = "as recorded", "different"
NOTE = "kept by sessions: whether its states are the sources' is for --source to say"


def judge_sessions(
    warehouse: Warehouse, path: str, group: str, sample: int | None, rng: random.Random
) -> list[Judged]:
    """One line for the group and one for each view.

    Args:
        sample: epochs at most, the newest among them; None for all.
    """
    epochs = [one for one in warehouse.epochs(group) if one.frontier >= 0]
    if sample is not None and len(epochs) > sample:
        epochs = (
            sorted(rng.sample(epochs[:-1], sample - 1), key=lambda one: one.epoch) + epochs[-1:]
        )
    engine = open_engine()
    lines = []
    names = [name for name in warehouse.views() if warehouse.spec(name)["group"] == group]
    for at, name in enumerate(names):
        schema = tuple(Column(one["name"], one["type"]) for one in warehouse.spec(name)["schema"])
        history = History(engine, f"__s{at}", schema, warehouse.changes(name, suspended_as_of=True))
        lines.append(_judged(engine, path, group, ViewTable(name, schema), history, epochs))
    seen = min((line.epochs for line in lines), default=0)
    wrong = [line for line in lines if not line.holds]
    level = DIFFERENT if wrong else RECORDED
    rows = sum(line.rows for line in lines)
    witness = wrong[0].witness if wrong else None
    return [
        Judged("group", group, RECORDED, level, not wrong, len(epochs), seen, rows, witness, NOTE),
        *lines,
    ]


def _judged(
    engine: Any, path: str, group: str, view: ViewTable, history: History, epochs: list[Epoch]
) -> Judged:
    seen = rows = 0
    witness = None
    for epoch in epochs:
        state = recorded.epoch_state(path, group, epoch.epoch)
        found = None if state is None else recorded.view_rows(state, view)
        if found is None:
            continue
        seen, rows = seen + 1, found.num_rows
        engine.register("__shown", found.rename_columns([*history.columns, "_n"]))
        number = epoch.suspended.get(view.name, epoch.frontier)
        wrong = differences(engine, "__shown", history.bag(number), view.schema, 1)
        engine.unregister("__shown")
        if wrong and witness is None:
            one = wrong[0]
            witness = Witness(epoch.frontier, epoch.epoch, one.row, one.expected, one.found)
    level = RECORDED if witness is None else DIFFERENT
    return Judged(
        "view", view.name, RECORDED, level, witness is None, len(epochs), seen, rows, witness
    )
