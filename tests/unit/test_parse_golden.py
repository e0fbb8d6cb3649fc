"""Golden pairs: a SELECT and its tree in normal form (`tests/golden/parse.txt`).

To write the file anew after a change that is meant: python -m tests.unit.test_parse_golden
"""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.algebra.tree import Project, Scan, Select, walk
from streaming.scalars.expression import Col
from streaming.sql.parse import parse
from tests.golden.bank_relations import RELATIONS
from tests.golden.tree_text import tree_text

PATH = Path(__file__).parent.parent / "golden" / "parse.txt"
PAIRS = [
    tuple(part.strip("\n") for part in pair.split("\n----\n"))
    for pair in PATH.read_text(encoding="utf-8").split("\n====\n")
]


@pytest.mark.parametrize(("sql", "tree"), PAIRS, ids=[sql[:50] for sql, _ in PAIRS])
def test_a_select_parses_to_its_golden_tree(sql, tree):
    assert tree_text(parse(sql, RELATIONS)) == tree


@pytest.mark.parametrize("sql", [sql for sql, _ in PAIRS])
def test_every_scan_stands_under_a_projection_of_plain_columns_in_order(sql):
    tree = parse(sql, RELATIONS)
    parents = {id(child): node for node in walk(tree) for child in node.children}
    for scan in (node for node in walk(tree) if isinstance(node, Scan)):
        above = parents[id(scan)]
        if isinstance(above, Select):
            above = parents[id(above)]
        assert isinstance(above, Project)
        positions = [e.position for e in above.expressions if isinstance(e, Col)]
        assert len(positions) == len(above.expressions) > 0
        assert positions == sorted(set(positions))


def write() -> None:
    pairs = [f"{sql}\n----\n{tree_text(parse(sql, RELATIONS))}" for sql, *_ in PAIRS]
    PATH.write_text("\n====\n".join(pairs) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
