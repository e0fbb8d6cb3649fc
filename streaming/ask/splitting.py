"""Where in a message of updates an answer belongs, and the message in two there.

A message holds many transactions; an answer may have seen the first of them and not the others. Over a
FIFO channel it would have come between the two. Handed on before the whole message or after it, it
would have seen too much or missed something; it would be asked again, and under steady load for ever,
since no answer's state ever falls on the end of a message.
"""

from __future__ import annotations

from collections.abc import Mapping

from streaming.algebra.source_queries import SourceState
from streaming.messages import Control, RelRun, SourceLog, Updates


def belongs_after(updates: Updates, source: str, state: SourceState) -> int | None:
    """The number after which an answer belongs, `updates.first` - 1 for before all of them.

    None where it is none of them: the message does not reach as far as the state, the state is no
    prefix of the message's transactions, or it belongs after the whole message.
    """
    if updates.delivered.get(source, -1) < state.upto:
        return None
    log = updates.logs.get(source)
    if log is None:
        return None
    entries = zip(log.numbers, log.transactions, log.positions, strict=True)
    saw = {n: set[bool]() for n in log.numbers}
    for number, transaction, position in entries:
        saw[number].add(state.saw(transaction, position))
    after = max((n for n, seen in saw.items() if True in seen), default=updates.first - 1)
    whole = all(seen == {n <= after} for n, seen in saw.items())
    return after if whole and any(n > after for n in saw) else None


def split(updates: Updates, number: int) -> tuple[Updates, Updates]:
    """The message up to a number and after it; both refer to the same rows.

    The positions and what rides along belong to the end, so to the second.
    """
    first = updates.model_copy(
        update={
            "last": number,
            "runs": _runs(updates.runs, updates.first, number),
            "controls": _controls(updates.controls, updates.first, number),
            "logs": {s: _log(log, updates.first, number) for s, log in updates.logs.items()},
            "delivered": {},
            "parts": tuple(part for part in updates.parts if part.number <= number),
            "cut": False,
            "rel": (),
        }
    )
    second = updates.model_copy(
        update={
            "first": number + 1,
            "runs": _runs(updates.runs, number + 1, updates.last),
            "controls": _controls(updates.controls, number + 1, updates.last),
            "logs": {s: _log(log, number + 1, updates.last) for s, log in updates.logs.items()},
            "parts": tuple(part for part in updates.parts if part.number > number),
        }
    )
    return first, second


def paced(
    updates: Updates, states: Mapping[str, SourceState]
) -> tuple[tuple[Updates, ...], Updates | None]:
    """A message in pieces that end where states of its sources end, and what waits for later ones.

    Handed to a FIFO adapter piece by piece, with all that is asked of a source after the piece that
    its state ends answered at this state, no answer is held and none asked again: it has seen exactly
    what was delivered. With several sources the states end at several numbers; an answer at a state
    that ends further on is held until its piece, within the same message.

    Args:
        states: of the sources whose log the message brings as far as their state.
    """
    found = (belongs_after(updates, source, state) for source, state in states.items())
    ends = sorted({after for after in found if after is not None})
    if not ends:
        return (updates,), None
    pieces, rest = list[Updates](), updates
    for end in ends:
        if end >= rest.first:
            piece, rest = split(rest, end)
            pieces.append(piece.model_copy(update={"delivered": _reached(rest)}))
    return tuple(pieces), rest


def _reached(rest: Updates) -> dict[str, int]:
    """Up to where each source's log has been delivered when the rest of a message has not."""
    waiting = {s: min(log.positions) - 1 for s, log in rest.logs.items() if log.positions}
    return {**rest.delivered, **{s: p for s, p in waiting.items() if s in rest.delivered}}


def _runs(runs: tuple[RelRun, ...], first: int, last: int) -> tuple[RelRun, ...]:
    return tuple(
        run.model_copy(update={"first": max(run.first, first), "last": min(run.last, last)})
        for run in runs
        if run.first <= last and run.last >= first
    )


def _controls(controls: tuple[Control, ...], first: int, last: int) -> tuple[Control, ...]:
    return tuple(control for control in controls if first <= control.number <= last)


def _log(log: SourceLog, first: int, last: int) -> SourceLog:
    kept = [i for i, number in enumerate(log.numbers) if first <= number <= last]
    return SourceLog(
        numbers=tuple(log.numbers[i] for i in kept),
        transactions=tuple(log.transactions[i] for i in kept),
        positions=tuple(log.positions[i] for i in kept),
    )
