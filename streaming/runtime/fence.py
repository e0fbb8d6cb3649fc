"""The fence between starts of a pipeline: each start takes the next generation (DESIGN 9).

A pipeline's drivers share one sequence of generations, and each says which roles it plays: stages by
name, or all of them. A later start fences out every earlier one with which it has a role in common, and
no other. So drivers of different roles live side by side, a second driver of a role takes it over, and
a later generation of a stage is always the higher number, wherever it runs.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming.errors import FrescoError
from streaming.runtime.manifests import ManifestExists, put_if_absent


class Fence:
    """The generation of this start; a later start of one of its roles fences this one out."""

    def __init__(self, folder: Path, owner: Mapping[str, Any], roles: Iterable[str] = ()) -> None:
        """Take the next generation.

        Args:
            folder: shared by all drivers of the pipeline.
            owner: who holds it (host, process, start time), told to those fenced out.
            roles: the stages that this driver runs; () for all.
        """
        self.folder = folder
        self.roles = frozenset(roles)
        self._beside = 0
        """Generations up to it are known to leave this one alone."""
        told = dict(owner) | ({"roles": sorted(self.roles)} if self.roles else {})
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            self.generation = self.current() + 1
            try:
                put_if_absent(self._path(self.generation), json.dumps(told).encode())
                return
            except ManifestExists:
                continue

    def current(self) -> int:
        """The highest generation taken so far (0: none)."""
        return max(_generations(self.folder), default=0)

    def holder(self) -> dict[str, Any]:
        """Who started last."""
        return self._owner(self.current())

    def check(self) -> None:
        """Stop a driver that another has replaced.

        Raises:
            FrescoError: SERVICE_FENCED, naming the holder.
        """
        known = max(self.generation, self._beside)
        later = [one for one in _generations(self.folder) if one > known]
        if taken := [one for one in later if self._met(one)]:
            raise self._fenced(max(taken))
        self._beside = max(later, default=known)

    def _met(self, generation: int) -> bool:
        return _meet(self.roles, self._owner(generation).get("roles", ()))

    def _fenced(self, generation: int) -> FrescoError:
        return FrescoError(
            "SERVICE_FENCED",
            f"generation {self.generation} was replaced by generation {generation}",
            where=f"held by {self._owner(generation)}",
            todo="let the other service run, or stop it before starting this one again",
        )

    def _owner(self, generation: int) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._path(generation).read_text())
        return found

    def _path(self, generation: int) -> Path:
        return self.folder / f"{generation:08d}.json"


@dataclass(frozen=True)
class Holder:
    """A start that no later one has fenced out; whether it still runs is not known.

    Attributes:
        roles: the stages it runs; () for all.
        owner: what it said of itself.
    """

    generation: int
    roles: tuple[str, ...]
    owner: Mapping[str, Any]


def holders(folder: Path) -> tuple[Holder, ...]:
    """Who holds which roles of a pipeline, the earliest start first."""
    found: list[Holder] = []
    for generation in sorted(_generations(folder)):
        owner = json.loads((folder / f"{generation:08d}.json").read_text())
        roles = tuple(owner.pop("roles", ()))
        found = [one for one in found if not _meet(one.roles, roles)]
        found.append(Holder(generation, roles, owner))
    return tuple(found)


def _generations(folder: Path) -> list[int]:
    return [int(file.stem) for file in folder.glob("[0-9]*.json")]


def _meet(some: Iterable[str], others: Iterable[str]) -> bool:
    """Whether two drivers have a role in common; no roles are all of them."""
    mine, theirs = frozenset(some), frozenset(others)
    return not mine or not theirs or not mine.isdisjoint(theirs)


def owner_here(metrics: str) -> dict[str, object]:
    """Who holds the pipeline, for those fenced out and for `status`."""
    return {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "metrics": metrics,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
