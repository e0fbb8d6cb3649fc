"""Watches for what holds up a source: rows an END counts, parts of global transactions (DESIGN 6, 11).

Topics are not ordered among themselves, so an END may be ahead of its rows for a moment, and a part ahead
of the others; only what stays so is told of, once. Nothing is skipped: the rows are waited for, and the
parts until the global timeout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from streaming.errors import FrescoError

SNAPSHOT_SECONDS = 60.0
"""For so long nothing has come of a snapshot before it is told of."""
INCOMPLETE_SECONDS = 10.0
OPEN_SECONDS = 60.0
"""For so long a transaction may go on before its END is asked for."""


@dataclass(frozen=True)
class _Seen:
    transaction: str
    since: float
    told: FrescoError | None = None


class IncompleteWatch:
    """What each source waits for, and since when.

    Args:
        show: is given (source, seconds) whenever a source is looked at; 0 when it does not wait.
        error: of a source and the transaction it waits for.
        patience: seconds before it is told of.
    """

    def __init__(
        self,
        show: Callable[[str, float], object],
        error: Callable[[str, str], FrescoError],
        patience: float = INCOMPLETE_SECONDS,
    ) -> None:
        self._show, self._error, self._patience = show, error, patience
        self._seen: dict[str, _Seen] = {}

    @property
    def told(self) -> dict[str, FrescoError]:
        """Source -> what has been told of it and is still so; another thread may ask."""
        return {name: seen.told for name, seen in list(self._seen.items()) if seen.told is not None}

    def look(self, incomplete: Mapping[str, str]) -> list[FrescoError]:
        """The errors to tell of now, each once.

        Args:
            incomplete: source -> its first transaction that lacks something.
        """
        now = time.monotonic()
        for source in self._seen.keys() - incomplete.keys():
            del self._seen[source]
            self._show(source, 0.0)
        errors = []
        for source, transaction in incomplete.items():
            seen = self._seen.get(source)
            if seen is None or seen.transaction != transaction:
                seen = _Seen(transaction, now)
            if now - seen.since >= self._patience and seen.told is None:
                seen = replace(seen, told=(error := self._error(source, transaction)))
                errors.append(error)
            self._seen[source] = seen
            self._show(source, now - seen.since)
        return errors


def rows_missing(source: str, transaction: str) -> FrescoError:
    """SOURCE_TRANSACTION_INCOMPLETE."""
    return FrescoError(
        "SOURCE_TRANSACTION_INCOMPLETE",
        f"the END of transaction {transaction} counts rows that have not come for "
        f"{INCOMPLETE_SECONDS:.0f} s; it and what follows it at this source are held",
        where=f"source {source}, transaction {transaction}",
        todo="see that the connector runs and that no row topic was cut; the rows are awaited",
    )


def snapshot_open(source: str, come: str) -> FrescoError:
    """SOURCE_SNAPSHOT_OPEN."""
    return FrescoError(
        "SOURCE_SNAPSHOT_OPEN",
        f"nothing is numbered before the initial snapshot of {source} is there: {come}",
        where=f"source {source}",
        todo="see that its connector runs and sends notifications (notification.enabled.channels=sink);"
        " rows of a table without a key that came twice need a new snapshot, in topics of their own",
    )


def part_missing(_: str, transaction: str) -> FrescoError:
    """SOURCE_GLOBAL_INCOMPLETE."""
    return FrescoError(
        "SOURCE_GLOBAL_INCOMPLETE",
        f"a part of global transaction {transaction} has not come for {INCOMPLETE_SECONDS:.0f} s; "
        "until it does its other parts are not shown, nor what follows them at their sources",
        where=f"global transaction {transaction}",
        todo="see that the connectors of all its sources run; after limits.global_timeout_ms it is "
        "released as local transactions",
    )


def end_missing(source: str, _: str) -> FrescoError:
    """SOURCE_TRANSACTION_OPEN."""
    return FrescoError(
        "SOURCE_TRANSACTION_OPEN",
        f"rows of {source} have come, and for {OPEN_SECONDS:.0f} s no END of any of their transactions",
        where=f"source {source}",
        todo="see that its connector has provide.transaction.metadata=true and writes them to the topic "
        "<prefix>.transaction; one long transaction is waited for",
    )


def ends_watch() -> IncompleteWatch:
    """Over sources whose rows wait for an END, by the position up to which they are numbered."""
    return IncompleteWatch(lambda *_: None, end_missing, OPEN_SECONDS)


def globals_watch() -> IncompleteWatch:
    """Over global transactions, by their ids."""
    return IncompleteWatch(lambda *_: None, part_missing)


def snapshots_watch() -> IncompleteWatch:
    """Over initial snapshots, by their sources."""
    return IncompleteWatch(lambda *_: None, snapshot_open, SNAPSHOT_SECONDS)
