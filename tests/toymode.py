"""A mode that the project does not know, as somebody would bring it: SWEEP under another name."""

from __future__ import annotations

from typing import Any

from streaming.viewmanagers.asking.sweep import SweepManager


class ToyManager(SweepManager[Any]):
    """One manager, named in one entry of the mode table."""
