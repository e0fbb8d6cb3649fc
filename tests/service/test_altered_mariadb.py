"""Every ALTER of a captured MariaDB table, as its catalog tells it: which columns are the ones of before.

What becomes of views then is the same for all databases (`test_altered_postgres`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from askedmariadb import captured
from mysqlservers import MARIADBS, database_server

from streaming.embedded.mariadb import Mariadb
from streaming.sources.layout import Layout, grown

COLUMNS = (
    "id INT PRIMARY KEY, i INT, u INT UNSIGNED, d DECIMAL(10,2), v VARCHAR(20) CHARACTER SET latin1,"
    " w VARCHAR(20) CHARACTER SET utf8mb4, t TINYTEXT, m DATETIME(6), e ENUM('a','b'), y BINARY(4)"
)
GOES_ON = [
    "ADD z INT DEFAULT 3",
    "ADD z INT FIRST",
    "MODIFY i INT FIRST",
    "MODIFY i INT NOT NULL DEFAULT 0, ALGORITHM=COPY",
    "MODIFY e ENUM('a','b','c')",
    "MODIFY w VARCHAR(200) CHARACTER SET utf8mb4",
    "MODIFY v VARCHAR(20) CHARACTER SET utf8mb4",
    "MODIFY t TEXT",
    "CONVERT TO CHARACTER SET utf8mb4",
    "ADD INDEX (i), ADD UNIQUE (u), COMMENT = 'x', ROW_FORMAT = DYNAMIC",
    "ENGINE = InnoDB",
]
WIDENS = {
    "MODIFY id BIGINT": {"id"},
    "MODIFY i BIGINT": {"i"},
    "MODIFY d DECIMAL(14,2)": {"d"},
}
LOSES = {
    "DROP i": {"i"},
    "CHANGE i j INT": {"i"},
    "RENAME COLUMN i TO j": {"i"},
    "MODIFY i SMALLINT": {"i"},
    "MODIFY i INT UNSIGNED": {"i"},
    "MODIFY u BIGINT UNSIGNED": {"u"},
    "MODIFY d DECIMAL(10,1)": {"d"},
    "MODIFY d DECIMAL(14,4)": {"d"},
    "MODIFY d DOUBLE": {"d"},
    "MODIFY w VARCHAR(5)": {"w"},
    "MODIFY w VARBINARY(80)": {"w"},
    "MODIFY m DATETIME": {"m"},
    "MODIFY e ENUM('b','a')": {"e"},
    "MODIFY y BINARY(8)": {"y"},
    "CONVERT TO CHARACTER SET latin1": {"w", "t", "e"},
}


@pytest.fixture(scope="module", params=MARIADBS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mariadb]:
    with database_server(request.param, tmp_path_factory.mktemp("altered")) as running:
        running.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
        yield running


def altered(server: Mariadb, *changes: str) -> Layout:
    """The layout of a table that is made and then altered."""
    server.execute(
        "SET sql_mode = ''",
        "DROP TABLE IF EXISTS shop.t",
        f"CREATE TABLE shop.t ({COLUMNS})",
        "INSERT INTO shop.t VALUES"
        " (1, 2, 3, 1.25, 'é', 'é', 'x', '2026-01-02 03:04:05.678901', 'b', 'y')",
    )
    layouts = grown({}, captured(server, "t"), 0)
    for number, change in enumerate(changes, 1):
        server.execute("SET sql_mode = ''", f"ALTER TABLE shop.t {change}")
        layouts = grown(layouts, captured(server, "t"), number)
    return layouts["shop.t"]


def names(layout: Layout, *, lost: bool) -> set[str]:
    gone = {one.name for one in layout.columns if one.until is not None and one.lost == lost}
    return gone


def test_what_every_alter_leaves_of_a_mariadb_s_columns(server: Mariadb) -> None:
    wrong = []
    cases = [(one, set[str](), set[str]()) for one in GOES_ON]
    cases += [(one, wider, set()) for one, wider in WIDENS.items()]
    cases += [(one, set(), lost) for one, lost in LOSES.items()]
    for change, wider, lost in cases:
        layout = altered(server, change)
        found = names(layout, lost=False), names(layout, lost=True)
        if found != (wider, lost):
            wrong.append((change, found))
    assert wrong == []
