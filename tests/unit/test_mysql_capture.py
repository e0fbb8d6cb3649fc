"""What a capture refuses before it connects, and how it says where it is."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from streaming.capture.inbox import LogInbox
from streaming.capture.logevents import Commit, LogEvent
from streaming.capture.position import Progress, progress_from_json
from streaming.capture.service import Capture, Status
from streaming.config import parse_config
from streaming.console.capturing import status_line
from streaming.errors import FrescoError
from streaming.sources.mysqlstate import Place, place


def config(**source: Any) -> Any:
    return parse_config(
        {
            "pipeline": "p",
            "warehouse": "w",
            "views": "v",
            "sources": {"shop": {"tables": {"t": "shop.t"}, **source}},
        },
        folder=Path("/"),
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"database": "mariadb", "connection": "mariadb://u:p@h/d"}, "absent"),
        ({"connection": "postgresql://u:p@h/d"}, "shop"),
        ({"database": "mariadb"}, "shop"),
    ],
)
def test_only_a_mariadb_or_mysql_with_a_connection_is_captured(
    source: dict[str, str], name: str
) -> None:
    with pytest.raises(FrescoError, match="CAPTURE_SOURCE"):
        Capture(config(**source), name, lambda _: None)


def test_progress_survives_as_json_and_what_is_none_is_refused() -> None:
    progress = Progress(Place("binlog.000007", 339), 12, "0-1-5", 1, "running", 2)
    assert progress_from_json(progress.to_json(), "here") == progress
    for wrong in (b"{}", b"no", json.dumps({"format": 2}).encode()):
        with pytest.raises(FrescoError, match="CAPTURE_STATE"):
            progress_from_json(wrong, "here")


def test_places_are_ordered_over_files_and_need_a_number() -> None:
    assert place("log.000009", 900) < place("log.000010", 4) < place("log.000010", 5)
    for wrong in ("", "log", "log."):
        with pytest.raises(FrescoError, match="SOURCE_LOG_NAME"):
            place(wrong, 4)


def test_a_status_is_told_in_words() -> None:
    assert status_line(Status("snapshot", "log.1:4", rows=1234)) == (
        "snapshot at log.1:4: 1,234 rows"
    )
    said = status_line(Status("streaming", "log.1:4", transactions=2, events=5, behind_ms=1500))
    assert said == "streaming at log.1:4: 2 transactions, 5 events, the newest 1.5 s old"
    assert status_line(Status("waiting", "", error="no broker")) == "waiting: no broker"


class Reader:
    """A log of some events that then fails."""

    def __init__(self, events: list[LogEvent], failure: Exception) -> None:
        self.events_, self.failure, self.closed = events, failure, threading.Event()

    def events(self) -> Any:
        yield from self.events_
        raise self.failure

    def close(self) -> None:
        self.closed.set()


def test_what_was_read_is_taken_whole_before_the_reader_s_error_is_raised() -> None:
    events: list[LogEvent] = [Commit(Place("log.1", n), 0) for n in range(100)]
    for failure, code in ((FrescoError("SOURCE_UNREACHABLE", "gone"), "SOURCE_UNREACHABLE"),
                          (ValueError("odd"), "CAPTURE_LOG_UNREADABLE")):  # fmt: skip
        reader = Reader(events, failure)
        inbox = LogInbox(reader)  # type: ignore[arg-type]
        taken: list[LogEvent] = []
        with pytest.raises(FrescoError, match=code):
            while len(taken) <= len(events):
                taken += inbox.take(5)
        assert taken == events
        inbox.close()
        assert reader.closed.is_set()
