"""Who may import whom (DESIGN 12), and how large a file and a function may be (STYLE).

Read from the syntax trees of all modules (`tests.importgraph`).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.importgraph import ROOT, SPARK, imported

PACKAGE = ROOT / "streaming"
LAYERS = (
    *("__main__", "cli", "app", "demo", "simulator", "proof", "service", "isolated", "stages"),
    *("viewchanges", "capture", "pipeline", "cdc", "ask", "runtime", "spark", "integrator"),
    *(
        "viewmanagers",
        "merge",
        "readers",
        "warehouse",
        "configuration",
        "captured",
        "engines",
        "sql",
    ),
    *("algebra", "scalars", "packed_rows", "durable", "metrics", "messages", "errors", "plain"),
)
"""Folders and modules of the top, each of which may import those after it."""
MACHINES = {
    "integrator": "integrator/*",
    "viewmanagers": "viewmanagers/*",
    "merge": "merge/*",
    "ask": "ask/{copies,delivered,evaluation,fifo,processor,splitting,state_codec,working}.py",
    "isolated": "isolated/{isolated_manager,session_messages,session_state,propagation,add_del}.py",
}
"""Folder -> its files that are pure."""
BELOW_MACHINES = ("messages", "durable", "algebra", "scalars", "engines", "errors")
COLUMNS = frozenset({"pyarrow", "duckdb", "numpy"})
"""What a machine may use to hand relations on."""
MAY_USE_SPARK = (
    "runtime/*.py",
    "stages/*.py",
    "service/*.py",
    "spark/*.py",
    "warehouse/*.py",
    "readers.py",
    "engines/spark*.py",
    "proof/*.py",
    "demo/embedded/training.py",
)
SPARK_S_FOLDER = "spark/jars.py"
"""Takes the place where pyspark is installed, for the Ivy in it, and nothing else of it."""
LONGEST_FUNCTION = 80
VAGUE = frozenset({"utils", "util", "helpers", "helper", "common", "misc"})


@dataclass(frozen=True)
class Import:
    """A module that `file` imports at `line`."""

    file: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"streaming/{self.file}:{self.line} imports {self.module}"


def relative(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


FILES = {relative(file): ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}


WRITTEN = {
    file.relative_to(ROOT).as_posix(): file.read_text()
    for folder in ("streaming", "tests", "bench")
    for file in sorted((ROOT / folder).rglob("*.py"))
}
"""All of the project's Python, tests and benchmarks included, for the rules of size and names."""


def imports_in(file: str, tree: ast.Module) -> Iterator[Import]:
    package = ["streaming", *file.split("/")[:-1]]
    return (Import(file, line, module) for line, module in imported(package, tree))


IMPORTS = [found for file, tree in FILES.items() for found in imports_in(file, tree)]


def of_machine(file: str, folder: str) -> bool:
    """Whether a file is one of a folder's pure ones."""
    names = MACHINES[folder].partition("/")[2]
    chosen = [f"{one}.py" for one in names.removesuffix(".py").strip("{}").split(",")]
    return file.startswith(f"{folder}/") and (names == "*" or file.partition("/")[2] in chosen)


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def broken(offences: list[str]) -> None:
    assert not offences, "\n" + "\n".join(offences)


def test_the_walk_finds_the_modules_and_their_imports() -> None:
    assert len(FILES) > 40
    assert len(IMPORTS) > 300
    listed = {folder: [one for one in FILES if of_machine(one, folder)] for folder in MACHINES}
    assert [len(listed[folder]) for folder in ("ask", "isolated")] == [8, 5]
    tree = ast.parse(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import pyspark.sql\nelse:\n    import os.path\n"
        "def f():\n    from pyspark import sql\n    from . import cli\n"
        "    from ..merge import spa\n"
        "    importlib.import_module('py4j')\n"
    )
    found = [one.module for one in imports_in("runtime/x.py", tree)]
    assert found == [
        "typing",
        "os.path",
        "pyspark",
        "streaming.runtime",
        "streaming.merge.spa",
        "py4j",
    ]
    (found_here,) = imports_in("x.py", ast.parse("from . import cli"))
    assert found_here.module == "streaming.cli"


