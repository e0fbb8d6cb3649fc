"""The examples of ryco-pyco: Scalable Maintenance in Distributed Data Warehousing Environment.

Examples 1, 3 and 4 print no rows; these are put in: B1(k) = {}, B2(k, v) = {(1, 10)}, DU 11 inserts (1)
into B1, DU 21 changes B2's row to (1, 20). V1 = V2 = B1 join B2, and V0 = V1 join V2 on k shows both v.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from streaming.algebra.bag import Bag, added, evaluate
from streaming.messages import ActionList, RelRun, Updates
from streaming.pipeline.consistency import ReadersView, base_inconsistency, view_inconsistency
from streaming.pipeline.costs import Rates, formula_6, group_updates, pyco_costs, ryco
from streaming.pipeline.pyco import ViewGraph, internal_bases, pyco, view_graph
from tests.askedsources import tables
from tests.mediatedviews import Views

# Examples 1 to 4: the order of updates ------------------------------------------------------------

BASES = tables(x__b1="k", y__b2="k v")
JOIN = "SELECT b1.k, b2.v FROM x.b1 b1 JOIN y.b2 b2 ON b1.k = b2.k"
V0 = "SELECT v1.k, v1.v, v2.v AS w FROM v1 JOIN v2 ON v1.k = v2.k"
DU = {
    11: [("x.b1", 1, (1,))],
    21: [("y.b2", -1, (1, 10)), ("y.b2", 1, (1, 20))],
}
STATES_OF_BASES: dict[str, list[Bag]] = {
    "x.b1": [{}, {(1,): 1}],
    "y.b2": [{(1, 10): 1}, {(1, 20): 1}],
}
"""State change sequences (definition 3)."""


def world(modes: Mapping[str, str] | None = None) -> Views:
    """V1, V2 and V0 after the initial state."""
    views = Views({"v1": JOIN, "v2": JOIN, "v0": V0}, BASES, modes or {}, y__b2=[(1, 10)])
    views.publish(views.initial())
    views.settle()
    return views


def watched(views: Views, name: str, states: list[Bag]) -> ReadersView[Bag]:
    """A view over the two bases, whatever it scans."""

    def define(bases: Mapping[str, Bag]) -> Bag:
        known = dict(bases)
        for view, tree in views.trees.items():
            known[view] = evaluate(tree, known)
        return known[name]

    return ReadersView(tuple(BASES), define, states)


def maintained(name: str, order: tuple[int, ...]) -> tuple[Views, dict[int, Bag], list[Bag]]:
    """A view that takes the DUs in the order in which they reach it: its deltas, and its states."""
    views = world()
    for du in order:
        views.publish(views.commit(*DU[du]))
    for channel in [("sources", name)] * len(order):
        views.deliver(*channel)
    shown = [rows for _, _, _, rows in views.shown(name)]
    return views, dict(zip(order, shown[1:], strict=True)), list(itertools.accumulate(shown, added))


def test_example_1_without_the_registry_v0_matches_no_state_of_b2() -> None:
    views, v1, states1 = maintained("v1", (11, 21))
    _, v2, states2 = maintained("v2", (21, 11))
    assert v1 == {11: {(1, 10): 1}, 21: {(1, 10): -1, (1, 20): 1}}
    assert v2 == {21: {}, 11: {(1, 20): 1}}, "dV2/11 reflects the new states of B1 and of B2"
    assert states1 == [{}, {(1, 10): 1}, {(1, 20): 1}]
    assert states2 == [{}, {}, {(1, 20): 1}]
    for name, states in (("v1", states1), ("v2", states2)):
        assert base_inconsistency(watched(views, name, states), STATES_OF_BASES) is None, name

    states0 = v0_from(v1, v2)
    assert states0 == [{}, {(1, 10, 20): 1}, {(1, 20, 20): 1}]
    assert base_inconsistency(watched(views, "v0", states0), STATES_OF_BASES) == 1

    by_du1 = watched(views, "v1", [{}, states1[1], states1[2]])
    by_du2 = watched(views, "v2", [{}, states2[2], states2[1]])
    assert view_inconsistency(by_du1, by_du2, STATES_OF_BASES) == 1, "definition 5"


def v0_from(v1: Mapping[int, Bag], v2: Mapping[int, Bag]) -> list[Bag]:
    """V0's states when dV1/11 and dV2/11 come under one number, then dV1/21 and dV2/21."""
    views = world()
    node, states = views.nodes["v0"], [{}]
    for number, du in enumerate((11, 21), 1):
        run = RelRun(first=number, last=number, views=("v0", "v1", "v2"))
        sent = node.handle(Updates(group="g", first=number, last=number, runs=(run,), relations={}))
        for name, deltas in (("v1", v1), ("v2", v2)):
            assert sent == [], "it waits for both parents"
            delta = views.operators.pack({(number, row): n for row, n in deltas[du].items()})
            sent = node.handle(
                ActionList(group="g", view=name, first=number, last=number, delta=delta)
            )
        views.lists["v0"] += sent
        states.append(added(states[-1], views.shown("v0")[-1][3]))
    return states


