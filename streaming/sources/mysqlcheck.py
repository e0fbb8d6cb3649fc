"""What `fresco doctor` looks at in a MariaDB or MySQL source: its log, and the rights to read it."""

from __future__ import annotations

from collections.abc import Iterator

from streaming.sources.checked import Checked
from streaming.sources.mysql import WANTED, replication_rights, wrong_settings
from streaming.sources.mysqlurl import asking, parse_url

_DAY = 86_400


def check_server(connection: str, source: str) -> Iterator[Checked]:
    """The checks, in order.

    Raises:
        FrescoError: SOURCE_CONNECTION, SOURCE_UNREACHABLE, SOURCE_CREDENTIALS.
    """
    wrong = wrong_settings(connection, source)
    yield Checked(
        f"log of {source}",
        "wrong" if wrong else "ok",
        ", ".join(f"{name} is {value}" for name, value in (wrong or WANTED).items()),
        " ".join(f"SET GLOBAL {n} = '{WANTED[n]}';" for n in wrong if n != "log_bin")
        or ("set log_bin and restart the server" if wrong else ""),
    )
    lacking = replication_rights(connection, source)
    yield Checked(
        f"rights at {source}",
        "warning" if lacking else "ok",
        lacking or "the user may read the log",
        "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO the capture's user" if lacking else "",
    )
    yield _retention(connection, source)


def _retention(connection: str, source: str) -> Checked:
    """How long the log is kept: a capture that is away for longer needs a new snapshot."""
    url = parse_url(connection, source)
    with asking(url, source) as cursor:
        cursor.execute("SHOW GLOBAL VARIABLES LIKE 'binlog_expire_logs_seconds'")
        row = cursor.fetchone()
    seconds = int(row[1]) if row else 0
    if 0 < seconds < _DAY:
        return Checked(
            f"log retention of {source}",
            "warning",
            f"the log is kept for {seconds} s; a capture that is away for longer cannot go on",
            f"SET GLOBAL binlog_expire_logs_seconds = {7 * _DAY};",
        )
    kept = f"{seconds} s" if seconds else "ever"
    return Checked(f"log retention of {source}", "ok", f"the log is kept for {kept}")
