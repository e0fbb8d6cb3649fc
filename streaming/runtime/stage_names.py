"""Names of stages: they name a stage's query, its manifests' folder and its metrics."""

from __future__ import annotations

INTEGRATOR = "integrator"


def stage_name(view: str, request: int) -> str:
    """A view's stage: one that joined later, or again, has manifests and messages of its own."""
    return f"view:{view}@{request}" if request else f"view:{view}"


def role_of(stage: str) -> str:
    """What a driver may be told to run it by, and what its metrics go under: not each try's own name."""
    return stage.partition("@")[0]
