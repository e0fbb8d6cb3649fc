"""A view over views as one over base relations: the same rows in every state, also maintained so."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa

from streaming.algebra.bag import Bag, bag, evaluate
from streaming.algebra.expanded import expanded
from streaming.algebra.tree import relations
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.evaluator import Batch
from streaming.scalars.types import delta_schema
from tests.golden.bank_relations import BANK
from tests.unit.test_overview_stages import specified

SEED = 11


def changed(rng: random.Random, rows: dict[str, Bag]) -> dict[str, list[tuple[int, Any]]]:
    """Some rows of accounts and entries come, some go."""
    found: dict[str, list[tuple[int, Any]]] = {"north.account": [], "north.entry": []}
    for name, changes in found.items():
        for row in [row for row in rows[name] if rng.random() < 0.3]:
            changes.append((-1, row))
        for _ in range(rng.randrange(4)):
            if name == "north.account":
                row: Any = (rng.randrange(5), f"o{rng.randrange(3)}", rng.choice("xy"))
            else:
                row = (rng.randrange(99), rng.randrange(5), Decimal(rng.randrange(9999)) / 100)
            if row not in rows[name] and all(row != one for _, one in changes):
                changes.append((1, row))
    return found


def test_expanded_views_have_their_rows_at_every_number_from_base_relations_alone() -> None:
    views, rng = specified(), random.Random(SEED)
    trees = {view.name: view.tree for view in views}
    whole = {name: expanded(tree, trees) for name, tree in trees.items()}
    for name, tree in whole.items():
        assert set(relations(tree)) <= {"north.account", "north.entry"}, name
        assert tree.schema == trees[name].schema, name
    evaluators = {name: DuckEvaluator(tree, threads=1) for name, tree in whole.items()}
    maintained: dict[str, Bag] = {name: {} for name in whole}
    rows: dict[str, Bag] = {"north.account": {}, "north.entry": {}}
    shown: set[str] = set()
    for number in range(12):
        pieces = {}
        for name, changes in changed(rng, rows).items():
            rows[name] = bag([*rows[name].items(), *((r, n) for n, r in changes)], counted=True)
            schema = delta_schema(BANK[name].schema)
            columns = zip(*((number, n, *row) for n, row in changes), strict=True)
            arrays = [
                pa.array(c, f.type)
                for c, f in zip(columns or [[]] * len(schema), schema, strict=False)
            ]
            pieces[name] = (pa.Table.from_arrays(arrays, schema=schema),) if changes else ()
        state: dict[str, Bag] = dict(rows)
        for view in views:
            state[view.name] = evaluate(view.tree, state)
            assert evaluate(whole[view.name], rows) == state[view.name], (SEED, number, view.name)
            evaluator = evaluators[view.name]
            delta = evaluator.evaluate(Batch(number, number, pieces)).to_pylist()
            evaluator.advance()
            moved = [(tuple(list(one.values())[2:]), one["_multiplicity"]) for one in delta]
            before = maintained[view.name].items()
            maintained[view.name] = bag([*before, *moved], counted=True)
            assert maintained[view.name] == state[view.name], (SEED, number, view.name)
        shown |= {name for name in whole if state[name]}
    assert shown == set(whole), SEED
