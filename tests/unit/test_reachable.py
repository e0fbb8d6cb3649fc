"""What no command, configuration or public name can reach is not there (DESIGN 12)."""

from __future__ import annotations

import ast
import re
from collections import Counter

from test_imports import FILES, graph

from streaming.viewmanagers.modes import MODES

ROOTS = {
    *("app", "__main__", "readers", "simulator.__main__"),
    *("spark.java", "spark.jars", "demo.embedded.mariadb_server", "demo.embedded.training"),
    *("demo.embedded.compose", "demo.embedded.register"),
}
"""Modules that somebody runs or imports: spark-submit, `fresco`, a reader, the Makefile."""
KEPT = {
    "simulator.isolated_histories": "histories of `isolated`, which the fence's tests run",
    "simulator.delta_source": "the same",
    "pipeline.consistency": "inconsistency in figures (ryco-pyco 4), of the pure layer only",
    "demo.bank.bulk_transfers": "the benchmarks fill a bank with it",
    "demo.embedded.mariadb_server.Mariadb": "the server of tests and benchmarks that need one",
    "pipeline.costs.formula_6": "ryco-pyco's formula, which its golden example checks",
    "pipeline.pyco.internal_bases": "ryco-pyco's term, which its golden example checks",
    "service.terminal.on_broken_pipe": "rich calls it",
}
"""Modules and names that only tests reach, or libraries by their own names, and why they stay."""
DECORATED = {"property", "cached_property", "staticmethod", "classmethod"}


def test_every_module_can_be_reached() -> None:
    edges = graph(FILES)
    waiting = [
        *ROOTS,
        *(info.manager.partition(":")[0][len("streaming.") :] for info in MODES.values()),
    ]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += edges[name]
    modules = {name for name in edges if f"{name.replace('.', '/')}.py" in FILES}
    assert sorted(modules - seen - KEPT.keys() - {"__init__"}) == []


def words() -> Counter[str]:
    """How often each name is used anywhere in the program; definitions do not count."""
    used: Counter[str] = Counter()
    for tree in FILES.values():
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
                    used[name] += 1
                case ast.keyword(arg=str(name)):
                    used[name] += 1
                case ast.Constant(value=str(text)) if len(text) < 80:
                    used.update(re.findall(r"\w+", text))
    return used


def test_every_name_is_used() -> None:
    used, unused = words(), []
    for file, tree in FILES.items():
        module = file.removesuffix(".py").replace("/", ".")
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("__"):
                continue
            decorators = {ast.unparse(one) for one in node.decorator_list}
            registered = not decorators <= DECORATED and isinstance(node, ast.FunctionDef)
            kept = module in KEPT or f"{module}.{node.name}" in KEPT
            if not used[node.name] and not registered and not kept:
                unused.append(f"{file}:{node.lineno} {node.name}")
    assert unused == []


def test_no_class_has_the_name_of_another_and_no_module() -> None:
    """One name, one meaning (STYLE 4)."""
    names = [
        node.name
        for tree in FILES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    stems = [
        file.rpartition("/")[2] for file in FILES if not file.rpartition("/")[2].startswith("__")
    ]
    assert [stem for stem, count in Counter(stems).items() if count > 1] == []
