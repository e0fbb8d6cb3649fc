"""Hand-made worlds: what each source ran, written as the papers write it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from streaming.algebra.bag import Bag, Row, bag
from streaming.simulator.auditor import Auditor
from streaming.simulator.case import Scenario
from streaming.simulator.lattice import Place, Values
from streaming.simulator.small_views import RelationSet, ViewSet, catalog
from streaming.simulator.workload import Transaction, WorkloadChange, World

ROW = re.compile(r"\[([\d,]+)\]")


def row(text: str) -> Row:
    return tuple(int(value) for value in text.split(","))


def change(text: str) -> WorkloadChange:
    """`+x.r1[1,2]`, `-x.r1[1,2]`, `x.r1[1,2]->[1,3]` or `truncate x.r1`."""
    if text.startswith("truncate "):
        return WorkloadChange(text.removeprefix("truncate "), None, None)
    rows = [row(found) for found in ROW.findall(text)]
    relation = text.split("[")[0].lstrip("+-")
    if text[0] == "+":
        return WorkloadChange(relation, None, rows[0])
    if text[0] == "-":
        return WorkloadChange(relation, rows[0], None)
    return WorkloadChange(relation, rows[0], rows[1])


def rows(text: str) -> Bag:
    """A bag: "[1,2] [1,2] [3,4]"."""
    return bag(row(found) for found in ROW.findall(text))


def a_world(
    views: ViewSet,
    initial: Mapping[str, str],
    logs: Mapping[str, Sequence[str]],
    sources: int = 2,
    keys: RelationSet = "first",
) -> World:
    """A world; a transaction is "change; change", a global one's part "G1/2: change; ..."."""
    known = catalog(views, keys, sources)
    return World(
        known,
        {name: rows(initial.get(name, "")) for name in known.relations},
        {
            source: tuple(
                _transaction(source, n, text) for n, text in enumerate(logs.get(source, ()), 1)
            )
            for source in known.sources
        },
    )


def _transaction(source: str, ordinal: int, text: str) -> Transaction:
    glob, parts = None, 1
    if ": " in text:
        name, text = text.split(": ", 1)
        glob, count = name.split("/")
        parts = int(count)
    changes = tuple(change(each) for each in text.split("; "))
    return Transaction(source, ordinal, changes, glob, parts)


def judge(
    world: World,
    scenario: Scenario,
    views: Sequence[str],
    order: Sequence[Place] = (),
    every: int = 1,
) -> Auditor:
    """An auditor of some of the world's views."""
    trees = [view.tree for view in world.catalog.views if view.name in views]
    return Auditor(world, scenario, trees, order, every)


def states(*texts: str) -> list[Values]:
    """States of one view, or of several with " | " between them."""
    return [tuple(rows(part) for part in text.split("|")) for text in texts]