@pytest.mark.parametrize("modes", [{}, {"v1": "sweep", "v2": "compensating", "v0": "sweep"}])
@pytest.mark.parametrize("first", ["v1", "v2"])
def test_example_4_with_the_registry_it_does(modes: dict[str, str], first: str) -> None:
    """The receive-message-order does not matter: all follow 11, 21."""
    views = world(modes)
    for du in (11, 21):
        views.publish(views.commit(*DU[du]))
    second = {"v1": "v2", "v2": "v1"}[first]
    for channel in [(f, v) for v in (first, second, "v0") for f in ("sources", "sources")]:
        views.deliver(*channel)
        while asking := [name for name, node in views.nodes.items() if node.statements]:
            views.ask(asking[0])
    assert views.nodes["v0"].mediator.number == 0, "both of UMQ's numbers wait for the parents"
    views.settle()
    deltas = [(0, 0, True, {}), (1, 1, True, {(1, 10): 1}), (2, 2, True, {(1, 10): -1, (1, 20): 1})]
    assert views.shown("v1") == deltas, "dV1/11 has only the effect of dB1/11"
    assert views.shown("v2") == deltas
    assert views.shown("v0") == [
        (0, 0, True, {}),
        (1, 1, True, {(1, 10, 10): 1}),
        (2, 2, True, {(1, 10, 10): -1, (1, 20, 20): 1}),
    ]
    shown = {
        name: list(itertools.accumulate((rows for *_, rows in views.shown(name)), added))
        for name in views.trees
    }
    every = {name: watched(views, name, states) for name, states in shown.items()}
    for one in every.values():
        assert base_inconsistency(one, STATES_OF_BASES) is None
    for one, other in itertools.combinations(every.values(), 2):
        assert view_inconsistency(one, other, STATES_OF_BASES) is None


def test_example_2_the_view_dependency_graph_of_example_1() -> None:
    graph = view_graph({"V0": ["V1", "V2"], "V1": ["B1", "B2"], "V2": ["B1", "B2"]})
    assert graph.vpl["V0"] == ("V1", "V2")
    assert graph.base_ancestors["V0"] == graph.base_ancestors["V1"] == {"B1", "B2"}
    assert graph.dependent("V1", "V2")
    assert pyco(graph) == (frozenset({"V0", "V1", "V2"}),)


# Example 6: the partition -------------------------------------------------------------------------

