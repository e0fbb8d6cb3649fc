"""moro-sartori: figure 2's rules, equations (1) to (3), and what the paper leaves out, smallest first.

Written as the paper does: +E and -E for the delta tables of E in the state old, E° for E in that state,
⋈ for joins, ⊎ and - for additive union and monus.
"""

from __future__ import annotations

import pytest

from streaming.algebra.bag import Bag, evaluate
from streaming.algebra.tree import Distinct, Join, Monus, Project, Scan, Select, Tree, Union
from streaming.isolated.add_del import IDS, added, deleted, delta_table, ids_read, table_in, terms
from streaming.scalars.expression import Call, Col, Column, Lit

X = (Column("x", "bigint"),)
E, F, G = (Scan(name, X) for name in ("e.E", "f.F", "g.G"))
P = Call(">", (Col(0, "bigint"), Lit(1, "bigint")), "boolean")


def pairs(left: Tree, right: Tree) -> Join:
    """E ⋈ F over one column each, without a condition: a product."""
    return Join(left, right, (), None)


SYMBOLS = {
    "added": "+{}",
    "deleted": "-{}",
    "old": "{}°",
    "past": "{}ᵖ",
    "kept": "({0}°-+{0})",
    "inserted_rows": "▲{}",
    "deleted_rows": "▼{}",
}


def text(tree: Tree) -> str:
    """A tree as the paper writes it."""
    match tree:
        case Scan():
            name, _, state = tree.relation.split(".")[-1].partition("@")
            return SYMBOLS.get(state, "{}").format(name)
        case Select():
            return f"select({text(tree.child)})"
        case Project(child=Join(left=table, right=Scan(relation="@ids"))):
            return text(table).replace("▲", "+").replace("▼", "-")  # of the ids read
        case Project(child=Scan()) if "_rows" in tree.child.relation:
            return text(tree.child)
        case Project():
            return f"project({text(tree.child)})"
        case Join():
            return f"({text(tree.left)} ⋈ {text(tree.right)})"
        case Union():
            return f"({' ⊎ '.join(map(text, tree.children))})"
        case Monus():
            return f"({text(tree.left)} - {text(tree.right)})"
        case Distinct():
            return f"distinct({text(tree.child)})"
    raise AssertionError(tree)


PROJECTED = Project(E, (Col(0, "bigint"),), X)
FIGURE_2 = [
    (E, "+E", "-E"),
    (Select(E, P), "select(+E)", "select(-E)"),
    (PROJECTED, "project(+E)", "project(-E)"),
    (
        pairs(E, F),
        "((+E ⋈ +F) ⊎ (+E ⋈ (F°-+F)) ⊎ ((E°-+E) ⋈ +F))",
        "((-E ⋈ -F) ⊎ (-E ⋈ (F°-+F)) ⊎ ((E°-+E) ⋈ -F))",
    ),
    (Union((E, F)), "(+E ⊎ +F)", "(-E ⊎ -F)"),
    (Distinct(E), "(distinct(+E) - distinct(Eᵖ))", "(distinct(-E) - distinct(E°))"),
    (Monus(E, F), "((E° - F°) - (Eᵖ - Fᵖ))", "((Eᵖ - Fᵖ) - (E° - F°))"),
    (
        pairs(Select(E, P), F),
        "((select(+E) ⋈ +F) ⊎ (select(+E) ⋈ (F°-+F)) ⊎ ((select(E°) - select(+E)) ⋈ +F))",
        "((select(-E) ⋈ -F) ⊎ (select(-E) ⋈ (F°-+F)) ⊎ ((select(E°) - select(+E)) ⋈ -F))",
    ),
]


@pytest.mark.parametrize(("query", "add", "less"), FIGURE_2, ids=[text(q) for q, _, _ in FIGURE_2])
def test_figure_2(query: Tree, add: str, less: str) -> None:
    assert text(added(query)) == add
    assert text(deleted(query)) == less


def test_the_terms_of_three_relations() -> None:
    """The first two terms of each join are one, as +F ⊎ (F°-+F) = F° and -F ⊎ (F°-+F) = Fᵖ."""
    assert terms(3, "ADD") == (
        ("added", "old", "old"),
        ("kept", "added", "old"),
        ("kept", "kept", "added"),
    )
    assert terms(3, "DEL") == (
        ("deleted", "past", "past"),
        ("kept", "deleted", "past"),
        ("kept", "kept", "deleted"),
    )


