"""`--pure` is what it says, whoever writes a test: chosen by its imports, and held to it as it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.importgraph import ROOT, is_pure, servers_of


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("import kafka", {"kafka"}),
        ("def test():\n    from psycopg import sql", {"psycopg"}),
        ("from streaming.demo.embedded import postgres_server", {"psycopg"}),
        ("from streaming.merge.machine import MergeMachine", set()),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pyspark", set()),
    ],
)
def test_a_file_needs_what_it_imports_directly_or_through_others(
    tmp_path: Path, text: str, needs: set[str]
) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(text)
    assert needs <= servers_of(file)
    assert is_pure(file) is not bool(needs)


def test_what_stands_beside_a_test_counts_too(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("import pyspark.sql")
    file = tmp_path / "test_it.py"
    file.write_text("from beside import anything")
    assert servers_of(file) == {"pyspark"}


def test_the_simulator_s_and_the_machines_tests_are_pure_and_those_of_servers_are_not() -> None:
    tests = ROOT / "tests"
    assert all(is_pure(file) for file in (tests / "simulation").glob("test_*.py"))
    for machine in ("integrator", "merge", "vut", "strobe", "sweep", "compensating", "isolated"):
        files = list((tests / "unit").glob(f"test_{machine}*.py"))
        assert files and all(is_pure(file) for file in files), machine
    assert not is_pure(tests / "service") and not is_pure(tests / "spark")


def test_what_the_rule_cannot_see_is_refused_as_it_runs(tmp_path: Path) -> None:
    (tmp_path / "test_hidden.py").write_text("def test_it():\n    __import__('kaf' + 'ka')\n")
    (tmp_path / "test_open.py").write_text("import kafka\ndef test_it():\n    assert False\n")
    arguments = ["-p", "tests.conftest", "--pure", "-c", str(tmp_path / "none.ini"), str(tmp_path)]
    (tmp_path / "none.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert "1 failed" in done.stdout and "passed" not in done.stdout, done.stdout
    assert "a pure test imports kafka" in done.stdout
