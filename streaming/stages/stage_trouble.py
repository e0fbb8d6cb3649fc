"""What a stage waits for, said beside its manifests while a step of it is under way.

A step that waits for a source has no manifest yet, and `fresco status` reads the warehouse alone. So the
trouble is a small file of the stage's folder; it is a hint to people and nothing is decided by it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from streaming.errors import FrescoError

FILE = "trouble.json"
REFUSED = "refused.json"
"""The merge's word to a view's stage. The merge has decided, durably, and hears no more of the stage; the
stage, once it knows, takes no more updates and tells the views over its own."""


def tell_trouble(folder: Path, error: FrescoError) -> None:
    """Replaces what was told before."""
    draft = folder / f".{FILE}.{os.getpid()}"
    with suppress(OSError):
        draft.write_text(json.dumps(error.as_dict()))
        os.replace(draft, folder / FILE)


def forget_trouble(folder: Path) -> None:
    """The stage goes on."""
    (folder / FILE).unlink(missing_ok=True)


def tell_refused(folder: Path, error: Mapping[str, str]) -> None:
    """Tell a view's stage that the table could not take its rows; nothing where the stage is gone."""
    if folder.is_dir() and not (folder / REFUSED).exists():
        draft = folder / f".{REFUSED}.{os.getpid()}"
        draft.write_text(json.dumps(dict(error)))
        os.replace(draft, folder / REFUSED)


def told_refused(folder: Path) -> dict[str, str] | None:
    """Why the table could not take the rows of the stage of this folder; None where it could."""
    try:
        found: dict[str, str] = json.loads((folder / REFUSED).read_text())
    except FileNotFoundError:
        return None
    return found


def told_trouble(folder: Path) -> dict[str, str] | None:
    """What the stage of this folder waits for, as it said last."""
    try:
        found: dict[str, str] = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return None
    return found
