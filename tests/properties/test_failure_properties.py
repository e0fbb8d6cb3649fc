"""Which rows fail is a property of the view, not of the engine or of the path that computes it."""

from __future__ import annotations

import random
import re
from collections import Counter

import pyarrow as pa
import pytest

from streaming.algebra import bag as bags
from streaming.algebra.bag import numbered
from streaming.algebra.normal_form import normal
from streaming.algebra.tree import Tree
from streaming.engines.duck.duck_evaluator import DuckEvaluator
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.engines.duck.signed import Signed, _table
from streaming.engines.evaluator import Batch, ViewError
from streaming.errors import FrescoError
from streaming.messages import Rows
from streaming.scalars.types import delta_schema
from streaming.sql.parse import parse
from tests.golden.guarded_queries import CHOSEN, RELATIONS, Row, query, row

SEED = 20261128


def no_rows(table: pa.Table) -> Rows:
    raise AssertionError


PATHS = {
    "few rows": DuckOperators(no_rows, no_rows, small=10**6, threads=1),  # type: ignore[arg-type]
    "many rows": DuckOperators(no_rows, no_rows, small=0, threads=1),  # type: ignore[arg-type]
}


def view(text: str) -> Tree:
    return normal(parse(re.sub(r"\b(FROM|JOIN) ([tu])\b", r"\1 s.\2", text), RELATIONS))


class History:
    """Rows that come and go: `changes[n]` are (relation, copies, row) of number n."""

    def __init__(self, rng: random.Random, numbers: int = 12) -> None:
        self.changes: list[list[tuple[str, int, Row]]] = []
        standing: list[tuple[str, Row]] = []
        for _ in range(numbers):
            some = []
            for _ in range(rng.choice([0, 1, 1, 2])):
                if standing and rng.random() < 0.4:
                    name, old = standing.pop(rng.randrange(len(standing)))
                    some.append((name, -1, old))
                else:
                    name = rng.choice("tu")
                    new = row(rng, name)
                    standing.append((name, new))
                    some.append((name, 1, new))
            self.changes.append(some)

    def state(self, last: int) -> dict[str, bags.Bag]:
        listed: dict[str, list] = {name: [] for name in RELATIONS}
        for some in self.changes[: last + 1]:
            for name, copies, values in some:
                listed[f"s.{name}"].append((values, copies))
        return {name: bags.bag(rows, counted=True) for name, rows in listed.items()}

    def batch(self, first: int, last: int) -> Batch:
        tables = {}
        for name, relation in RELATIONS.items():
            schema = delta_schema(relation.schema)
            rows = [
                (n, copies, *values)
                for n in range(first, last + 1)
                for one, copies, values in self.changes[n]
                if f"s.{one}" == name
            ]
            columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
            arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
            tables[name] = (pa.table(arrays, schema=schema),)
        return Batch(first, last, tables)


def recomputed(tree: Tree, state: dict[str, bags.Bag]) -> bags.Bag | None:
    """None where it fails."""
    try:
        return bags.evaluate(tree, state)
    except FrescoError as error:
        assert error.code.startswith("VALUE_")
        return None


def by_path(path: str, tree: Tree, state: dict[str, bags.Bag]) -> bags.Bag | None:
    inputs = {}
    for name, relation in RELATIONS.items():
        schema = delta_schema(relation.schema)
        inputs[name] = Signed(schema, _table(schema, numbered(state[name])))
    try:
        found = PATHS[path].evaluate(tree, inputs).bag(10**9)
    except ViewError as error:
        assert error.code == "VIEW_ARITHMETIC"
        return None
    assert found is not None
    return {values: count for (_, values), count in found.items()}


def check(text: str, history: History, seed: object) -> bool:
    """Whether it fails somewhere; every path and the delta plan must agree on where."""
    tree = view(text)
    last = len(history.changes) - 1
    states = [history.state(n) for n in range(last + 1)]
    expected = [recomputed(tree, state) for state in states]
    for n in (0, last // 2, last):
        for path in PATHS:
            assert by_path(path, tree, states[n]) == expected[n], (seed, path, n, text)
    failing = next((n for n, rows in enumerate(expected) if rows is None), None)
    evaluator = DuckEvaluator(tree, threads=1)
    bag: Counter = Counter()
    for first, until in ((0, 0), (1, last // 2), (last // 2 + 1, last)):
        try:
            delta = evaluator.evaluate(history.batch(first, until))
        except ViewError as error:
            assert (error.code, error.number) == ("VIEW_ARITHMETIC", failing), (seed, text)
            return True
        assert failing is None or failing > until, (seed, text, failing)
        for number, copies, *values in zip(*(c.to_pylist() for c in delta.columns), strict=True):
            assert first <= number <= until
            bag[tuple(values)] += copies
        rows = expected[until]
        assert rows is not None
        assert {k: n for k, n in bag.items() if n} == rows, (seed, text)
        evaluator.advance()
    return False


@pytest.mark.parametrize("text", CHOSEN)
def test_a_guard_guards_in_every_engine_and_on_every_path(text: str) -> None:
    for seed in range(SEED, SEED + 3):
        check(text, History(random.Random(seed)), seed)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, v FROM t JOIN u ON k = j WHERE 10 % i > 1",
        "SELECT k, 10 % i AS x FROM t JOIN u ON k = j",
        "SELECT k FROM t WHERE 10 % i > 1",
        "SELECT 10 % i AS x FROM t",
    ],
)
def test_a_row_that_is_there_under_no_number_does_not_fail(text: str) -> None:
    """It comes as its partner goes, and comes and goes within one number."""
    failing = (1, 0, 0, 0, None)
    history = History(random.Random(0), 0)
    history.changes = [
        [("u", 1, (1, 1))],
        [("u", -1, (1, 1)), ("t", 1, failing), ("t", -1, failing), ("t", 1, (1, 5, 0, 0, None))],
        [("t", 1, failing)] if " JOIN " in text else [],
        [("t", 1, (2, 3, 0, 0, None))],
    ]
    assert not check(text, history, 0)


def sampled(start: int, count: int) -> None:
    failed = refused = 0
    for seed in range(start, start + count):
        rng = random.Random(seed)
        text = query(rng)
        try:
            view(text)
        except FrescoError:
            refused += 1
            continue
        failed += check(text, History(rng), seed)
    assert refused < count // 10 and count // 10 < failed < count - count // 10, (failed, refused)


def test_random_guards_do_too() -> None:
    sampled(SEED, 60)


@pytest.mark.deep
def test_many_random_guards_do_too() -> None:
    start = random.SystemRandom().randrange(10**9)
    print(f"seed {start}")
    sampled(start, 3000)
