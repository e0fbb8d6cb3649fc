"""One MariaDB server from the system's package, on a loopback port, as a source of the stack.

It writes whole rows into its log with a GTID for each transaction, listens on TCP only, asks for a
password, and keeps its log and its tables durable at each commit. Run as a program it makes sure
that the server is installed: where apt may be used it is installed, elsewhere the command is said.
"""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pymysql
from pymysql.constants import CLIENT

from streaming.demo.embedded.account import server_account
from streaming.demo.embedded.parts import MARIADB_SETTINGS, MARIADB_USER
from streaming.demo.embedded.ports import LOOPBACK
from streaming.demo.embedded.server_process import Account, Command, ManagedProcess
from streaming.errors import FrescoError
from streaming.spark.apt import install_one_of, may_install

APT_PACKAGES = ("mariadb-server-core", "mariadb-server")
_READY_SECONDS = 60
_PLACES = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/libexec")
_SYSTEM_TABLES = (
    "{}_system_tables.sql",
    "{}_performance_tables.sql",
    "{}_system_tables_data.sql",
)
_BEFORE = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket = NULL;"
_AFTER = "DELETE FROM global_priv;\nDELETE FROM proxies_priv;\n"
_TODO = (
    "install MariaDB 10.11 or newer (Debian and Ubuntu: apt-get install mariadb-server-core; "
    "Fedora: dnf install mariadb-server; macOS: brew install mariadb)"
)


class Mariadb:
    """The server of the stack in `folder`; its data stay in `<folder>/mariadb` between starts.

    Args:
        program: the words that run another server than the installed one, its path the last of them.
    """

    def __init__(self, folder: Path, port: int, program: Sequence[str] = ()) -> None:
        self.folder = folder
        self.port = port
        self._program = tuple(program)
        self._home = folder / "mariadb"
        self._process: ManagedProcess | None = None

    @property
    def password(self) -> str:
        """The user's password, drawn when the data folder was made (file mode 600)."""
        return (self._home / "password").read_text().strip()

    @property
    def pid(self) -> int | None:
        """Process id of the running server."""
        return self._process.pid if self._process and self._process.running else None

    def url(self, database: str = "") -> str:
        """The connection's URL, password included: do not print it."""
        return f"mariadb://{MARIADB_USER}:{self.password}@{LOOPBACK}:{self.port}/{database}"

    def start(self) -> None:
        """Make the data folder the first time, start, and wait until it answers a query.

        Raises FrescoError EMBEDDED_START_FAILED or EMBEDDED_MARIADB_MISSING.
        """
        server = self._program or (server_program(),)
        self._home.mkdir(parents=True, exist_ok=True)
        account = server_account("MariaDB", ("mysql", "nobody"), [self._home.resolve()])
        if not (self._home / "data").is_dir():
            self._initialise(server, account)
        options = [
            "--no-defaults",
            f"--datadir={self._home / 'data'}",
            f"--tmpdir={self._home / 'tmp'}",
            f"--port={self.port}",
            f"--bind-address={LOOPBACK}",
            "--socket=",
            f"--init-file={self._home / 'users.sql'}",
            *(f"--{name}={value}" for name, value in MARIADB_SETTINGS.items()),
        ]
        command = Command("mariadb", [*server, *options], account=account)
        self._process = ManagedProcess(command, self.folder).start()
        self._process.wait_healthy(self._answers, _READY_SECONDS)

    def stop(self) -> None:
        """Stop the server cleanly; nothing happens when it does not run."""
        if self._process is not None:
            self._process.stop(60)

    def execute(self, *statements: str, database: str = "") -> None:
        """Run texts of one or more statements as the user of `url`, committed one by one."""
        with self._connect(database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                while cursor.nextset():
                    pass

    def _initialise(self, server: Sequence[str], account: Account | None) -> None:
        """Make the system's tables in a folder that gets its name only when it is whole.

        The one user there is stands in a file that the server runs at each start.
        """
        fresh = self._home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        password = secrets.token_urlsafe(24)
        user = f"'{MARIADB_USER}'@'{LOOPBACK}'"
        files = {
            "password": password,
            "users.sql": "SET sql_log_bin = 0;\n"
            f"CREATE OR REPLACE USER {user} IDENTIFIED BY '{password}';\n"
            f"GRANT ALL PRIVILEGES ON *.* TO {user} WITH GRANT OPTION;",
        }
        for name, text in files.items():
            path = self._home / name
            path.unlink(missing_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text + "\n")
            if account is not None:
                os.chown(path, account.uid, account.gid)
        scratch = self._home / "tmp"
        scratch.mkdir(mode=0o700, exist_ok=True)
        if account is not None:
            for folder in (fresh, scratch):
                os.chown(folder, account.uid, account.gid)
        tables = self._home / "tables.sql"
        tables.write_text(_system_tables(server[-1]))
        # The server reads its standard input, which a managed process has none of.
        words = ["/bin/sh", "-c", 'exec "$0" "$@" < ' + shlex.quote(str(tables)), *server]
        words += ["--no-defaults", "--bootstrap", f"--datadir={fresh}", f"--tmpdir={scratch}"]
        command = Command("mariadb-init", words, account=account)
        ManagedProcess(command, self.folder).start().wait_done(120)
        os.rename(fresh, self._home / "data")

    def _answers(self) -> bool:
        with self._connect("") as connection, connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return bool(cursor.fetchone() == (1,))

    def _connect(self, database: str) -> pymysql.connections.Connection:
        return pymysql.connect(
            host=LOOPBACK,
            port=self.port,
            user=MARIADB_USER,
            password=self.password,
            database=database or None,
            connect_timeout=2,
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS,
        )


def server_program() -> str:
    """Path of the server. Raises FrescoError EMBEDDED_MARIADB_MISSING when there is none."""
    found = shutil.which("mariadbd", path=os.pathsep.join([os.environ.get("PATH", ""), *_PLACES]))
    if found is None:
        raise FrescoError("EMBEDDED_MARIADB_MISSING", "mariadbd was not found", todo=_TODO)
    return found


def _system_tables(server: str) -> str:
    """What makes the system's tables, without any user; from the server's package."""
    base = Path(server).resolve().parents[1] / "share"
    for folder in (base / "mysql", base / "mariadb", Path("/usr/share/mysql"), base):
        for name in ("mysql", "mariadb"):  # the older and the newer name of the same files
            files = [folder / one.format(name) for one in _SYSTEM_TABLES]
            if all(file.is_file() for file in files):
                return "\n".join([_BEFORE, *(file.read_text() for file in files), _AFTER])
    raise FrescoError(
        "EMBEDDED_MARIADB_MISSING",
        "the files that make its system tables were not found",
        where=str(base),
        todo=_TODO,
    )


def main() -> None:
    """Exit 0 with a server in place, else 1 with one line that says what to do."""
    try:
        try:
            server_program()
        except FrescoError:
            if not may_install() or not install_one_of(APT_PACKAGES):
                raise
            server_program()
    except FrescoError as failure:
        sys.exit(str(failure))


if __name__ == "__main__":
    main()
