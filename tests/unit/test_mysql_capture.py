"""What a capture refuses before it connects, and how it says where it is."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pymysql
import pytest

from streaming.ask.mariadb.mysql_catalog import read_schemas
from streaming.ask.mariadb.mysql_state import LogPlace, place
from streaming.ask.mariadb.mysql_url import parse_url
from streaming.capture.binlog import LogReader
from streaming.capture.capture_status import Status
from streaming.capture.capturing import Capture
from streaming.capture.log_events import Begin, Commit, Ddl, LogEvent, Truncate
from streaming.capture.log_inbox import LogInbox
from streaming.capture.log_stream import LoggedStatement
from streaming.capture.position import PublishedPosition, progress_from_json
from streaming.cli.capture_lines import status_line
from streaming.configuration.pipeline_config import parse_config
from streaming.errors import FrescoError


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
    progress = PublishedPosition(LogPlace("binlog.000007", 339), 12, "0-1-5", 1, "running", 2)
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
    events: list[LogEvent] = [Commit(LogPlace("log.1", n), 0) for n in range(100)]
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


# The log ------------------------------------------------------------------------------------------


def reader(folds: bool = False) -> LogReader:
    url, tables = parse_url("mariadb://u@h/bank", "shop"), frozenset({("bank", "entry")})
    return LogReader(url, "shop", tables, LogPlace("log.000001", 4), "precise", 7, folds)


def statement(query: str, end: int) -> LoggedStatement:
    """A statement as the stream hands it on; each is ten bytes long."""
    return LoggedStatement(end - 10, end, 1, 9, "bank", query)


def told(log: LogReader, *queries: str) -> list[object]:
    events = [statement(query, 100 + 10 * at) for at, query in enumerate(queries)]
    return [one for event in events for one in log.told(event)]


def test_a_transaction_without_a_gtid_begins_with_its_first_word() -> None:
    """MySQL with gtid_mode=OFF, its default."""
    at = LogPlace("log.000001", 90)
    begin, commit = told(reader(), "BEGIN", "COMMIT")
    assert begin == Begin(at, "", 9) and commit == Commit(LogPlace("log.000001", 110), 9)
    kinds = [type(one) for one in told(reader(), "TRUNCATE entry", "DROP TABLE other")]
    assert kinds == [Begin, Ddl, Truncate, Commit, Begin, Ddl, Commit]


@pytest.mark.parametrize(("folds", "seen"), [(True, 1), (False, 0)])
def test_a_truncate_is_told_in_whatever_case_the_server_takes_names(folds: bool, seen: int) -> None:
    found = [one for one in told(reader(folds), "TRUNCATE ENTRY") if isinstance(one, Truncate)]
    assert [one.table for one in found] == [("bank", "entry")] * seen


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("BEGIN", "SET STATEMENT sql_mode='' FOR DELETE FROM entry"), "CAPTURE_STATEMENT"),
    ],
)
def test_what_is_no_rows_stops_a_capture(words: tuple[str, ...], code: str) -> None:
    with pytest.raises(FrescoError, match=rf"{code}.*log.000001:\d+"):
        told(reader(), *words)


# Trouble ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (pymysql.OperationalError(2013, "Lost connection to server during query"), "UNREACHABLE"),
        (pymysql.OperationalError(1053, "Server shutdown in progress"), "UNREACHABLE"),
        (pymysql.InterfaceError(0, ""), "UNREACHABLE"),
        (pymysql.OperationalError(1227, "you need the BINLOG MONITOR privilege"), "REFUSED"),
    ],
)
def test_a_server_that_goes_away_during_a_snapshot_is_waited_for(
    error: pymysql.MySQLError, code: str
) -> None:
    capture = Capture(config(database="mariadb", connection="mariadb://u@h/d"), "shop", print)
    assert capture._failed(error).code.endswith(code)


def test_a_file_of_certificates_that_is_not_there_has_a_code() -> None:
    url = "mariadb://u:s3cret@127.0.0.1:1/d?ssl_ca=/no/such/file.pem"
    with pytest.raises(FrescoError, match=r"SOURCE_UNREACHABLE.*No such file"):
        read_schemas(url, "shop", "shop", {"entry": "d.entry"})
