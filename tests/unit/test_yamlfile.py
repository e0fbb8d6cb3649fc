"""A YAML file: what is wrong with it is placed, and nothing of what stood in it is repeated."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming.configuration.yaml_file import read_yaml
from streaming.errors import FrescoError

SECRET = "postgresql://reader:hunter2@db.example/north"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a file and returns its path."""

    def write(text: str) -> Path:
        file = tmp_path / "pipeline.yaml"
        file.write_text(text)
        return file

    return write


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FrescoError, match=r"CONFIG_MISSING.*nowhere\.yaml.*--config"):
        read_yaml(tmp_path / "nowhere.yaml")


def test_what_is_not_yaml_is_placed_by_line_and_column(write: Callable[[str], Path]) -> None:
    with pytest.raises(FrescoError) as caught:
        read_yaml(write("pipeline: bank\nviews: [a, b\n"))
    assert caught.value.code == "CONFIG_SYNTAX"
    assert "line 3" in caught.value.where


def test_a_syntax_error_does_not_repeat_the_line_it_is_in(write: Callable[[str], Path]) -> None:
    with pytest.raises(FrescoError) as caught:
        read_yaml(write(f"connection: {{{SECRET} : : x\n"))
    assert caught.value.code == "CONFIG_SYNTAX"
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_key_that_stands_twice_is_refused(write: Callable[[str], Path]) -> None:
    twice = "sources:\n  north:\n    tables: {}\n  north:\n    tables: {}\n"
    with pytest.raises(FrescoError) as caught:
        read_yaml(write(twice))
    assert caught.value.code == "CONFIG_SYNTAX"
    assert "'north' stands twice" in caught.value.what
    assert "line 4" in caught.value.where


@pytest.mark.parametrize("content", [b"pipeline: caf\xe9\n", b"pipeline: \x00\n"])
def test_bytes_that_are_no_text_are_a_syntax_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_bytes(content)
    with pytest.raises(FrescoError, match=r"CONFIG_SYNTAX.*pipeline\.yaml"):
        read_yaml(file)