FIGURE_10 = {
    "V1": ["B1", "B5"],
    "V2": ["B1", "B2"],
    "V3": ["B2", "B3", "B4"],
    "V4": ["B3", "B4"],
    "V5": ["V2", "V3"],
    "V6": ["V3", "V4", "V5"],
    "V7": ["B1", "B5", "V1"],
    "V8": ["B6", "V6"],
}
GRAPH = view_graph(FIGURE_10)
DWG1, DWG2, DWG3 = (
    frozenset(["V2", "V3", "V4", "V5", "V6"]),
    frozenset({"V1", "V7"}),
    frozenset({"V8"}),
)


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def test_example_6_initialization() -> None:
    assert GRAPH.bdl == {
        "B1": names("B1 V1 V2 V5 V6 V7 V8"),
        "B2": names("B2 V2 V3 V5 V6 V8"),
        "B3": names("B3 V3 V4 V5 V6 V8"),
        "B4": names("B4 V3 V4 V5 V6 V8"),
        "B5": names("B5 V1 V7"),
        "B6": names("B6 V8"),
    }
    assert {view: list(parents) for view, parents in GRAPH.vpl.items()} == FIGURE_10
    assert GRAPH.level == {
        **dict.fromkeys(["B1", "B2", "B3", "B4", "B5", "B6"], 0),
        **dict.fromkeys(["V1", "V2", "V3", "V4"], 1),
        **{"V5": 2, "V7": 2, "V6": 3, "V8": 4},
    }


def up_to(*views: str) -> set[frozenset[str]]:
    """The groups once these views have been taken out of UGS."""
    return set(pyco(view_graph({view: FIGURE_10[view] for view in views})))


def test_example_6_step_by_step() -> None:
    level1 = ("V1", "V2", "V3", "V4")
    assert up_to(*level1) == {frozenset({view}) for view in level1}

    assert GRAPH.dependent_group_bases({"V5"}) == {"V2", "V3"}, "both are in BDL(B2)"
    assert GRAPH.group_bases({"V5", "V2", "V3"}) == names("B1 B2 B3 B4")
    assert GRAPH.valid({"V5", "V2", "V3"})
    assert up_to(*level1, "V5") == {names("V2 V3 V5"), names("V1"), names("V4")}

    assert GRAPH.dependent_group_bases({"V7"}) == {"B1", "B5", "V1"}
    assert GRAPH.lacking({"V7"}) == {"V1"}, "its ancestors B1 and B5 stay bases"
    assert up_to(*level1, "V5", "V7") == {names("V2 V3 V5"), names("V1 V7"), names("V4")}
    assert up_to(*level1, "V5", "V7", "V6") == {DWG1, DWG2}
    assert GRAPH.valid({"V8"}), "B6 and V6 are independent"
    assert set(pyco(GRAPH)) == {DWG1, DWG2, DWG3}


def test_example_5_and_figure_11_bases_inside_and_outside_of_the_groups() -> None:
    assert internal_bases(GRAPH, pyco(GRAPH)) == {
        DWG1: ("B1", "B2", "B3", "B4"),
        DWG2: ("B5",),
        DWG3: ("B6",),
    }
    assert GRAPH.group_bases(DWG1) == names("B1 B2 B3 B4")
    assert GRAPH.group_bases(DWG2) == names("B1 B5"), "EB1 is B1"
    assert GRAPH.group_bases(DWG3) == names("B6 V6"), "an external base that is virtual"


# Section 5: costs ---------------------------------------------------------------------------------


