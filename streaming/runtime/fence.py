"""The fence between starts of a pipeline: each start takes the next generation (DESIGN 9)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streaming.errors import FrescoError
from streaming.runtime.manifests import ManifestExists, put_if_absent


class Fence:
    """The generation of this start; a later start fences this one out."""

    def __init__(self, folder: Path, owner: Mapping[str, Any]) -> None:
        """Take the next generation.

        Args:
            folder: shared by all drivers of the pipeline.
            owner: who holds it (host, process, start time), told to those fenced out.
        """
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            self.generation = self.current() + 1
            try:
                put_if_absent(self._path(self.generation), json.dumps(dict(owner)).encode())
                return
            except ManifestExists:
                continue

    def current(self) -> int:
        """The highest generation taken so far (0: none)."""
        return max((int(file.stem) for file in self.folder.glob("[0-9]*.json")), default=0)

    def holder(self) -> dict[str, Any]:
        """Who holds the pipeline now."""
        found: dict[str, Any] = json.loads(self._path(self.current()).read_text())
        return found

    def check(self) -> None:
        """Stop a driver that another has replaced.

        Raises:
            FrescoError: SERVICE_FENCED, naming the holder.
        """
        if self.current() > self.generation:
            raise self.fenced()

    def fenced(self) -> FrescoError:
        """The error that says which start holds the pipeline."""
        return FrescoError(
            "SERVICE_FENCED",
            f"generation {self.generation} was replaced by generation {self.current()}",
            where=f"held by {self.holder()}",
            todo="let the other service run, or stop it before starting this one again",
        )

    def _path(self, generation: int) -> Path:
        return self.folder / f"{generation:08d}.json"
