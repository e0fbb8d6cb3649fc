"""What the connections to all kinds of sources share: a lost one is made anew once, errors have codes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from streaming.errors import FrescoError

T = TypeVar("T")


class ConnectionLost(Exception):
    """The connection is gone, or was when it was used."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


class Reconnecting(ABC):
    """The connection of one thread to one source.

    Args:
        source: the source's name.
        timeout: seconds a statement may take.
        remembered: a position that the source is known to have written durably, by an earlier run.
    """

    def __init__(self, source: str, *, timeout: float, remembered: int) -> None:
        self.source = source
        self.durable = remembered
        self.connects = 0
        self._timeout = timeout

    @abstractmethod
    def close(self) -> None:
        """End the connection; the next use makes a new one."""

    @abstractmethod
    def _is_open(self) -> bool:
        """Whether there is a connection, sound or not."""

    def again(self, work: Callable[[], T]) -> T:
        """The work's result; once repeated over a new connection when the one in use is lost.

        Raises:
            FrescoError: SOURCE_UNREACHABLE; what `work` raises.
        """
        fresh = not self._is_open()
        try:
            return work()
        except ConnectionLost as lost:
            self.close()
            if fresh:
                raise self._unreachable(lost.what) from None
        try:
            return work()
        except ConnectionLost as lost:
            self.close()
            raise self._unreachable(lost.what) from None

    def _unreachable(self, text: str) -> FrescoError:
        return FrescoError(
            "SOURCE_UNREACHABLE",
            f"source {self.source} cannot be asked: {text}",
            where=f"source {self.source}",
            todo="check the address and that the server is up; the views that ask it wait, the"
            " others go on",
        )

    def _timed_out(self) -> FrescoError:
        return FrescoError(
            "SOURCE_QUERY_TIMEOUT",
            f"a query to source {self.source} took longer than {self._timeout:g} s",
            where=f"source {self.source}",
            todo="see that the columns which the view joins on have indexes there, or raise"
            " query_timeout",
        )

    def _query_refused(self, text: str) -> FrescoError:
        return FrescoError(
            "SOURCE_QUERY_REFUSED",
            f"source {self.source} refuses a query: {text}",
            where=f"source {self.source}",
            todo="the view's tables and columns must be there, and the user needs SELECT on them",
        )
