"""Any text is planned or refused with a code, in bounded time and memory (`any_text`)."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def tried(seed: int, count: int) -> int:
    """How many of the texts of a seed are views; a process of its own, whose death is a failure."""
    command = [sys.executable, "-m", "tests.properties.any_text", str(seed), str(count)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-3000:]}"
    return int(done.stdout.split()[-1])


def test_any_text_is_planned_or_refused():
    assert tried(7, 150) > 5


@pytest.mark.deep
def test_thousands_of_texts_are_planned_or_refused():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    assert tried(seed, 10_000) > 500
