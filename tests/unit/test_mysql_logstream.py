"""Events of a log by their types: decoded, known to change no row, or refused by name."""

from __future__ import annotations

import struct
import zlib

import pytest
from pymysqlreplication.constants import BINLOG

from streaming.ask.mariadb.mysql_state import LogPlace
from streaming.ask.mariadb.mysql_url import parse_url
from streaming.capture.log_stream import LoggedStatement, LogHeartbeat, LogStream, unpacked
from streaming.errors import FrescoError

CRC = b"\0\0\0\0"


def stream() -> LogStream:
    url = parse_url("mariadb://u@h/bank", "shop")
    return LogStream(url, "shop", [("bank", "entry")], LogPlace("log.000001", 4), 7)


def event(kind: int, body: bytes = b"", flags: int = 0) -> bytes:
    """An event as a server sends it, with a checksum."""
    size = 19 + len(body) + len(CRC)
    return b"\0" + struct.pack("<IBIIIH", 9, kind, 1, size, 500, flags) + body + CRC


def statement(query: bytes, charset: int = 33, sql_mode: int = 0) -> bytes:
    settings = struct.pack("<BIBQ", 0, 0, 1, sql_mode) + struct.pack("<BHHH", 4, charset, 33, 33)
    return struct.pack("<IIBHH", 1, 0, 4, 0, len(settings)) + settings + b"bank\0" + query


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (26, "CAPTURE_INCIDENT"),
        (40, r"CAPTURE_EVENT.*compressed transaction.*binlog_transaction_compression"),
        (172, "CAPTURE_EVENT.*type 172"),
        (20, "CAPTURE_EVENT"),
        (0, "CAPTURE_EVENT"),
    ],
)
def test_an_event_that_may_change_rows_and_is_not_known_ends_the_capture(
    kind: int, code: str
) -> None:
    with pytest.raises(FrescoError, match=rf"(?s){code}") as refused:
        stream().event(event(kind))
    assert "log.000001:" in refused.value.where


def test_every_type_that_the_library_names_is_decoded_harmless_or_refused() -> None:
    """None is passed over because nobody thought of it."""
    types = {name: value for name, value in vars(BINLOG).items() if name.endswith("_EVENT")}
    names = {name: value for name, value in types.items() if not name.startswith("INTVAR_")}
    refused = set()
    for name, kind in names.items():
        try:
            stream().event(event(kind, b"\0" * 80))
        except FrescoError as error:
            assert error.code in ("CAPTURE_EVENT", "CAPTURE_INCIDENT")
            refused.add(name)
        except Exception:
            continue  # decoded: these bytes are none of its own
    old = {f"PRE_GA_{op}_ROWS_EVENT" for op in ("WRITE", "UPDATE", "DELETE")}
    old |= {"UNKNOWN_EVENT", "LOAD_EVENT", "SLAVE_EVENT", "CREATE_FILE_EVENT", "EXEC_LOAD_EVENT"}
    assert refused == old | {"NEW_LOAD_EVENT", "INCIDENT_EVENT"}


def test_an_unknown_event_that_its_server_says_may_be_passed_over_is() -> None:
    assert stream().event(event(200, flags=0x80)) is None
    assert isinstance(stream().event(event(41)), LogHeartbeat)


def test_a_statement_comes_in_its_session_s_letters_with_its_sql_mode() -> None:
    """A latin1 session wrote the name of a table."""
    said = stream().event(event(2, statement("TRUNCATE `é`".encode("latin1"), 8, 4)))
    assert said == LoggedStatement(
        500 - said.end + said.begin, 500, 1, 9, "bank", "TRUNCATE `é`", 4
    )
    assert stream().event(event(2, statement("SELECT '🙂'".encode(), 45))).query == "SELECT '🙂'"


def test_a_statement_that_was_compressed_is_read_whatever_settings_follow() -> None:
    plain = statement(b"")
    query = b"TRUNCATE entry" + b" " * 300
    packed = bytes([0x82]) + struct.pack(">H", len(query)) + zlib.compress(query)
    assert stream().event(event(165, plain + packed)).query == query.decode()
    other = bytes([0x92]) + packed[1:]
    with pytest.raises(FrescoError, match="CAPTURE_EVENT"):
        unpacked(event(165, plain + other), True)
