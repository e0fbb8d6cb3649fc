"""Every `fresco` command that an error, a help text or a page names is there, with the options named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

from streaming.cli.commands import app

ROOT = Path(__file__).parents[2]
TEXTS = [*sorted((ROOT / "streaming").rglob("*.py")), *sorted(ROOT.glob("docs/*.md"))]
NAMED = re.compile(r"(?:`|^)fresco ([a-z][^`\n]*)", re.MULTILINE)
STRINGS = re.compile(r"\"\s*\n\s*f?\"")
"""Where a sentence goes on in the next string."""


def named() -> list[tuple[str, list[str]]]:
    """(file, words after `fresco`) for each command named somewhere."""
    found = []
    for file in TEXTS:
        text = STRINGS.sub("", file.read_text())
        for match in NAMED.finditer(text):
            found.append((str(file.relative_to(ROOT)), match[1].split("#")[0].split()))
    return found


def test_commands_are_named_in_many_places() -> None:
    assert len(named()) > 30
    assert any(words[:2] == ["view", "resume"] for _, words in named())
    assert any(words[0] == "skip" for _, words in named())


@pytest.mark.parametrize(("file", "words"), named(), ids=lambda one: str(one)[:60])
def test_a_named_command_exists(file: str, words: list[str]) -> None:
    command = get_command(app)
    rest = list(words)
    while rest and hasattr(command, "commands"):
        name = rest.pop(0).strip(",.;:)")
        if "|" in " ".join(words):
            return  # a list of several, as in a synopsis
        assert name in command.commands, f"{file}: fresco {' '.join(words)}"
        command = command.commands[name]
    options = {option for parameter in command.params for option in parameter.opts}
    for word in rest:
        if word.startswith("-"):
            assert word.split("=")[0].strip(",.;:)]'") in options, f"{file}: {word} of {words}"
