"""`fresco demo` proves what it has shown and leaves no process behind, however it is ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from services import Process, until


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that have `folder` in their arguments or their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
            told = command + (entry / "environ").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if str(folder).encode() in told:
            found.append(command.replace(b"\0", b" ").decode(errors="replace")[:200])
    return found


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts `fresco demo --json`; the folder of the stack and the tables is `tmp_path / "demo"`."""
    started = []

    def start(*options: str) -> Process:
        words = [sys.executable, "-m", "streaming", "demo", "--json", *options]
        started.append(Process([*words, "--dir", str(tmp_path / "demo")], tmp_path / "log", {}))
        return started[0]

    yield start
    for process in started:
        process.kill()


def verdict_of(process: Process) -> dict[str, Any]:
    """The JSON object that ends the output."""
    found: dict[str, Any] = json.loads(process.log.read_text().splitlines()[-1])
    return found


def assert_proved(verdict: dict[str, Any]) -> None:
    assert verdict["holds"] and verdict["moved"] == 0 and verdict["states"] > 0
    assert {line["achieved"] for line in verdict["verify"]["lines"]} == {"complete"}
    assert {line["achieved"] for line in verdict["verify_source"]["lines"]} == {"equal"}


@pytest.mark.timeout(1200)
def test_the_demo_ends_by_itself_with_both_proofs_and_without_processes(
    demo: Callable[..., Process], tmp_path: Path
) -> None:
    process = demo("--seconds", "3")
    assert process.ends(900) == 0, process.tail()
    assert_proved(verdict_of(process))
    assert processes_of(tmp_path / "demo") == []


@pytest.mark.timeout(1200)
def test_ctrl_c_ends_the_show_and_not_the_proofs(
    demo: Callable[..., Process], tmp_path: Path
) -> None:
    process = demo("--seconds", "3600")
    until(lambda: epochs(tmp_path / "demo") > 2, "some epochs", 600, process)
    process.interrupt()
    assert process.ends(600) == 0, process.tail()
    assert_proved(verdict_of(process))
    assert processes_of(tmp_path / "demo") == []


def epochs(folder: Path) -> int:
    """Commits of the group's table."""
    return len(list((folder / "warehouse" / "bank" / "_delta_log").glob("*.json")))
