"""Records real events of Debezium's MySQL connector: `shop_mysql*.jsonl` and `types_mysql.jsonl`.

Run it as `python tests/golden/record_mysql.py`. The connector reads a MariaDB, whose log it understands:
to a replica that does not know MariaDB's events the server writes its transactions as MySQL does. A
proxy between the two makes the connector such a replica, and says the one statement of its that is
unknown there in the older words.
"""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path
from typing import Any

from streaming.demo.embedded.connect_worker import Connect
from streaming.demo.embedded.kafka_broker import KafkaBroker, create_topics
from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.demo.embedded.parts import MARIADB_USER, StackSource, connector_config
from streaming.demo.embedded.ports import LOOPBACK, choose_ports
from streaming.spark import jars
from streaming.spark.artifacts import DEBEZIUM_VERSION, Artifact, ArtifactSet
from tests.golden.record_debezium import TARGET, Recorder, payload, snapshot_done

MYSQL_SET = ArtifactSet(
    "debezium-mysql",
    "Debezium for MySQL",
    (
        Artifact("io.debezium", "debezium-connector-mysql", DEBEZIUM_VERSION),
        Artifact("com.mysql", "mysql-connector-j", "9.3.0"),
    ),
    subfolder="debezium-connector-mysql",
)
Words = tuple[tuple[bytes, bytes], ...]
WORDS: Words = (
    (b"SHOW BINARY LOG STATUS", b"SHOW MASTER STATUS    "),
    (b"@mariadb_slave_capability=4", b"@mariadb_slave_capability=1"),
)
SHOP = (
    "CREATE TABLE account (id BIGINT PRIMARY KEY, owner VARCHAR(40))",
    "CREATE TABLE entry (id BIGINT PRIMARY KEY, account BIGINT, amount DECIMAL(18,2))",
    "CREATE TABLE fresco_global (id VARCHAR(40) PRIMARY KEY, parts INT)",
    "INSERT INTO account VALUES (1, 'one'), (2, 'Åse \"quoted\" 🙂'), (3, NULL)",
    "BEGIN; INSERT INTO entry VALUES (101, 1, -5.00), (102, 2, 5.00); COMMIT",
)
CHANGES = (
    "BEGIN; INSERT INTO entry VALUES (201, 1, -12.50), (202, 2, 12.50); COMMIT",
    "UPDATE account SET owner = 'uno' WHERE id = 1",
    "BEGIN; UPDATE account SET id = 33 WHERE id = 3; UPDATE entry SET account = 33; COMMIT",
    "BEGIN; INSERT INTO entry VALUES (999, 1, 1); ROLLBACK",
    "DELETE FROM entry WHERE id IN (201, 202)",
    "TRUNCATE TABLE entry",
    "BEGIN; INSERT INTO fresco_global VALUES ('g-1', 2); INSERT INTO entry VALUES (401, 2, 9.99);"
    " COMMIT",
)
LAST = "INSERT INTO account VALUES (1000, 'last')"
ODD = """CREATE TABLE odd (
 id INT PRIMARY KEY, t TINYINT, tu TINYINT UNSIGNED, iu INT UNSIGNED, bu BIGINT UNSIGNED,
 d DECIMAL(18,2), dw DECIMAL(38,10), f FLOAT, g DOUBLE, dt DATE, d6 DATETIME(6), d3 DATETIME(3),
 t6 TIMESTAMP(6) NULL, y YEAR, c CHAR(4), v VARCHAR(300), bi BINARY(4), bl BLOB, b1 BIT(1),
 b10 BIT(10), e ENUM('x','y z'), s SET('a','b','c'), j JSON)"""
ODD_ROWS = (
    r"""(%d, -128, 255, 4294967295, 18446744073709551615, -12.30,
 1234567890123456789012345678.0123456789, 0.1, 0.1, '2024-02-29', '2024-02-29 12:00:00.123456',
 '2024-02-29 12:00:00.123', '2024-02-29 12:00:00.123456', 2024, 'ab', 'é🙂', 'ab', x'00ff', b'1',
 b'1000000001', 'y z', 'c,a', '{"a": [1, 2.5]}')""",
    "(%d" + ", NULL" * 22 + ")",
)


