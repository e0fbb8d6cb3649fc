"""Rolled-back rows are taken out of a transaction before anybody sees them.

A server writes what was rolled back into its log where the transaction did something that cannot be
undone: it made or dropped a temporary table, or changed a table whose engine knows no transactions. Then
the log holds the rows, and after them ROLLBACK, or ROLLBACK TO a savepoint that it names before. Rows of
tables without transactions stay, as they do in the server.

A transaction is held until it ends. One with more than `HELD` rows is not: the rest of it is read ahead
once, without its rows, to know which parts of it were undone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.capture.log_events import (
    Begin,
    Commit,
    LogEvent,
    Rollback,
    RollbackTo,
    RowChange,
    Savepoint,
    Table,
)

HELD = 10_000
"""Events of a transaction that are held in memory."""
Mark = Savepoint | RollbackTo | Rollback
Span = tuple[LogPlace, LogPlace]
"""A part of a transaction that was undone: from a place to before another."""


def kept_rows(
    events: Iterable[LogEvent | Mark | None],
    lasting: Collection[Table],
    ahead: Callable[[LogPlace], Iterable[LogEvent | Mark | None]],
) -> Iterator[LogEvent | None]:
    """The log without savepoints and what was rolled back; a rollback is a commit of what is left.

    Args:
        lasting: tables whose rows no rollback undoes.
        ahead: the log from a transaction's beginning on, rows left out.
    """
    held: list[LogEvent] = []
    points: dict[str, int] = {}
    undone: list[Span] | None = None

    def stays(event: LogEvent) -> bool:
        return not isinstance(event, RowChange) or event.table in lasting

    for event in events:
        match event:
            case Begin():
                held, points, undone = [event], {}, None
            case Savepoint():
                points[event.name] = len(held)
            case RollbackTo():
                # A savepoint that is not in the log stood before everything that is.
                at = points.get(event.name, 1)
                points = {name: place for name, place in points.items() if place <= at}
                held[at:] = [one for one in held[at:] if stays(one)]
            case Rollback():
                yield from (one for one in held if stays(one))
                held = []
                yield Commit(event.at, event.seconds)
            case Commit():
                yield from held
                held = []
                yield event
            case _ if event is None or (not held and undone is None):
                yield event
            case _ if undone is not None:
                if stays(event) or not _within(event, undone):
                    yield event
            case _:
                held.append(event)
                if len(held) > HELD:
                    begin = held[0].at
                    undone = spans(ahead(begin), begin)
                    yield from (one for one in held if stays(one) or not _within(one, undone))
                    held = []


def spans(events: Iterable[LogEvent | Mark | None], begin: LogPlace) -> list[Span]:
    """What the transaction that begins there undoes."""
    points: dict[str, LogPlace] = {}
    found: list[Span] = []
    for event in events:
        match event:
            case Savepoint():
                points[event.name] = event.at
            case RollbackTo():
                since = points.get(event.name, begin)
                points = {name: at for name, at in points.items() if at <= since}
                found.append((since, event.at))
            case Rollback():
                return [(begin, event.at)]
            case Commit():
                return found
    return found


def _within(event: LogEvent, undone: list[Span]) -> bool:
    return any(since <= event.at < until for since, until in undone)
