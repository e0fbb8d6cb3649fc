"""docs/doctor.md is made from the code, and the code knows no check that is not in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from streaming.service.doctor import GROUPS, LOOKS, listed

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- made from the code: streaming.service.doctor.listed() -->\n", "<!-- end -->"


def test_the_docs_show_what_the_code_lists() -> None:
    docs = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    shown = docs.partition(BEGIN)[2].partition(END)[0]
    assert shown == listed(), "put listed() between the marks of docs/doctor.md"


def calls(name: str) -> list[tuple[str, ast.Call]]:
    """Every call of that name, with its file."""
    return [
        (path.name, node)
        for path in sorted((ROOT / "streaming").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name
    ]


def test_every_rule_is_listed() -> None:
    """A rule that somebody adds to a module comes into the module's list, and the list into the docs."""
    made = {
        str(node.args[0].value)
        for _, node in calls("Rule")
        if isinstance(node.args[0], ast.Constant)
    }
    codes = {one.code for _, rules in GROUPS for one in rules}
    assert made == codes and len(codes) >= 25
    assert all(re.fullmatch(r"(KAFKA|SOURCE)_[A-Z_]+", code) for code in codes)


def test_what_is_found_with_a_code_is_found_by_a_rule() -> None:
    """Only `checked` itself makes a result with a code, from a rule or from an error."""
    others = [
        file for file, node in calls("Checked") if len(node.args) > 4 and file != "checked.py"
    ]
    assert others == []
    named = {
        node.args[0].value
        for file, node in [*calls("Checked"), *calls("_checked")]
        if file == "doctor.py" and isinstance(node.args[0], ast.Constant)
    }
    assert named == set(LOOKS)


def test_every_code_of_the_list_is_somewhere_refused_or_warned_of_by_a_test() -> None:
    tests = "\n".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "tests").rglob("test_*.py")
        if path != Path(__file__)
    )
    untried = [one.code for _, rules in GROUPS for one in rules if one.code not in tests]
    assert untried == [], untried
