"""The chain of a stage's manifests, and the file operation that lets a step happen once (DESIGN 9).

A manifest is one committed step. Its file is linked into place, never renamed: a link fails when
the name is taken, so of two drivers that write step s+1 exactly one succeeds, and a crash leaves
either the whole file or none. Old manifests are removed; a driver that slept so long that its step
has been removed still loses, because later steps are there.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streaming.durable import damaged, refuse_newer

KEPT_MANIFESTS = 20
VERSION = 1


class Outgoing(BaseModel):
    """One message to publish: the topic and the encoded body of a `messages.Message`."""

    model_config = ConfigDict(frozen=True)
    topic: str
    sequence: int
    first: int
    last: int
    kind: str
    body: str


class Manifest(BaseModel):
    """One committed step of a stage."""

    model_config = ConfigDict(frozen=True)
    version: int = VERSION
    """Absent is 1; the snapshot has a version of its own."""
    stage: str
    step: int
    """From 1, without gaps."""
    generation: int
    offsets: dict[str, int]
    """Next offset to consume, by "topic:partition"."""
    snapshot: dict[str, Any]
    messages: tuple[Outgoing, ...] = ()
    sequences: dict[str, int] = Field(default_factory=dict)
    """Topic -> sequence of the last message ever sent there by this stage."""
    writes: dict[str, Any] = Field(default_factory=dict)
    """What the stage's `apply` commits to the warehouse."""
    seconds: float = 0.0
    """How long the stage's run took."""


class ManifestExists(Exception):
    """Another driver has written this step."""


class ManifestStore:
    """The chain of manifests of one stage: `<folder>/<step, 12 digits>.json`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def latest(self) -> Manifest | None:
        """The manifest with the highest step, or None.

        Raises:
            FrescoError: STATE_DAMAGED.
        """
        while steps := self._steps():
            try:
                return self.read(steps[-1])
            except ManifestExists:
                continue  # removed since it was listed, by a driver that is far ahead
        return None

    def kept(self) -> list[tuple[Manifest, float]]:
        """Every manifest that is still there and when it was written, seconds since 1970.

        Raises:
            FrescoError: STATE_DAMAGED.
        """
        found = []
        for step in self._steps():
            with suppress(ManifestExists, FileNotFoundError):
                found.append((self.read(step), self._path(step).stat().st_mtime))
        return found

    def read(self, step: int) -> Manifest:
        """The manifest of a step, as it is stored.

        Raises:
            FrescoError: STATE_DAMAGED, STATE_NEWER.
            ManifestExists: it has been removed, because the chain is far ahead of it.
        """
        file = self._path(step)
        try:
            found = Manifest.model_validate_json(file.read_bytes())
        except FileNotFoundError as error:
            raise ManifestExists(step) from error
        except ValidationError as error:
            raise damaged("a manifest", error, str(file)) from error
        refuse_newer("a manifest", found.version, VERSION, str(file))
        return found

    def put(self, manifest: Manifest) -> None:
        """Write a manifest if its step has none: the commit point.

        Raises:
            ManifestExists: this step, or a later one, is there already.
        """
        put_if_absent(self._path(manifest.step), manifest.model_dump_json().encode())
        if self._steps()[-1] > manifest.step:
            self._path(manifest.step).unlink(missing_ok=True)
            raise ManifestExists(manifest.step)
        for old in self._steps()[:-KEPT_MANIFESTS]:
            self._path(old).unlink(missing_ok=True)

    def _steps(self) -> list[int]:
        return sorted(int(file.stem) for file in self.folder.glob("[0-9]*.json"))

    def _path(self, step: int) -> Path:
        return self.folder / f"{step:012d}.json"


def put_if_absent(path: Path, content: bytes) -> None:
    """Write a file whole, durably, and only if it does not exist (link, not rename).

    Raises:
        ManifestExists: the file exists.
    """
    # A name nobody else can have: drivers in containers share process ids, and opening a temporary
    # file that is linked already would cut the manifest itself.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)
    except FileExistsError as error:
        raise ManifestExists(path.name) from error
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
