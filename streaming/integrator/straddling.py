"""Global transactions that lie partly in a snapshot and partly after it (DESIGN 6).

The snapshot of one source may hold a global transaction whose other part comes in another source's
log after that source's snapshot. Its visible part cannot be taken out of number 0, so the rest is
brought in: its parts, and before each of them every earlier transaction of the same source that touches
the same keys, and with those in turn theirs. What is left commutes with what was brought forward.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from streaming.integrator.knots import Keys, Member, conflicts

Known = Mapping[str, tuple[bool, int, tuple[Member, ...]]]
"""id -> (complete, parts seen in snapshots, parts in the logs)."""


def merged_into_zero(
    logs: Mapping[str, tuple[int, int]], globals_: Known, keys: Keys
) -> frozenset[Member] | None:
    """The transactions that belong to number 0; None while a part is missing.

    Args:
        logs: per source, (first, last) ordinals that are complete.
    """
    straddling = {id_: value for id_, value in globals_.items() if value[1]}
    if any(not complete for complete, _, _ in straddling.values()):
        return None
    chosen: set[Member] = {member for _, _, members in straddling.values() for member in members}
    if not chosen:
        return frozenset()
    ids: dict[Member, list[str]] = defaultdict(list)
    for id_, (_, _, members) in globals_.items():
        for member in members:
            ids[member].append(id_)
    befores: dict[str, dict[int, list[int]]] = {}
    todo = sorted(chosen)
    while todo:
        source, ordinal = todo.pop()
        if source not in befores:
            befores[source] = _earlier(source, logs[source], keys)
        found: list[Member] = [(source, o) for o in befores[source].get(ordinal, ())]
        for id_ in ids[(source, ordinal)]:
            complete, _, members = globals_[id_]
            if not complete:
                return None
            found += members
        todo += [member for member in found if member not in chosen]
        chosen.update(found)
    return frozenset(chosen)


def _earlier(source: str, log: tuple[int, int], keys: Keys) -> dict[int, list[int]]:
    first, last = conflicts(keys(source, *log))
    earlier: dict[int, list[int]] = defaultdict(list)
    for before, after in zip(first.tolist(), last.tolist(), strict=True):
        earlier[after].append(before)
    return earlier
