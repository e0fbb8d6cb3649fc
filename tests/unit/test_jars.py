"""Artifact sets are resolved once, whole or not at all; a Java that will not do is said at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streaming.errors import FrescoError
from streaming.service.doctor import examined_java
from streaming.spark import jars
from streaming.spark.artifacts import Artifact, ArtifactSet
from streaming.spark.java import java_command

PLUGIN = ArtifactSet("plugin", "A plugin", (Artifact("org.some", "thing", "1.0"),), (), "inner")

# A `java` that says its version, and as Ivy notes that it ran and retrieves one jar.
RESOLVES = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "21.0.1"' >&2; exit 0; fi
echo run >> "$FRESCO_CACHE/runs"
for word; do last=$word; done
sleep 0.2
touch "$(dirname "$last")/thing-1.0.jar"
"""
FAILS = """#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "21.0.1"' >&2; exit 0; fi
touch "$FRESCO_CACHE/half.jar"
echo 'UNRESOLVED DEPENDENCY: org.some#thing;1.0: not found'
exit 1
"""
OLD = """#!/bin/sh
echo 'java version "1.8.0_402"' >&2
"""


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script that JAVA_HOME offers as `java`, beside a cache of its own."""
    script = tmp_path / "home" / "bin" / "java"
    script.parent.mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FRESCO_CACHE", str(tmp_path))
    return script


def write(script: Path, text: str) -> None:
    """Make `script` an executable with that text."""
    script.write_text(text)
    script.chmod(0o755)


def test_two_that_resolve_at_once_do_the_work_once(java: Path, tmp_path: Path) -> None:
    write(java, RESOLVES)
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        (first,), (second,) = pool.map(lambda _: jars.resolve([PLUGIN], said.append), range(2))
    assert first == second
    assert [path.name for path in first.rglob("*.jar")] == ["thing-1.0.jar"]
    assert (first / "inner" / "thing-1.0.jar").exists()
    assert (tmp_path / "runs").read_text().split() == ["run"]
    assert [line.split(":")[0] for line in said] == ["A plugin", "A plugin"]


def test_what_does_not_resolve_leaves_nothing_behind(java: Path, tmp_path: Path) -> None:
    write(java, FAILS)
    with pytest.raises(FrescoError, match="UNRESOLVED DEPENDENCY") as raised:
        jars.resolve([PLUGIN], lambda _: None)
    assert raised.value.code == "EMBEDDED_JARS_FAILED"
    assert [path for path in (tmp_path / "jars").iterdir() if path.is_dir()] == []


def test_another_version_is_another_folder(java: Path) -> None:
    write(java, RESOLVES)
    newer = ArtifactSet("plugin", "A plugin", (Artifact("org.some", "thing", "2.0"),))
    first, second = jars.resolve([PLUGIN, newer], lambda _: None)
    assert first != second


def test_an_old_or_missing_java_is_refused_with_the_way_to_get_one(java: Path) -> None:
    with pytest.raises(FrescoError, match="was not found") as raised:
        java_command()
    assert raised.value.code == "EMBEDDED_JAVA_MISSING"
    assert "openjdk-17" in raised.value.todo
    write(java, OLD)
    with pytest.raises(FrescoError, match="Java 8 is too old"):
        java_command()


def test_doctor_asks_the_java_that_would_be_used_how_old_it_is(java: Path) -> None:
    write(java, OLD)
    found = examined_java()
    assert found.bad and "Java 8 is too old" in found.says and "openjdk-17" in found.todo