def graph(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Module -> the modules of the project that it imports, those for type checking too."""
    modules = {
        file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): file for file in trees
    }
    edges: dict[str, set[str]] = {}
    for module, file in modules.items():
        named: set[str] = set()
        for node in ast.walk(trees[file]):
            if isinstance(node, ast.ImportFrom) and node.module:
                named |= {f"{node.module}.{one.name}" for one in node.names} | {node.module}
            elif isinstance(node, ast.Import):
                named |= {one.name for one in node.names}
        within_ = {name.removeprefix("streaming.") for name in named}
        edges[module] = {name for name in within_ if name in modules and name != module}
    return edges


def test_no_imports_go_in_a_circle_those_for_type_checking_included() -> None:
    """What is imported for its type only is written to all the same: a circle that hides (STYLE 2)."""
    whole = ast.parse("from streaming.b import B")
    hidden = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from streaming.a import A"
    with pytest.raises(CycleError):
        TopologicalSorter(graph({"a.py": whole, "b.py": ast.parse(hidden)})).prepare()
    try:
        TopologicalSorter(graph(FILES)).prepare()
    except CycleError as error:
        raise AssertionError(f"imports go in a circle: {' -> '.join(error.args[1])}") from None


def layer(module: str) -> str:
    return module.partition(".")[0]


def test_a_folder_imports_only_those_below_it() -> None:
    edges = graph(FILES)
    assert {layer(module) for module in edges} == {*LAYERS, "__init__"}
    above = {name: at for at, name in enumerate(LAYERS)}
    broken(
        [
            f"{module} imports {other}"
            for module, others in sorted(edges.items())
            for other in sorted(others)
            if above[layer(module)] > above[layer(other)]
        ]
    )


@pytest.mark.parametrize("folder", MACHINES)
def test_a_machine_imports_only_messages_algebra_errors_and_its_own(folder: str) -> None:
    own = (*BELOW_MACHINES, folder)
    allowed = tuple(f"streaming.{name}" for name in own)
    offences = []
    for one in IMPORTS:
        if not of_machine(one.file, folder):
            continue
        top = one.module.partition(".")[0]
        if top == "streaming":
            good = any(within(one.module, package) for package in allowed)
        else:
            good = top in sys.stdlib_module_names or top in COLUMNS
        if not good:
            offences.append(str(one))
    broken(offences)


@pytest.mark.parametrize("folder", MACHINES)
def test_a_machine_has_no_clock_no_threads_no_files_of_others_and_no_chance(folder: str) -> None:
    forbidden = {"time", "datetime", "random", "threading", "socket", "subprocess", "requests"}
    broken(
        [
            str(one)
            for one in IMPORTS
            if of_machine(one.file, folder) and one.module.partition(".")[0] in forbidden
        ]
    )


def test_the_simulator_imports_only_what_is_pure_and_nothing_imports_it() -> None:
    own = (*BELOW_MACHINES, "simulator", "pipeline", *MACHINES)
    allowed = tuple(f"streaming.{name}" for name in own)
    offences = []
    for one in IMPORTS:
        top = one.module.partition(".")[0]
        if not one.file.startswith("simulator/"):
            good = not within(one.module, "streaming.simulator")
        elif top == "streaming":
            good = any(within(one.module, package) for package in allowed)
        else:
            command = one.file == "simulator/__main__.py" and top in {"typer", "rich"}
            clock = top in {"time", "datetime", "threading", "socket", "subprocess"}
            good = command or (top in sys.stdlib_module_names | COLUMNS and not clock)
        if not good:
            offences.append(str(one))
    broken(offences)


def test_spark_is_imported_only_where_it_runs() -> None:
    offences = []
    for one in IMPORTS:
        if one.module.partition(".")[0] not in SPARK or one.file == SPARK_S_FOLDER:
            continue
        if not any(Path(one.file).match(pattern) for pattern in MAY_USE_SPARK):
            offences.append(str(one))
    broken(offences)


def test_the_one_exception_takes_no_more_than_the_place_of_pyspark() -> None:
    found = [one.module for one in IMPORTS if one.file == SPARK_S_FOLDER]
    assert [module for module in found if module.partition(".")[0] in SPARK] == ["pyspark"]
    uses = [
        ast.unparse(node)
        for node in ast.walk(FILES[SPARK_S_FOLDER])
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pyspark"
    ]
    assert set(uses) == {"pyspark.__file__"}


def test_nothing_imports_the_command_line() -> None:
    broken(
        [
            str(one)
            for one in IMPORTS
            if within(one.module, "streaming.cli")
            and one.file != "__main__.py"
            and not one.file.startswith("cli/")
        ]
    )


def test_the_product_does_not_import_its_tests() -> None:
    broken([str(one) for one in IMPORTS if one.module.partition(".")[0] in {"tests", "bench"}])


def test_no_module_has_a_name_that_says_nothing() -> None:
    broken([file for file in WRITTEN if VAGUE & set(Path(file).with_suffix("").parts)])


def test_no_function_is_too_long() -> None:
    offences = []
    for file, text in WRITTEN.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    offences.append(
                        f"{file}:{node.lineno} {node.name}: {length} lines, "
                        f"at most {LONGEST_FUNCTION}"
                    )
    broken(offences)
