"""Those who write to a database while a test reads: they wait for it where it falls behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager

import psycopg
from services import Pipeline

from streaming.demo.pace import Pace

AHEAD = 200
"""Transactions that writers may be ahead of a pipeline: more than any refresh or block of a test."""


def paced_by(pipeline: Pipeline) -> Pace:
    """For those who write beside it: they wait for it where it is `AHEAD` behind."""
    return Pace(AHEAD, lambda pace: pace.until(pipeline.shows_ms()))


@contextmanager
def at_work(pace: Pace, writers: Iterable[Callable[[Pace], object]]) -> Iterator[None]:
    """Those who write, a thread each, until the block ends; each asks the pace before a transaction."""
    failures = list[BaseException]()

    def work(write: Callable[[Pace], object]) -> None:
        try:
            write(pace)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(one,)) for one in writers]
    for one in threads:
        one.start()
    try:
        yield
    finally:
        pace.end()
        for one in threads:
            one.join()
    assert not failures, failures


def writing(
    reader: Pipeline, dsn: str, statements: Iterable[str], pause: float
) -> AbstractContextManager[None]:
    """Somebody commits one statement after the other, `pause` seconds apart, until the block ends."""

    def write(pace: Pace) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for statement in statements:
                if not pace.may_write():
                    return
                connection.execute(statement.encode())
                pace.wrote()
                time.sleep(pause)

    return at_work(paced_by(reader), [write])
