"""Watches for transactions that hold up their source: END counts rows that do not come (DESIGN 11).

Topics are not ordered among themselves, so an END may be ahead of its rows for a moment; only one that
stays so is told of, once. Nothing is skipped: the source waits until the rows come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from streaming.errors import FrescoError

INCOMPLETE_SECONDS = 10.0


@dataclass(frozen=True)
class _Seen:
    transaction: str
    since: float
    told: bool = False


class IncompleteWatch:
    """What each source waits for, and since when.

    Args:
        show: is given (source, seconds) whenever a source is looked at; 0 when it does not wait.
    """

    def __init__(self, show: Callable[[str, float], object]) -> None:
        self._show = show
        self._seen: dict[str, _Seen] = {}

    def look(self, incomplete: Mapping[str, str]) -> list[FrescoError]:
        """The errors to tell of now, SOURCE_TRANSACTION_INCOMPLETE, each once.

        Args:
            incomplete: source -> its first transaction that lacks rows.
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
            if now - seen.since >= INCOMPLETE_SECONDS and not seen.told:
                errors.append(_error(source, transaction))
                seen = replace(seen, told=True)
            self._seen[source] = seen
            self._show(source, now - seen.since)
        return errors


def _error(source: str, transaction: str) -> FrescoError:
    return FrescoError(
        "SOURCE_TRANSACTION_INCOMPLETE",
        f"the END of transaction {transaction} counts rows that have not come for "
        f"{INCOMPLETE_SECONDS:.0f} s; it and what follows it at this source are held",
        where=f"source {source}, transaction {transaction}",
        todo="see that the connector runs and that no row topic was cut; the rows are awaited",
    )
