"""A folder that is there whole or not at all, whatever is killed or loses its power."""

from __future__ import annotations

import os
from pathlib import Path


def move_durably(draft: Path, place: Path) -> None:
    """Give a folder of files its name, once all of it is on disk."""
    for file in draft.iterdir():
        _synced(file)
    _synced(draft)
    os.rename(draft, place)
    _synced(place.parent)


def _synced(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
