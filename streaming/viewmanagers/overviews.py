"""Which modes can maintain views over views, and why the others cannot (DESIGN 5; ryco-pyco 3.3).

A mediator hands a manager its parents' deltas under numbers, any rows under any of them, and where the
manager asks, answers for the parents itself. `replica` keeps what it needs of a parent as it does of a
relation. `sweep`, `compensating` and `recompute` ask one state of every place and take a number's rows
together, so a parent may stand at a place. The other modes rest on something that a parent has not.
"""

from __future__ import annotations

from collections.abc import Collection

from streaming.errors import FrescoError

OVER_VIEWS = ("replica", "compensating", "sweep", "recompute")
_KEYED = (
    "its queries go by keys and single updates of base relations, which a parent's list has not"
)
NOT_OVER_VIEWS = {
    "eca": "all it reads must come from one source",
    "strobe": _KEYED,
    "t_strobe": _KEYED,
    "g_strobe": _KEYED,
    "c_strobe": _KEYED,
    "c_tstrobe": _KEYED,
    "c_strobe_k": _KEYED,
    "c_tstrobe_k": _KEYED,
    "isolated": "it reads delta tables at the sources, and a view has none",
    "naive": "it is kept to show its anomaly over base relations only",
}


def check_over_views(mode: str, view: str, parents: Collection[str]) -> None:
    """Raise where a mode cannot maintain a view that scans other views.

    Raises:
        FrescoError: MODE_OVER_VIEWS, with the reason and the modes that can.
    """
    if not parents or mode in OVER_VIEWS:
        return
    raise FrescoError(
        "MODE_OVER_VIEWS",
        f"{mode} cannot maintain a view over views ({', '.join(parents)}):"
        f" {NOT_OVER_VIEWS.get(mode, 'it is not made for that')}",
        where=view,
        todo=f"use {' or '.join(OVER_VIEWS)}",
    )
