"""Keys of views: derived where rows cannot coincide, and only there."""

from __future__ import annotations

import pytest

from streaming.algebra.keys import derive_key
from streaming.algebra.tree import Distinct, Monus
from streaming.sql.parse import parse
from tests.golden.bank_relations import RELATIONS

JOIN = "FROM north.entry e JOIN north.account a ON e.account = a.id"
CASES = [
    ("SELECT owner, id FROM north.account", (1,)),
    ("SELECT owner FROM north.account", None),
    ("SELECT owner FROM north.account WHERE id = 5", ()),
    ("SELECT owner FROM north.account WHERE id = 5 OR id = 6", None),
    ("SELECT CAST(id AS STRING) AS id FROM north.account", (0,)),
    ("SELECT CAST(id AS DECIMAL(19,0)) AS id FROM north.account", (0,)),
    ("SELECT CAST(id AS INT) AS id FROM north.account", None),
    ("SELECT id + 1 AS id FROM north.account", None),
    (f"SELECT a.owner, e.id {JOIN}", (1,)),
    (f"SELECT a.owner, a.id {JOIN}", None),
    (f"SELECT a.owner, e.amount {JOIN}", None),
    (f"SELECT a.owner, a.id, e.amount {JOIN} WHERE e.id = 3", ()),
    ("SELECT a.id, b.id AS b FROM north.account a CROSS JOIN south.account b", (0, 1)),
    ("SELECT b.id FROM north.account a JOIN south.account b ON a.id = b.id", (0,)),
    ("SELECT branch, COUNT(*) AS n FROM north.account GROUP BY branch", (0,)),
    ("SELECT COUNT(*) AS n FROM north.account GROUP BY branch", None),
    ("SELECT owner, branch, COUNT(*) AS n FROM north.account GROUP BY branch, owner", (0, 1)),
    ("SELECT 'x' AS x, branch, COUNT(*) AS n FROM north.account GROUP BY 1, 2", (1,)),
    ("SELECT COUNT(*) AS n FROM north.account", ()),
    ("SELECT id FROM north.account UNION ALL SELECT id FROM south.account", None),
    ("SELECT 1 AS d, id FROM north.account UNION ALL SELECT 2, id FROM south.account", (0, 1)),
    ("SELECT 1 AS d, id FROM north.account UNION ALL SELECT 1, id FROM south.account", None),
    ("SELECT 1 AS d, id FROM north.account UNION ALL SELECT 2.0, id FROM south.account", (0, 1)),
    ("SELECT 1 AS d, owner FROM north.account UNION ALL SELECT 2, owner FROM south.account", None),
    (
        "SELECT 1 AS d, COUNT(*) AS n FROM north.entry "
        "UNION ALL SELECT 2, COUNT(*) FROM south.entry",
        (0,),
    ),
    (
        "SELECT id, owner FROM (SELECT 'n' AS d, id, owner FROM north.account UNION ALL "
        "SELECT 's', id, owner FROM south.account) u WHERE d = 'n'",
        None,
    ),
]


@pytest.mark.parametrize(("sql", "key"), CASES, ids=[sql for sql, _ in CASES])
def test_a_view_has_the_key_its_relations_give_it(sql, key):
    assert derive_key(parse(sql, RELATIONS), RELATIONS) == key


def test_without_duplicates_the_whole_row_is_a_key_and_monus_keeps_its_left_side_s():
    owners = parse("SELECT owner, branch FROM north.account", RELATIONS)
    keyed = parse("SELECT owner, id FROM north.account", RELATIONS)
    assert derive_key(owners, RELATIONS) is None
    assert derive_key(Distinct(owners), RELATIONS) == (0, 1)
    assert derive_key(Distinct(keyed), RELATIONS) == (1,)
    assert derive_key(Monus(keyed, owners), RELATIONS) == (1,)
    assert derive_key(Monus(owners, keyed), RELATIONS) is None


def test_a_relation_without_a_primary_key_gives_none():
    keyless = {n: r.__class__(r.name, r.schema) for n, r in RELATIONS.items()}
    tree = parse("SELECT id, owner, branch FROM north.account", keyless)
    assert derive_key(tree, keyless) is None
