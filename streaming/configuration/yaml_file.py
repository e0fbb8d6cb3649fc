"""A YAML file as plain values: each key once, `${VAR}` and `${VAR:-default}` from the environment.

No error repeats what stood in the file: it may hold a secret.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import yaml

from streaming.errors import FrescoError

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class _OneValueAKey(yaml.SafeLoader):
    """YAML without two values for one key, of which one would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in names:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key.value}' stands twice", key.start_mark
                )
            names.add(str(key.value))
        return super().construct_mapping(node, deep)


def read_yaml(file: Path) -> Any:
    """The file's values, variables still in them.

    Raises:
        FrescoError: CONFIG_MISSING, CONFIG_SYNTAX.
    """
    if not file.is_file():
        raise FrescoError(
            "CONFIG_MISSING",
            "there is no such configuration file",
            where=str(file),
            todo="pass --config with the path of a pipeline's YAML file",
        )
    try:
        return yaml.load(file.read_text(encoding="utf-8"), _OneValueAKey)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _not_yaml(error, file) from None


def substitute(value: Any, where: str) -> Any:
    """Replace ${VAR} in every string.

    Raises:
        FrescoError: CONFIG_VARIABLE.
    """
    if isinstance(value, dict):
        return {key: substitute(item, f"{where}: {key}") for key, item in value.items()}
    if isinstance(value, list):
        return [substitute(item, where) for item in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        found = os.environ.get(name, default)
        if found is None:
            raise FrescoError(
                "CONFIG_VARIABLE",
                f"the environment variable {name} is not set",
                where=where,
                todo=f"export {name}=... or write ${{{name}:-default}}",
            )
        return found

    return _VARIABLE.sub(replace, value)


def _not_yaml(error: yaml.YAMLError | UnicodeDecodeError, file: Path) -> FrescoError:
    """Says what and where, without the line itself: it may hold a secret."""
    what, place = "not UTF-8 text", ""
    if isinstance(error, yaml.MarkedYAMLError):
        what = str(error.problem)
        if error.problem_mark is not None:
            place = f", line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    elif isinstance(error, yaml.YAMLError):
        what = "a character that YAML does not allow"
    return FrescoError(
        "CONFIG_SYNTAX", f"not YAML: {what}", where=f"{file}{place}", todo="mend the file"
    )
