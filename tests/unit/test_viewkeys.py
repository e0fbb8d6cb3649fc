"""Where a view's outputs hold the keys of its relations, and how missing ones are added."""

from __future__ import annotations

import random

import pytest

from streaming.algebra.bag import Bag, evaluate
from streaming.algebra.psj import psj_of
from streaming.algebra.tree import Relation, Tree
from streaming.algebra.view_keys import key_chain, keys_of, refuse_self_join, with_keys
from streaming.errors import FrescoError
from tests.askedsources import tables, view

R = tables(x__r="a b", y__s="b c", z__t="c d")
PRIMARY = {name: relation.key for name, relation in R.items()}
FROM = "FROM x.r r JOIN y.s s ON r.b = s.b JOIN z.t t ON s.c = t.c"


def test_a_key_is_held_by_its_own_output_or_by_one_that_always_equals_it() -> None:
    keys = keys_of(psj_of(view(f"SELECT t.d, r.b, t.c, r.a {FROM}", R)), PRIMARY)
    assert [place.key for place in keys.places] == [((0, 3),), ((0, 1),), ((0, 2),)]
    assert keys.places[1].shown == ((0, 1), (1, 2)), "s.c is shown as t.c"
    assert [place.whole for place in keys.places] == [True, True, True]
    assert keys.outputs == (1, 2, 3)


def test_a_view_that_lacks_a_key_is_refused_with_what_to_do() -> None:
    with pytest.raises(FrescoError) as error:
        keys_of(psj_of(view(f"SELECT r.a, t.d, t.c {FROM}", R)), PRIMARY)
    assert error.value.code == "VIEW_KEY_MISSING"
    assert "y.s" in error.value.what
    assert "with_keys" in error.value.todo


def test_missing_key_columns_are_added_at_the_end_and_named_as_hidden_ones() -> None:
    tree, hidden = with_keys(view(f"SELECT t.d, r.a {FROM}", R), R)
    assert hidden == (2, 3)
    assert [column.name for column in tree.schema] == ["d", "a", "_key.y.s.b", "_key.z.t.c"]
    keys = keys_of(psj_of(tree), PRIMARY)
    assert [place.key for place in keys.places] == [((0, 1),), ((0, 2),), ((0, 3),)]


def test_a_view_that_has_its_keys_stays_as_it_is() -> None:
    tree = view(f"SELECT r.a, s.b, t.c {FROM}", R)
    assert with_keys(tree, R) == (tree, ())


def test_a_hidden_column_keeps_clear_of_a_name_that_a_user_gave() -> None:
    tree, _ = with_keys(view(f"SELECT r.a, s.b, t.d AS `_key.z.t.c` {FROM}", R), R)
    assert [column.name for column in tree.schema][2:] == ["_key.z.t.c", "_key.z.t.c_"]


def test_a_relation_without_a_primary_key_is_refused_by_name() -> None:
    bare = {**R, "y.s": Relation("y.s", R["y.s"].schema)}
    with pytest.raises(FrescoError) as error:
        with_keys(view(f"SELECT r.a {FROM}", R), bare)
    assert error.value.code == "VIEW_KEY_MISSING"
    assert "y.s has no primary key" in error.value.what
    assert "compensating" in error.value.todo


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT t.d {FROM} WHERE r.a + t.d > 2 AND s.c < 3",
        "SELECT q.e, t.d FROM (SELECT b + 1 AS e, b FROM x.r WHERE a > 0) q"
        " JOIN y.s s ON q.b = s.b JOIN z.t t ON t.c = s.c",
        "SELECT s.c + r.b AS n FROM x.r r, y.s s WHERE r.b < s.b",
        "SELECT 1 AS one FROM x.r",
    ],
)
def test_the_view_with_keys_is_the_view_with_more_columns(sql: str) -> None:
    tree = view(sql, R)
    wide, hidden = with_keys(tree, R)
    width = len(tree.schema)
    assert hidden == tuple(range(width, len(wide.schema)))
    assert wide.schema[:width] == tree.schema
    keys = keys_of(psj_of(wide), PRIMARY)
    rng = random.Random(4)
    for _ in range(30):
        rows = {name: _keyed_rows(rng) for name in R}
        full = evaluate(wide, rows)
        assert _projected(full, width) == evaluate(tree, rows)
        assert len({tuple(row[o] for o in keys.outputs) for row in full}) == len(full)
        assert set(full.values()) <= {1}, "a view row has one derivation"


def _keyed_rows(rng: random.Random) -> Bag:
    return {(key, rng.randrange(3)): 1 for key in range(4) if rng.random() < 0.7}


def _projected(rows: Bag, width: int) -> Bag:
    found: Bag = {}
    for row, count in rows.items():
        found[row[:width]] = found.get(row[:width], 0) + count
    return found


def test_a_chain_of_keys_leads_from_a_row_to_all_it_joins_with() -> None:
    psj = psj_of(view(f"SELECT r.a, s.b, t.c, t.d {FROM}", R))
    keys = keys_of(psj, PRIMARY)
    chain = key_chain(psj, keys, 0)
    assert chain is not None
    assert [(step.place, step.known) for step in chain] == [(1, (1,)), (2, (3,))]
    assert key_chain(psj, keys, 1) is None, "a row of s may join with many of r"


def test_no_chain_goes_through_a_place_that_the_view_does_not_show_whole() -> None:
    psj = psj_of(view(f"SELECT r.a, s.b, t.c {FROM} WHERE r.a < t.d", R))
    assert key_chain(psj, keys_of(psj, PRIMARY), 0) is None, "t.d is not shown"


def test_a_self_join_is_refused_with_the_modes_that_can() -> None:
    tree: Tree = view("SELECT p.a, q.a AS a2 FROM x.r p JOIN x.r q ON p.b = q.a", R)
    with pytest.raises(FrescoError) as error:
        refuse_self_join(psj_of(tree), "strobe")
    assert error.value.code == "VIEW_SELF_JOIN"
    assert "x.r is used 2 times" in error.value.what