def test_section_5_the_costs_of_example_6() -> None:
    """k = 10 updates at each of m = 6 bases, n = 8 views; t_t = 1, t_v = 2, t_w = 3."""
    views = GRAPH.views
    rates = Rates(
        dict.fromkeys(GRAPH.bases, 10), 1, dict.fromkeys(views, 2), dict.fromkeys(views, 3)
    )
    one = ryco(GRAPH, rates)
    assert (one.registry, one.views) == (60, 480), "k*m and k*m*n"
    partition = pyco(GRAPH)
    assert {g: group_updates(GRAPH, g, rates) for g in partition} == {
        DWG1: 40,
        DWG2: 20,
        DWG3: 10 + 40,
    }, "k*m_i + f_i; f of DWG3: V6 hands on the updates of B1 to B4"
    parts = pyco_costs(GRAPH, partition, rates)
    assert (parts.registry, parts.views) == (110, 40 * 5 + 20 * 2 + 50 * 1)
    assert formula_6(GRAPH, partition, rates) == parts.views - one.views == -190

    delay: dict[str, Any] = {"V1": 2 + 5, "V5": 3 + 10, "V6": 4 + 15, "V8": 5 + 20}
    assert {view: one.delay[view] for view in delay} == delay, "(i+1)*t_t + sum of t_v and t_w"
    assert parts.group_level == {**dict.fromkeys(views, 0), "V8": 1}, "definition 12"
    assert {v: parts.delay[v] for v in delay} == {**delay, "V8": delay["V8"] + 1}, "+ j*t_t"


def test_formula_6_is_nothing_when_every_group_has_all_bases() -> None:
    graph = view_graph({"V1": ["B1", "B2"], "V2": ["B1", "B2"]})
    rates = Rates({"B1": 3, "B2": 4})
    assert formula_6(graph, pyco(graph), rates) == 0, "the worst case of 5.1"
    assert pyco_costs(graph, pyco(graph), rates).registry == 14, "but M_r doubles"


# Mistakes -----------------------------------------------------------------------------------------


def merge_group_as_printed(graph: ViewGraph) -> set[frozenset[str]]:
    """Figure 12 word by word: each real base is a group, and is taken in like a view."""
    gs = {base: frozenset((base,)) for base in graph.bases}

    def dependent_group_bases(group: frozenset[str]) -> set[str]:
        inside = group & set(graph.bases)
        gb = inside | graph.group_bases(group - inside)
        pairs = itertools.combinations(sorted(gb), 2)
        return {base for pair in pairs if graph.dependent(*pair) for base in pair}

    for view in sorted(graph.views, key=graph.level.__getitem__):
        group = frozenset((view,))
        while dgb := dependent_group_bases(group):
            group = group.union(*(gs[base] for base in dgb))
        gs.update(dict.fromkeys(group, group))
    return set(gs.values())


def test_figure_12_as_printed_does_not_make_the_most_groups() -> None:
    graph = view_graph({"P": ["B"], "Q": ["P"], "V": ["P", "Q"]})
    assert graph.valid({"P"}) and graph.valid({"Q", "V"})
    assert set(pyco(graph)) == {names("P"), names("Q V")}
    assert merge_group_as_printed(graph) == {names("P Q V"), names("B")}


def test_figure_12_as_printed_ties_groups_together_over_a_real_base() -> None:
    graph = view_graph({"P1": ["B"], "P2": ["B"], "V1": ["B", "P1"], "V2": ["B", "P2"]})
    best = {frozenset({"P1", "V1"}), frozenset({"P2", "V2"})}
    assert all(graph.valid(group) for group in best)
    assert set(pyco(graph)) == best
    assert merge_group_as_printed(graph) == {names("B P1 P2 V1 V2")}


def test_figure_12_as_printed_takes_b1_out_of_figure_11_s_dwg1() -> None:
    bases = {frozenset({base}) for base in ("B2", "B3", "B4", "B6")}
    assert merge_group_as_printed(GRAPH) == {DWG1, DWG2 | {"B1", "B5"}, DWG3, *bases}


def test_atomic_groups_may_feed_each_other() -> None:
    graph = view_graph({"A": ["B1"], "C": ["B2"], "X": ["A", "B1", "C"], "Y": ["C", "B2", "A"]})
    left, right = frozenset({"A", "X"}), frozenset({"C", "Y"})
    assert pyco(graph) == (left, right)
    assert graph.group_bases(left) == {"B1", "C"} and graph.group_bases(right) == {"B2", "A"}
    costs = pyco_costs(graph, (left, right), Rates({"B1": 1, "B2": 1}))
    assert set(costs.group_level.values()) == {1}
