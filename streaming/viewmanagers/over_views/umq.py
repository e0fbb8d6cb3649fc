"""UMQ: the numbers the integrator has ordered that a mediator has not maintained yet (ryco-pyco 3.2).

The paper's UMQ holds DU-ids one by one; an entry here is a message with the numbers [first..last], and
for each parent view the ranges of numbers for which a list of it is *awaited*: REL has the parent and
does not spare it the work. `clipped` cuts a message down to a range of numbers; `as_one` puts numbers
together under the last of them, for a parent whose list covers them as one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from streaming.messages import Control, GlobalPart, RelRun, SourceLog, Updates
from streaming.viewmanagers.base import works

Range = tuple[int, int]
"""First and last number."""


class QueuedUnit(NamedTuple):
    """Numbers that a mediator has handed on as one.

    Attributes:
        across: a cut lies among them, so the view's list crosses it as the parent's did.
    """

    first: int
    last: int
    across: bool


@dataclass(frozen=True)
class Ordered:
    """An entry of UMQ.

    Attributes:
        awaited: parent -> ranges of numbers for which its list must come, ascending, not touching.
        own: the ranges of numbers for which the view itself owes a list.
    """

    updates: Updates
    awaited: Mapping[str, tuple[Range, ...]]
    own: tuple[Range, ...]


def ordered(updates: Updates, view: str, parents: Collection[str], start: int) -> Ordered:
    """A message as an entry.

    Number `start` brings everything whole: parents that the message has rows of (a view that joins a
    running pipeline is given them) need send no list for it; the others, like every base relation,
    are new too, and their first list is awaited whatever REL says.
    """
    awaited = {parent: _ranges(updates, parent) for parent in parents}
    own = _ranges(updates, view)
    if updates.first <= start <= updates.last:
        own = _joined([(start, start), *own])
        for parent, found in awaited.items():
            later = [(max(first, start + 1), last) for first, last in found if last > start]
            first_list = [] if parent in updates.relations else [(start, start)]
            awaited[parent] = _joined([*first_list, *later])
    return Ordered(updates, awaited, own)


def _ranges(updates: Updates, view: str) -> tuple[Range, ...]:
    return _joined([(run.first, run.last) for run in updates.runs if works(run, view)])


def _joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    result: list[Range] = []
    for first, last in ranges:
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return tuple(result)


def within(ranges: Iterable[Range], first: int, last: int) -> list[Range]:
    """What of the ranges lies in [first..last]."""
    found = [(max(a, first), min(b, last)) for a, b in ranges]
    return [(a, b) for a, b in found if a <= b]


def overlapping(ranges: Iterable[Range]) -> list[Range]:
    """The ranges with those put together that share a number."""
    result: list[Range] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return result


def told_as_sources(
    worked: Mapping[str, Iterable[Range]], start: int, under: int | None
) -> dict[str, SourceLog]:
    """The parents' logs, as if they were sources: a transaction for each number at which they work.

    Args:
        start: the number of the initial state, which no log tells.
        under: the number that all become one transaction of, None where they stay apart.
    """
    logs = {}
    for parent, ranges in worked.items():
        numbers = [n for a, b in ranges for n in range(max(a, start + 1), b + 1)]
        if numbers and under is not None:
            numbers = [under]
        if numbers:
            at = tuple(numbers)
            ids = tuple(str(n) for n in numbers)
            logs[parent] = SourceLog(numbers=at, transactions=ids, positions=at)
    return logs


# Cutting messages ---------------------------------------------------------------------------------


def clipped(updates: Updates, first: int, last: int) -> Updates:
    """The message of the numbers [first..last] alone, without its relations' rows."""
    if (first, last) == (updates.first, updates.last):
        return updates.model_copy(update={"relations": {}})
    runs = tuple(
        r.model_copy(update={"first": max(r.first, first), "last": min(r.last, last)})
        for r in updates.runs
        if r.first <= last and first <= r.last
    )
    return updates.model_copy(
        update={
            "first": first,
            "last": last,
            "runs": runs,
            "relations": {},
            "controls": tuple(c for c in updates.controls if first <= c.number <= last),
            "parts": tuple(p for p in updates.parts if first <= p.number <= last),
            "logs": _logs(updates.logs, first, last),
            "delivered": {s: _position(updates, s, last) for s in updates.delivered},
            "rel": updates.rel if first == updates.first else (),
        }
    )


def _logs(logs: Mapping[str, SourceLog], first: int, last: int) -> dict[str, SourceLog]:
    found = {}
    for source, log in logs.items():
        kept = [i for i, number in enumerate(log.numbers) if first <= number <= last]
        if kept:
            found[source] = SourceLog(
                numbers=tuple(log.numbers[i] for i in kept),
                transactions=tuple(log.transactions[i] for i in kept),
                positions=tuple(log.positions[i] for i in kept),
            )
    return found


def _position(updates: Updates, source: str, last: int) -> int:
    """The position up to which every transaction of the source has a number at or below `last`."""
    log = updates.logs.get(source)
    later = [p for n, p in zip(log.numbers, log.positions, strict=True) if n > last] if log else []
    return min([updates.delivered[source], *(position - 1 for position in later)])


def since_truncate(messages: Iterable[Updates], relation: str, first: int, last: int) -> int:
    """The last number in [first..last] that truncates the relation; `first` where none does."""
    numbers = [
        c.number
        for m in messages
        for c in m.controls
        if c.relation == relation and c.kind == "truncate" and first <= c.number <= last
    ]
    return max([first, *numbers])


def as_one(view: str, pieces: Sequence[Updates]) -> Updates:
    """Messages that follow each other as one whose numbers all became its last.

    A truncate stands for the last of its relation: what came before it is gone by then, and must be
    left out of the rows. A taint counts from the first number, where the view must stop.
    """
    first, last = pieces[0].first, pieces[-1].last
    runs = [RelRun(first=last, last=last, views=(view,))]
    if first < last:
        runs.insert(0, RelRun(first=first, last=last - 1, views=()))
    controls = [control for piece in pieces for control in piece.controls]
    truncated = dict.fromkeys(c.relation for c in controls if c.kind == "truncate")
    tainted = [c for c in controls if c.kind == "tainted"]
    logs: dict[str, SourceLog] = {}
    for piece in pieces:
        for source, log in piece.logs.items():
            known = logs.get(source, SourceLog(numbers=(), transactions=(), positions=()))
            logs[source] = SourceLog(
                numbers=(last,) * (len(known.numbers) + len(log.numbers)),
                transactions=known.transactions + log.transactions,
                positions=known.positions + log.positions,
            )
    return pieces[-1].model_copy(
        update={
            "first": first,
            "runs": tuple(runs),
            "controls": (
                *(c.model_copy(update={"number": first}) for c in tainted),
                *(Control(number=last, relation=r, kind="truncate") for r in truncated),
            ),
            "parts": tuple(
                GlobalPart(number=last, id=p.id, parts=p.parts) for m in pieces for p in m.parts
            ),
            "logs": logs,
            "rel": tuple(one for piece in pieces for one in piece.rel),
        }
    )