class Proxy:
    """Between a client and the server; it changes some words into others of the same length."""

    def __init__(self, port: int, words: Words) -> None:
        self._server, self._words = port, words
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection((LOOPBACK, self._server))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while content := one.recv(1 << 16):
                for new, old in self._words:
                    content = content.replace(new, old)
                other.sendall(content)
        except OSError:
            pass
        finally:
            one.close()
            other.close()


class MysqlConnect(Connect):
    """A worker that has the MySQL connector."""

    def _worker(self) -> dict[str, str]:
        return super()._worker() | {"plugin.path": str(jars.resolve([MYSQL_SET])[0])}


class Bootstrap:
    """What `Recorder` asks of a stack."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap


def options(source: StackSource, bootstrap: str, port: int, password: str) -> dict[str, str]:
    """The connector's configuration: that of the PostgreSQL one, as far as MySQL has it."""
    general = connector_config(
        source, host=LOOPBACK, port=port, user=MARIADB_USER, password=password
    )
    for name in ("database.dbname", "plugin.name", "slot.name", "publication.name"):
        del general[name]
    del general["publication.autocreate.mode"]
    return general | {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.server.id": "4711",
        "database.include.list": "shop",
        "database.ssl.mode": "disabled",
        "decimal.handling.mode": "precise",
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": "history",
    }


def record(
    folder: Path,
    tables: tuple[str, ...],
    before: Any,
    after: Any,
    path: Path,
    words: Words = WORDS,
) -> None:
    """One snapshot and what comes after it."""
    source = StackSource("shop", tables=tuple(f"shop.{table}" for table in tables))
    ports = choose_ports(folder, dict.fromkeys(("kafka", "controller", "mariadb", "connect")))
    server, kafka = (
        Mariadb(folder, ports["mariadb"]),
        KafkaBroker(folder, ports["kafka"], ports["controller"]),
    )
    connect = MysqlConnect(folder, ports["connect"], f"{LOOPBACK}:{ports['kafka']}")
    try:
        server.start()
        kafka.start()
        server.execute("CREATE DATABASE shop")
        server.execute(*before, database="shop")
        create_topics(kafka.bootstrap, [*source.topics, "shop", "history"])
        proxy = Proxy(server.port, words)
        config = options(source, kafka.bootstrap, proxy.port, connect.secret("password"))
        connect.start({source.connector: config}, {"password": server.password})
        recorder = Recorder(Bootstrap(kafka.bootstrap), (source,))  # type: ignore[arg-type]
        recorder.await_record(source.notification_topic, snapshot_done)
        server.execute(*after, database="shop")
        key = "last" if "account" in tables else 14
        recorder.await_record(
            source.row_topics[0],
            lambda value: key in list((value["after"] or value["before"] or {}).values()),
        )
        if words == WORDS:
            recorder.await_record(source.transaction_topic, _quiet(recorder, source))
        recorder.write(path)
    finally:
        connect.stop()
        kafka.stop()
        server.stop()


def _quiet(recorder: Recorder, source: StackSource) -> Any:
    """END of the last row's transaction."""
    rows = [r for r in recorder.records if r["topic"] == source.row_topics[0] and r["value"]]
    last = payload(rows[-1]["value"])["transaction"]
    wanted = last["id"] if last else None
    return lambda value: value["status"] == "END" and value["id"] == wanted


def main() -> None:
    jars.resolve([MYSQL_SET])
    insert = "INSERT INTO odd VALUES " + ", ".join(ODD_ROWS)
    odd_after = [insert % (11, 12), "UPDATE odd SET t = 7", "DELETE FROM odd", insert % (13, 14)]
    with tempfile.TemporaryDirectory() as folder:
        shop = ("account", "entry", "fresco_global")
        record(Path(folder), shop, SHOP, (*CHANGES, LAST), TARGET / "shop_mysql.jsonl")
    with tempfile.TemporaryDirectory() as folder:
        path = TARGET / "types_mysql.jsonl"
        record(Path(folder), ("odd",), (ODD, insert % (1, 2)), odd_after, path)
    with tempfile.TemporaryDirectory() as folder:
        path = TARGET / "shop_mysql_single.jsonl"  # as a MariaDB's replica: without transactions
        record(Path(folder), shop, SHOP, (*CHANGES, LAST), path, WORDS[:1])


if __name__ == "__main__":
    main()
