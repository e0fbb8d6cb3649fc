"""What the embedded stack needs and this machine lacks is said with the command that installs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.demo.embedded import mariadb_server
from streaming.errors import FrescoError


def test_a_machine_without_a_mariadb_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(mariadb_server, "_PLACES", ())
    with pytest.raises(FrescoError) as missing:
        mariadb_server.server_program()
    assert missing.value.code == "EMBEDDED_MARIADB_MISSING"
    assert "apt-get install mariadb-server-core" in missing.value.todo
    with pytest.raises(SystemExit) as ended:  # nor is there anything to install it with
        mariadb_server.main()
    assert str(ended.value) == str(missing.value)
    (tmp_path / "mariadbd").touch(mode=0o700)
    assert mariadb_server.server_program() == str(tmp_path / "mariadbd")


def test_a_server_without_its_package_s_files_is_told_where_they_were_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = tmp_path / "usr" / "sbin" / "mariadbd"
    shared = tmp_path / "usr" / "share" / "mariadb"
    monkeypatch.setattr(mariadb_server, "_SYSTEM_TABLES", ("{}_tables_of_a_test.sql",))
    with pytest.raises(FrescoError, match="system tables") as missing:
        mariadb_server._system_tables(str(server))
    assert missing.value.code == "EMBEDDED_MARIADB_MISSING"
    assert missing.value.where == str(tmp_path / "usr" / "share")
    assert "mariadb-server" in missing.value.todo
    shared.mkdir(parents=True)
    (shared / "mariadb_tables_of_a_test.sql").write_text("CREATE TABLE of_a_test (n INT);")
    assert "CREATE TABLE of_a_test" in mariadb_server._system_tables(str(server))
