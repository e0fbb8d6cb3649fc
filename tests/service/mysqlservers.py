"""MariaDB and MySQL servers of other versions than the installed one, for tests.

They are packages of Debian's other releases, which apt brings from where it brings its own, and which are
unpacked into Fresco's cache, not installed: a server runs with the libraries of its release beside it.
What cannot be had here (no apt, no such release) skips the tests of that server, and says so.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pymysql
import pytest
from pymysql.constants import CLIENT

from streaming.demo.embedded.mariadb_server import Mariadb
from streaming.demo.embedded.ports import LOOPBACK
from streaming.demo.embedded.server_process import Command, ManagedProcess
from streaming.spark.jars import cache_folder

RELEASES = {
    "mariadb-11.8": ("trixie", "mariadb-server-core"),
    "mysql-9": ("sid", "mysql-server-core"),
}
"""Server -> Debian's release and the package."""
EVERY = ["installed", *(pytest.param(name, marks=pytest.mark.deep) for name in RELEASES)]
"""Of `pytest.fixture(params=...)`: the others take long to fetch and to start."""
MARIADBS = EVERY[:2]
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_NEEDLESS = ("perl", "libperl", "libdb5", "libgdbm")
"""Names of packages that only a package's scripts need begin so."""


@contextmanager
def database_server(kind: str, folder: Path) -> Iterator[Mariadb]:
    """A running server of a kind, with the calls of `Mariadb`."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    running = _server(kind, folder, port)
    running.start()
    try:
        yield running
    finally:
        running.stop()


def _server(kind: str, folder: Path, port: int) -> Mariadb:
    if kind == "installed":
        return Mariadb(folder, port)
    root = unpacked(kind)
    if kind.startswith("mysql"):
        return Mysql(folder, port, root)
    return Mariadb(folder, port, _words(root, "mariadbd"))


def _words(root: Path, program: str) -> list[str]:
    """A program of an unpacked release, under that release's own loader and libraries."""
    libraries = root / _LIBRARIES
    loader = str(libraries / "ld-linux-x86-64.so.2")
    return [loader, "--library-path", str(libraries), str(root / "usr" / "sbin" / program)]


class Mysql(Mariadb):
    """A MySQL, asked as a MariaDB is; its data folder is a copy of one that is made once."""

    def __init__(self, folder: Path, port: int, root: Path) -> None:
        super().__init__(folder, port, _words(root, "mysqld"))
        self._root = root

    def url(self, database: str = "") -> str:
        return super().url(database).replace("mariadb://", "mysql://")

    def start(self) -> None:
        data = self._home / "data"
        if not data.is_dir():
            self._home.mkdir(parents=True, exist_ok=True)
            shutil.copytree(self._made_once(), data)
            (data / "auto.cnf").unlink(missing_ok=True)
            password = secrets.token_urlsafe(24)
            (self._home / "password").write_text(password)
            user = f"'fresco'@'{LOOPBACK}'"
            (self._home / "users.sql").write_text(
                f"SET sql_log_bin = 0;\nCREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{password}';\n"
                f"GRANT ALL PRIVILEGES ON *.* TO {user} WITH GRANT OPTION;\n"
            )
        options = (
            f"--datadir={data}", f"--port={self.port}", f"--bind-address={LOOPBACK}",
            f"--socket={self._home / 'socket'}", f"--init-file={self._home / 'users.sql'}",
            "--mysqlx=OFF", "--secure-file-priv=NULL", "--server-id=1", "--log-bin=binlog",
            "--binlog-row-metadata=FULL", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
            "--innodb-buffer-pool-size=64M", "--default-time-zone=+00:00", "--skip-name-resolve",
            "--innodb-fast-shutdown=2",
        )  # fmt: skip
        command = Command("mysql", [*self._words(), *options])
        self._process = ManagedProcess(command, self.folder).start()
        self._process.wait_healthy(self._answers, 120)

    def _words(self) -> list[str]:
        share = self._root / "usr" / "share" / "mysql"
        words = [*self._program, "--no-defaults", f"--basedir={self._root / 'usr'}"]
        words += [f"--character-sets-dir={share / 'charsets'}", f"--lc-messages-dir={share}"]
        return [*words, "--user=root"] if os.geteuid() == 0 else words

    def _made_once(self) -> Path:
        """A new data folder, as the server makes it."""
        made = self._root.parent / "data"
        if not made.is_dir():
            with tempfile.TemporaryDirectory(dir=self._root.parent) as draft:
                words = [*self._words(), "--initialize-insecure", f"--datadir={draft}/data"]
                subprocess.run([*words, "--innodb-redo-log-capacity=8M"], check=True)
                _kept(Path(draft) / "data", made)
        return made


@cache
def unpacked(kind: str) -> Path:
    """The folder of a release's server with its libraries; skips the test where it cannot be had."""
    release, package = RELEASES[kind]
    home = cache_folder() / "servers" / f"{release}-{package}"
    if (home / "root").is_dir():
        return home / "root"
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home) as draft:
        apt = _private_apt(Path(draft), release)
        told = _run([*apt("apt-get"), "install", "-s", "--no-install-recommends", package], draft)
        names = [line.split()[1] for line in told.splitlines() if line.startswith("Inst ")]
        names = [name for name in names if not name.startswith(_NEEDLESS)]
        _run([*apt("apt-get"), "download", *names], draft)
        for file in Path(draft).glob("*.deb"):
            _run(["dpkg", "-x", str(file), f"{draft}/root"], draft)
        _kept(Path(draft) / "root", home / "root")
    return home / "root"


def _private_apt(folder: Path, release: str):  # type: ignore[no-untyped-def]
    """The beginning of an apt command that knows one other release, from where apt has its own."""
    asked = ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(RELEASE)|$(REPO_URI)"]
    own = [line.split("|") for line in _run(asked, str(folder)).splitlines()]
    places = [uri for origin, suite, uri in own if origin == "Debian" and "-" not in suite]
    if not places:
        pytest.skip("apt knows no release of Debian here")
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "sources.list").write_text(f"deb [signed-by={_KEYS}] {places[0]} {release} main\n")
    options = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State": folder / "state",
        "Dir::Cache": folder / "cache",
        "Dir::State::status": "/dev/null",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }

    def words(program: str) -> list[str]:
        return [program, "-qq", *(f"-o{name}={value}" for name, value in options.items())]

    _run([*words("apt-get"), "update"], str(folder))
    return words


def _run(words: Sequence[str], folder: str) -> str:
    """What a command says; the test is skipped where it fails, with its last line."""
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600)
    except OSError as error:
        pytest.skip(f"{words[0]} cannot be run here: {error}")
    if done.returncode:
        pytest.skip(f"{words[0]} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def _kept(draft: Path, place: Path) -> None:
    """Give what is whole its name; another process may have been first."""
    try:
        draft.rename(place)
    except OSError:
        assert place.is_dir()


def connected(server: Mariadb, database: str = "") -> pymysql.connections.Connection:
    """A connection as a program has one, with the server's own settings."""
    return pymysql.connect(
        host=LOOPBACK,
        port=server.port,
        user="fresco",
        password=server.password,
        database=database or None,
        autocommit=True,
        charset="utf8mb4",
        client_flag=CLIENT.MULTI_STATEMENTS,
    )
