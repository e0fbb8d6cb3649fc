"""The archive of a driver's classes: named after what it was made from, used only where it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.spark.class_archive import archive_file, archive_options, class_path
from streaming.spark.jars import jars_of_spark
from streaming.spark.spark_session import session_properties

JAVA = "spark.driver.extraJavaOptions"
PATH = "spark.driver.extraClassPath"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FRESCO_CACHE", str(tmp_path))
    return tmp_path


def jars(*names: str) -> list[str]:
    return [f"/jars/{name}" for name in names]


def test_what_spark_has_itself_stays_off_the_class_path_whatever_its_version() -> None:
    own = next(jar.name for jar in jars_of_spark() if jar.name.startswith("scala-library-"))
    older = "scala-library-2.0.0.jar"
    given = jars(own, older, "delta-spark_4.2_2.13-4.4.0.jar", "kafka-clients-3.9.2.jar")
    assert class_path(given) == ":".join(given[2:])


def test_other_jars_are_another_archive(cache: Path) -> None:
    one, other = (archive_file(jars(f"delta-spark-{n}.jar")) for n in "12")
    assert one != other
    assert one.parent == other.parent == cache / "classes"


def test_a_local_driver_uses_the_archive_that_is_there_and_no_other() -> None:
    given = jars("delta-spark-1.jar")
    assert archive_options(given) == ()
    archive = archive_file(given)
    archive.parent.mkdir()
    archive.write_bytes(b"")
    assert archive_options(given)[0] == f"-XX:SharedArchiveFile={archive}"
    assert str(archive) in session_properties({}, given)[JAVA]
    assert str(archive) not in session_properties({}, jars("delta-spark-2.jar"))[JAVA]


def test_the_options_given_come_after_the_archives_which_silence_the_jvm() -> None:
    """-Xlog:disable would end a log that is asked for before it."""
    given = jars("delta-spark-1.jar")
    archive_file(given).parent.mkdir()
    archive_file(given).write_bytes(b"")
    found = session_properties({JAVA: "-Xlog:gc:file=gc.log"}, given)[JAVA]
    assert found.startswith("-XX:SharedArchiveFile=") and found.endswith(" -Xlog:gc:file=gc.log")


def test_a_cluster_fetches_the_jars_and_spark_submit_brings_its_own() -> None:
    given = jars("delta-spark-1.jar")
    cluster = session_properties({"spark.master": "spark://host:7077"}, given)
    assert cluster["spark.jars"] == given[0]
    assert PATH not in cluster
    assert "spark.jars" in session_properties({"spark.master": "local-cluster[2,1,1024]"}, given)
    submitted = session_properties({}, None)
    assert not {"spark.jars", "spark.master", PATH} & set(submitted)


def test_jars_that_a_configuration_adds_come_after_the_pipelines_own() -> None:
    given = jars("delta-spark-1.jar")
    local = session_properties({PATH: "/opt/driver.jar", "spark.jars": "/opt/udf.jar"}, given)
    assert local[PATH] == f"{given[0]}:/opt/driver.jar"
    assert local["spark.jars"] == "/opt/udf.jar"
    cluster = {"spark.master": "spark://host:7077", "spark.jars": "/opt/udf.jar"}
    assert session_properties(cluster, given)["spark.jars"] == f"{given[0]},/opt/udf.jar"
