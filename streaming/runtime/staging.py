"""Rows too large for a message, staged as Parquet under `<warehouse>/_staging/<stage>/`.

A staged file is written once, durably, before the manifest that refers to it, and its name says the
last transaction number it holds: when every consumer is past that number the file is removed. A
crash between writing a file and its manifest leaves a file that nothing refers to; the same rule
removes it.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

_LAST = re.compile(r"^(\d{15})-[0-9a-f]+\.parquet$")


def last_of(path: str) -> int:
    """The last number of a staged file, by its name; 0 of any other file."""
    match = _LAST.match(path.rpartition("/")[2])
    return int(match[1]) if match else 0


class Staging:
    """One stage's folder of staged files."""

    def __init__(self, warehouse: Path, stage: str) -> None:
        self.warehouse = warehouse
        self.folder = warehouse / "_staging" / stage.replace(":", "-")
        self.folder.mkdir(parents=True, exist_ok=True)

    def keeper(self, last: int) -> Callable[[bytes], str]:
        """How `rows.pack` stages a file: bytes in, path relative to the warehouse out.

        Args:
            last: the highest transaction number among the rows, or whatever number the consumers
                must have passed before the file can go.
        """

        def keep(content: bytes) -> str:
            file = self.folder / f"{max(last, 0):015d}-{uuid.uuid4().hex}.parquet"
            with open(file, "wb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            return str(file.relative_to(self.warehouse))

        return keep

    def collect(self, passed: int, keep: frozenset[str] = frozenset()) -> int:
        """Remove files whose rows are all at or below `passed`; returns how many.

        Args:
            keep: paths, relative to the warehouse, that a snapshot still refers to.
        """
        removed = 0
        for file in self.folder.iterdir():
            match = _LAST.match(file.name)
            if (
                match
                and int(match.group(1)) <= passed
                and str(file.relative_to(self.warehouse)) not in keep
            ):
                file.unlink(missing_ok=True)
                removed += 1
        return removed

    def files(self) -> frozenset[str]:
        """The files that are there, relative to the warehouse."""
        found = (file for file in self.folder.iterdir() if _LAST.match(file.name))
        return frozenset(str(file.relative_to(self.warehouse)) for file in found)

    def drop(self, paths: Iterable[str]) -> None:
        """Remove files that the chain of manifests has stopped to refer to.

        Naming them is what makes this safe: a driver that was paused and wakes up knows nothing of
        the files that its successor has staged, and so cannot remove them.

        Args:
            paths: relative to the warehouse; those already gone do not matter.
        """
        for path in paths:
            (self.warehouse / path).unlink(missing_ok=True)