def test_equations_1_to_3_with_netted_delta_tables() -> None:
    net = "((E - (▲E - ▼E)) ⊎ (▼E - ▲E))"
    assert text(table_in(E, "past")) == net, "(2)"
    assert text(table_in(E, "old")) == f"(({net} - (-E - +E)) ⊎ (+E - -E))", "(1) with (2) is (3)"


def test_the_three_way_rule_printed_in_5_4_is_not_what_the_recursion_gives() -> None:
    query = pairs(pairs(E, F), G)
    states = {"e.E@added": {(1,): 1}, "f.F@added": {}, "g.G@added": {}}
    states |= {"e.E@kept": {}, "f.F@kept": {(2,): 1}, "g.G@kept": {(3,): 1}}
    states |= {"e.E@old": {(1,): 1}, "f.F@old": {(2,): 1}, "g.G@old": {(3,): 1}}
    assert evaluate(added(query), states) == {(1, 2, 3): 1}
    printed = Join(added(pairs(E, F)), added(pairs(F, G)), ((1, 0),), None)
    assert evaluate(printed, states) == {}, "F ⋈ G has not changed, so nothing is joined with it"


def source(table: list[int], more: list[tuple], less: list[tuple], ids: tuple[str, ...]) -> dict:
    """The table E, its delta tables and the ids read."""
    inserted, gone = delta_table(E, "inserted").relation, delta_table(E, "deleted").relation
    return {
        "e.E": {(x,): 1 for x in table},
        inserted: dict.fromkeys(more, 1),
        gone: dict.fromkeys(less, 1),
        IDS: {(each,): 1 for each in ids},
    }


def as_printed(tables: dict[str, Bag], ids: tuple[str, ...]) -> tuple[Bag, Bag]:
    """Equations (2) and (1) over delta tables as the triggers filled them."""
    inserted, gone = delta_table(E, "inserted").relation, delta_table(E, "deleted").relation
    bags = {
        "R": tables["e.E"],
        "more": {(x,): n for (x, _), n in tables[inserted].items()},
        "less": {(x,): n for (x, _), n in tables[gone].items()},
        "+R": {(x,): n for (x, tid), n in tables[inserted].items() if tid in ids},
        "-R": {(x,): n for (x, tid), n in tables[gone].items() if tid in ids},
    }
    r, more, less, plus, minus = (Scan(name, X) for name in bags)
    past = Union((Monus(r, more), less))
    return evaluate(past, bags), evaluate(Union((Monus(past, minus), plus)), bags)


def test_delta_tables_that_are_not_netted_bring_back_a_row_that_came_and_went() -> None:
    """The table is empty before and after; x = 1 is inserted by T1 and deleted by T2."""
    tables = source([], [(1, "T1")], [(1, "T2")], ("T1", "T2"))
    assert as_printed(tables, ("T1", "T2")) == ({(1,): 1}, {(1,): 1}), "as printed"
    assert evaluate(table_in(E, "past"), tables) == {}
    assert evaluate(table_in(E, "old"), tables) == {}
    assert evaluate(table_in(E, "added"), tables) == {}


def test_ids_read_in_two_statements_split_transactions_that_depend_on_each_other() -> None:
    """T1 inserts x = 1 into E; T2 deletes it and changes another table. E's ids are read before, the
    other's after. In this session T2 is old, in the next one T1 is, and x stays for good."""
    first = source([], [(1, "T1")], [(1, "T2")], ("T2",))
    assert evaluate(table_in(E, "deleted"), first) == {(1,): 1}, "of a row the view never had"
    second = source([], [(1, "T1")], [], ("T1",))
    assert evaluate(table_in(E, "added"), second) == {(1,): 1}
    assert evaluate(table_in(E, "old"), second) == {(1,): 1}, "and E is empty"
    (union,) = (node for node in (ids_read((E, F)).child,) if isinstance(node, Union))
    assert [text(each) for each in union.children] == ["▲E", "▼E", "▲F", "▼F"], "one statement"
