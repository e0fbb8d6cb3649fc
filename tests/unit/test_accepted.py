"""Every argument of every node that a view may have is consumed, or the view is refused.

The table `ACCEPTED` says which; here it is held against sqlglot's own list of arguments, against what
the builder makes of a tree with an argument taken away, and against the texts that Spark runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlglot import exp

from streaming.errors import FrescoError
from streaming.scalars.functions import AGGREGATES, CALLS
from streaming.sql.accepted import ACCEPTED, check
from streaming.sql.parse import parse, parsed
from streaming.sql.scope import Text
from streaming.sql.syntax import syntax
from tests.golden.accepted_texts import RELATIONS, TEXTS

VALUES = (
    True,
    "word",
    7,
    exp.to_identifier("word"),
    [exp.to_identifier("word")],
    exp.Literal.number(1),
)
SAME = {
    (exp.Identifier, "quoted"): "a name is the same name in backticks",
    (exp.Column, "db"): "q.k is s.q.k where no other q is in FROM",
    (exp.DataType, "this"): "the type is read as it is written",
    (exp.DataType, "expressions"): "the type is read as it is written",
    (exp.DataTypeParam, "this"): "the type is read as it is written",
    (exp.Div, "typed"): "sqlglot's own note, always the same",
    (exp.Div, "safe"): "sqlglot's own note, always the same",
    (exp.DPipe, "safe"): "sqlglot's own note, always the same",
    (exp.DataType, "nested"): "only False is taken",
    (exp.Join, "kind"): "INNER and CROSS join alike",
    (exp.Literal, "is_string"): "a number that is a text has another type",
}


def nodes() -> Iterator[tuple[str, exp.Expr, exp.Expr]]:
    """Each text with each of its nodes, in a tree of its own for each text."""
    for sql in TEXTS:
        root = syntax(Text(sql))
        for node in root.walk():
            yield sql, root, node


def test_every_text_is_accepted():
    for sql in TEXTS:
        parse(sql, RELATIONS)


def test_every_accepted_class_argument_and_function_has_a_text():
    used = {
        (type(node), key) for _, _, node in nodes() for key, value in node.args.items() if value
    }
    assert {type(node) for _, _, node in nodes()} == set(ACCEPTED)
    taken = {(kind, key) for kind, keys in ACCEPTED.items() for key in keys}
    unused = {(exp.Table, "catalog"), (exp.Column, "catalog")}  # no relation has such a name
    only_false = {(exp.DataType, "nested"), (exp.Div, "typed")}
    assert taken - used == unused | only_false
    called = {n.name.lower() for _, _, n in nodes() if isinstance(n, exp.Anonymous)}
    assert called == set(CALLS) - {"substr", "substring", "trim"} | set(AGGREGATES)


def test_an_argument_that_is_not_consumed_is_refused():
    """Each one that sqlglot knows, and one that it does not know, with values of every kind."""
    tried = set()
    for sql, root, node in nodes():
        free = {*node.arg_types, "unheard_of"} - set(ACCEPTED[type(node)])
        for key in free - {k for t, k in tried if t is type(node)}:
            tried.add((type(node), key))
            for value in VALUES:
                node.args[key] = value
                with pytest.raises(FrescoError) as raised:
                    check(Text(sql), root)
                assert raised.value.where.startswith("line 1, column ")
            del node.args[key]
    assert len(tried) > 150


def test_a_value_that_is_not_consumed_is_refused():
    tried = 0
    for sql, root, node in nodes():
        for key, value in ACCEPTED[type(node)].items():
            if isinstance(value, tuple):
                before = node.args.get(key)
                node.args[key] = "OTHER"
                with pytest.raises(FrescoError):
                    check(Text(sql), root)
                node.args[key] = before
                tried += 1
    assert tried > 10


def test_an_argument_that_is_taken_away_makes_another_tree_or_an_error():
    """So the builder looks at what the table says it consumes."""
    told: set[tuple[type[exp.Expr], str]] = set()
    for sql, root, node in nodes():
        for key in [key for key, value in node.args.items() if value]:
            if (type(node), key) in told | set(SAME):
                continue
            whole = parsed(Text(sql), root, RELATIONS)
            value = node.args.pop(key)
            try:
                same = parsed(Text(sql), root, RELATIONS) == whole
            except Exception:  # the tree is no longer well formed: the argument was looked for
                same = False
            node.args[key] = value
            if not same:
                told.add((type(node), key))
    wanted = {(t, k) for _, _, n in nodes() for t in [type(n)] for k, v in n.args.items() if v}
    assert wanted - told - set(SAME) == set()


def test_a_class_of_node_that_is_not_in_the_table_is_refused():
    for sql, root, node in nodes():
        if isinstance(node, exp.Where):
            node.args["this"] = exp.RegexpLike(this=node.this, expression=exp.Literal.string("x"))
            with pytest.raises(FrescoError):
                check(Text(sql), root)
