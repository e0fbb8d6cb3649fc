"""Each folder opens with a map that names its files; the picture of the folders is the imports."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from test_imports import FILES, LAYERS, graph, layer

ROOT = Path(__file__).parents[2]
FOLDERS = sorted(file.parent for file in (ROOT / "streaming").rglob("__init__.py"))
ARCHITECTURE = ROOT / "docs" / "architecture.md"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.relative_to(ROOT).as_posix())
def test_a_folder_s_map_names_every_file_in_it(folder: Path) -> None:
    said = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    named = set(re.findall(r"`([a-z_./]+)`", said))
    if folder.name == "streaming":
        assert {"cdc", "integrator", "viewmanagers", "merge", "warehouse"} <= named
        return
    there = {file.stem for file in folder.glob("[a-z]*.py")}
    assert sorted(there - named) == [], "say in the folder's map what it is"
    order = said[said.find("In the order to read them") :].partition("\n\n")[0]
    known = {one.stem for one in (ROOT / "streaming").rglob("*") if "__" not in one.name}
    assert sorted(set(re.findall(r"`([a-z_]+)`", order)) - known) == [], "there is no such file"
    inner = {f"{one.name}/" for one in folder.iterdir() if (one / "__init__.py").is_file()}
    assert sorted(inner - named) == []


def needed(edges: dict[str, set[str]]) -> set[tuple[str, str]]:
    """The edges that no longer way stands for (the transitive reduction of a graph without circles)."""
    reach: dict[str, set[str]] = {}
    for node in TopologicalSorter(edges).static_order():
        reach[node] = set().union(*({one} | reach[one] for one in edges.get(node, ())))
    return {
        (node, one)
        for node, others in edges.items()
        for one in others
        if not any(one in reach[other] for other in others - {one})
    }


def test_the_picture_of_the_folders_is_that_of_the_imports() -> None:
    folders: dict[str, set[str]] = {name: set() for name in LAYERS}
    for module, others in graph(FILES).items():
        if module != "__init__":
            folders[layer(module)] |= {layer(other) for other in others} - {layer(module)}
    drawn = set(re.findall(r"^    (\w+) --> (\w+)$", ARCHITECTURE.read_text(), re.MULTILINE))
    wanted = needed(folders)
    lines = "\n".join(
        f"    {a} --> {b}" for a, b in sorted(wanted, key=lambda e: (LAYERS.index(e[0]), e[1]))
    )
    assert drawn == wanted, f"the picture has to be:\n{lines}"


def test_what_the_architecture_names_is_there() -> None:
    named = re.findall(r"`([a-z_]+(?:\.\w+)+)`", ARCHITECTURE.read_text())
    names = [name for name in named if name.partition(".")[0] in LAYERS]
    assert len(names) > 30
    assert [name for name in names if not is_there(name.split("."))] == []


def is_there(parts: list[str]) -> bool:
    """Whether the names are a folder or module, or what a module defines, methods included."""
    place = ROOT / "streaming"
    for at, part in enumerate(parts):
        place = place / part
        if place.with_suffix(".py").is_file():
            return defines(ast.parse(place.with_suffix(".py").read_text()), parts[at + 1 :])
    return place.is_dir()


def defines(tree: ast.Module | ast.ClassDef, names: list[str]) -> bool:
    if not names:
        return True
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if getattr(node, "name", getattr(target, "id", None)) == names[0]:
            return not names[1:] or (isinstance(node, ast.ClassDef) and defines(node, names[1:]))
    return False


def test_what_the_other_documents_name_is_there() -> None:
    """Files and folders of the program, written as paths."""
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        paths = re.findall(r"`((?:\w+/)+\w*(?:\.py)?)`", document.read_text())
        tops = (*LAYERS, "tests", "bench", "streaming")
        names = [path for path in paths if path.partition("/")[0] in tops]
        for path in names:
            places = [ROOT / path, ROOT / "streaming" / path]
            found = [one for place in places for one in (place, place.with_suffix(".py"))]
            assert any(one.exists() for one in found), f"{document.name}: {path}"
