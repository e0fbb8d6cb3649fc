"""The Java archives of the stack, resolved from Maven by the Ivy that pyspark brings along.

Each artifact set (`description.ARTIFACT_SETS`) becomes one folder in Fresco's cache. A set is
resolved into a temporary folder and renamed when it is whole, under a file lock: a folder that
exists is complete, and two processes that resolve at once do the work once. Ivy reads settings of
Fresco's own, because a local Maven repository with a pom but no jar makes the default settings
fail.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pyspark

from streaming.errors import FrescoError
from streaming.spark.artifacts import (
    ARTIFACT_SETS,
    CONNECT_SET,
    DEBEZIUM_SET,
    KAFKA_SET,
    SPARK_SET,
    ArtifactSet,
)
from streaming.spark.java import java_command

Progress = Callable[[str], None]

_RESOLVE_SECONDS = 900
IVY_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""
"""Maven's central repository only; also for spark-submit's `spark.jars.ivySettings`."""


def cache_folder() -> Path:
    """Fresco's cache: `$FRESCO_CACHE`, else `~/.cache/fresco`."""
    named = os.environ.get("FRESCO_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "fresco"


def print_progress(line: str) -> None:
    """The default way to show progress: one line to standard error."""
    print(line, file=sys.stderr, flush=True)


def kafka_classpath(progress: Progress = print_progress) -> str:
    """Class path of the broker."""
    return f"{resolve([KAFKA_SET], progress)[0]}/*"


def connect_classpath(progress: Progress = print_progress) -> str:
    """Class path of a Kafka Connect worker, without any connector."""
    return f"{resolve([CONNECT_SET], progress)[0]}/*"


def plugin_path(progress: Progress = print_progress) -> Path:
    """Folder for the worker's `plugin.path`; it holds the folder of the Debezium connector."""
    return resolve([DEBEZIUM_SET], progress)[0]


def spark_jars(progress: Progress = print_progress) -> list[Path]:
    """Jars of Delta Lake and of Spark's Kafka source, for `spark.jars`, in a stable order."""
    return sorted(resolve([SPARK_SET], progress)[0].glob("*.jar"))


def spark_jars_here() -> list[Path]:
    """Those of `spark_jars` that are in the cache already; none is fetched."""
    return sorted(_folder(SPARK_SET).glob("*.jar"))


def jars_of_spark() -> list[Path]:
    """The jars that pyspark brings along."""
    return sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))


def resolve(
    sets: Iterable[ArtifactSet] = ARTIFACT_SETS, progress: Progress = print_progress
) -> list[Path]:
    """The folders of `sets`, in their order, resolved side by side where they are missing.

    Raises FrescoError EMBEDDED_JARS_FAILED with the last lines of Ivy, or EMBEDDED_JAVA_MISSING.
    """
    wanted = list(sets)
    if all(_folder(one).is_dir() for one in wanted):
        return [_folder(one) for one in wanted]
    with ThreadPoolExecutor(max_workers=len(wanted)) as pool:
        return list(pool.map(lambda one: _resolve_one(one, progress), wanted))


def _folder(wanted: ArtifactSet) -> Path:
    """The folder of a set; its name changes with the coordinates, so a new version is a new set."""
    fingerprint = hashlib.sha256(_ivy_module(wanted).encode()).hexdigest()[:12]
    return cache_folder() / "jars" / f"{wanted.name}-{fingerprint}"


def _resolve_one(wanted: ArtifactSet, progress: Progress) -> Path:
    folder = _folder(wanted)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        progress(f"{wanted.title}: fetching")
        begun = time.monotonic()
        work = Path(tempfile.mkdtemp(prefix=f"{wanted.name}-", dir=folder.parent))
        try:
            _run_ivy(wanted, work)
            os.rename(work / "out", folder)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        count = len(list(folder.rglob("*.jar")))
        progress(f"{wanted.title}: {count} jars in {time.monotonic() - begun:.0f} s")
    return folder


def _run_ivy(wanted: ArtifactSet, work: Path) -> None:
    """Resolve into `work`/out. The cache of Ivy lives and dies with `work`: it is not shared."""
    (work / "settings.xml").write_text(IVY_SETTINGS)
    (work / "ivy.xml").write_text(_ivy_module(wanted))
    target = work / "out" / wanted.subfolder
    target.mkdir(parents=True)
    ivy = next(jar for jar in jars_of_spark() if jar.name.startswith("ivy-"))
    command = [
        java_command(),
        "-jar",
        str(ivy),
        "-settings",
        str(work / "settings.xml"),
        "-cache",
        str(work / "cache"),
        "-ivy",
        str(work / "ivy.xml"),
        "-confs",
        "default",
        "-types",
        "jar",
        "bundle",
        "-retrieve",
        f"{target}/[artifact]-[revision](-[classifier]).[ext]",
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_RESOLVE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise FrescoError(
            "EMBEDDED_JARS_FAILED",
            f"{wanted.title}: no answer in {_RESOLVE_SECONDS} s",
            where=wanted.name,
            todo="check the connection to the Maven registry and run it again",
        ) from late
    if done.returncode != 0 or not any(target.glob("*.jar")):
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
        raise FrescoError(
            "EMBEDDED_JARS_FAILED",
            f"{wanted.title} did not resolve:\n{tail}",
            where=wanted.name,
            todo="check the connection to the Maven registry and run it again",
        )


def _ivy_module(wanted: ArtifactSet) -> str:
    """The set as an Ivy file."""
    lines = [
        '<ivy-module version="2.0"><info organisation="fresco" module="stack"/>',
        '<configurations><conf name="default"/></configurations><dependencies>',
    ]
    lines += [
        f"<dependency org={quoteattr(one.group)} name={quoteattr(one.name)}"
        f' rev={quoteattr(one.version)} conf="default->default"/>'
        for one in wanted.artifacts
    ]
    lines += [
        f"<exclude org={quoteattr(group)} module={quoteattr(name)}/>"
        for group, name in wanted.excludes
    ]
    return "\n".join([*lines, "</dependencies></ivy-module>\n"])


if __name__ == "__main__":
    try:
        resolve()
    except FrescoError as failure:
        sys.exit(str(failure))
