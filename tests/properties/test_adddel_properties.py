"""ADD(Q) and DEL(Q) take a view from one source state to another (moro-sartori 5.4), at random.

A source runs random transactions with triggers that fill its delta tables. Some were handled by earlier
sessions, some are TID(old), some came after the ids were read and must be undone. Expressions are of
every operator in any nesting, self-joins included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.algebra.bag import Bag, evaluate, monus
from streaming.algebra.bag import added as plus
from streaming.algebra.tree import Join, Project, Scan, Select, Tree, walk
from streaming.isolated.add_del import (
    IDS,
    State,
    added,
    at_source,
    deleted,
    delta_table,
    kept,
    named,
    replaced,
    table_in,
    terms,
)
from tests.properties.delta_trees import RELATIONS, History, histories, views

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
STATES: tuple[State, ...] = ("past", "old", "kept", "added", "deleted")


class Moment:
    """A session in the middle of a history.

    Args:
        first, last: the transactions whose ids were read; later ones have committed since.
    """

    def __init__(self, history: History, first: int, last: int) -> None:
        self.past = _bags(history, first - 1)
        self.old = _bags(history, last)
        self.source: dict[str, Bag] = {IDS: {(f"T{n}",): 1 for n in range(first, last + 1)}}
        for name, schema in RELATIONS.items():
            scan = Scan(name, schema)
            tables = {1: Counter(), -1: Counter()}
            for number in range(first, history.last + 1):
                for sign, rows in _fired(history, name, number):
                    for row, count in rows.items():
                        tables[sign][(*row, f"T{number}")] += count
            self.source[name] = dict(history.states[history.last][name])
            self.source[delta_table(scan, "inserted").relation] = dict(tables[1])
            self.source[delta_table(scan, "deleted").relation] = dict(tables[-1])

    def named(self) -> dict[str, Bag]:
        """Every relation in every state, made from the two that are known."""
        found = {}
        for name in RELATIONS:
            past, old = self.past[name], self.old[name]
            gone = monus(past, old)
            bags = (past, old, monus(past, gone), monus(old, past), gone)
            found |= {f"{name}@{state}": rows for state, rows in zip(STATES, bags, strict=True)}
        return found


def _bags(history: History, number: int) -> dict[str, Bag]:
    return {name: dict(rows) for name, rows in history.states[number].items()}


def _fired(history: History, name: str, number: int) -> list[tuple[int, Mapping[tuple, int]]]:
    """What the triggers write for one transaction: +1 or -1 and rows, in no order that matters."""
    fired = []
    if name in history.truncates[number]:
        fired.append((-1, history.states[number - 1][name]))
    for sign, row in history.deltas[number].get(name, []):
        fired.append((1 if sign > 0 else -1, {row: abs(sign)}))
    return fired


@st.composite
def moments(draw: st.DrawFn) -> Moment:
    history = draw(histories())
    first = draw(st.integers(1, history.last))
    return Moment(history, first, draw(st.integers(first - 1, history.last)))


@settings(max_examples=300, deadline=None, suppress_health_check=SLOW, print_blob=True)
@given(view=views(), moment=moments())
def test_what_a_view_was_less_del_plus_add_is_what_it_is(view: Tree, moment: Moment) -> None:
    states = moment.named()
    past, old = evaluate(view, moment.past), evaluate(view, moment.old)
    add, less = evaluate(added(view), states), evaluate(deleted(view), states)
    assert monus(less, past) == {}, "DEL is a part of the past"
    assert monus(add, old) == {}, "ADD is a part of old"
    assert plus(monus(past, less), add) == old
    stays = monus(past, less)
    assert evaluate(kept(view), states) == stays == monus(old, add)
    if all(isinstance(node, Scan | Select) for node in walk(view)):
        assert not add.keys() & less.keys(), "what came did not go"


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW, print_blob=True)
@given(moment=moments())
def test_a_source_has_each_state_in_its_tables_and_delta_tables(moment: Moment) -> None:
    """Equations (1) to (3), whatever has committed since the ids were read."""
    states = moment.named()
    for name, schema in RELATIONS.items():
        for state in STATES:
            found = evaluate(table_in(Scan(name, schema), state), moment.source)
            assert found == states[f"{name}@{state}"], state


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW, print_blob=True)
@given(view=views(depth=2), moment=moments())
def test_the_rules_resolved_to_what_a_source_has_mean_the_same(view: Tree, moment: Moment) -> None:
    states = moment.named()
    for function in (added, deleted):
        tree = function(view)
        assert evaluate(at_source(tree), moment.source) == evaluate(tree, states)


THREE = [Scan(name, RELATIONS[name]) for name in ("north.account", "north.entry", "south.entry")]
PRODUCT = Join(Join(THREE[0], THREE[1], ((0, 0),), None), THREE[2], ((3, 0),), None)
SELF = Join(Join(THREE[1], THREE[1], ((0, 0),), None), THREE[2], ((0, 0),), None)


@settings(max_examples=120, deadline=None, suppress_health_check=SLOW, print_blob=True)
@given(view=st.sampled_from([PRODUCT, SELF]), moment=moments())
def test_a_term_for_each_relation_is_all_that_the_recursion_gives(
    view: Tree, moment: Moment
) -> None:
    states = moment.named()
    for function, tree in (("ADD", added(view)), ("DEL", deleted(view))):
        parts = [evaluate(_in_states(view, each), states) for each in terms(3, function)]
        assert plus(*parts) == evaluate(tree, states), function


def _in_states(view: Tree, states: tuple[State, ...]) -> Tree:
    """The product with each place in its state, left to right."""
    left = iter(states)
    return replaced(view, lambda scan: named(scan, next(left)))


def test_projections_have_rows_in_both_add_and_del() -> None:
    """The smallest: a column that is projected away is updated."""
    scan = THREE[1]
    view = Project(scan, (), ())
    states = {"north.entry@added": {(1, None, 2): 1}, "north.entry@deleted": {(1, None, 1): 1}}
    assert evaluate(added(view), states) == evaluate(deleted(view), states) == {(): 1}
