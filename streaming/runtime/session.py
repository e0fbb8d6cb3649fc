"""The Spark session of a Fresco driver: the properties that measured best, and the jars."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import version

from pyspark.sql import SparkSession

from streaming.config import Config
from streaming.embedded.classes import archive_options, class_path

PACKAGES = (
    "io.delta:delta-spark_4.2_2.13:4.4.0",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
)
"""What `spark-submit --packages` needs."""

STACK = "-Xss8m"
"""Threads of streaming queries die of StackOverflowError with the default stack."""

_CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_PROPERTIES = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.extraJavaOptions": f"{STACK} -XX:+UseParallelGC",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.minBatchesToRetain": "2",
    # Spark's own checkpoint is only a hint here (`step`): without the default manager's shell calls
    # and checksum files a batch's two log writes take 25 ms instead of 126.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_MANAGER,
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.driver.maxResultSize": "4g",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.log.level": "ERROR",
}


def spark_session(config: Config, *, jars: list[str] | None = None) -> SparkSession:
    """Start (or take, under spark-submit) the session.

    Args:
        jars: local jar files; None when spark-submit or the cluster provides the packages.
    """
    builder = SparkSession.builder.appName(f"fresco-{config.pipeline}")
    for key, value in session_properties(config.spark, jars).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def session_properties(given: Mapping[str, str], jars: list[str] | None) -> dict[str, str]:
    """Spark's properties: those given, and what measured best where nothing is said.

    Args:
        jars: as for `spark_session`.
    """
    cores = str(os.cpu_count() or 2)
    sized = {"spark.sql.shuffle.partitions": cores, "spark.driver.memory": "3g"}
    properties = {**_PROPERTIES, **sized, **given}
    if jars is None:
        return properties
    master = properties.setdefault("spark.master", f"local[{cores}]")
    properties.setdefault("spark.driver.host", "127.0.0.1")
    properties.setdefault("spark.driver.bindAddress", "127.0.0.1")
    if master != "local" and not master.startswith("local["):
        return _with(properties, "spark.jars", ",".join(jars), ",")
    # On the class path and not added to the session: an archive has only what is found there.
    java = (*archive_options(jars), properties["spark.driver.extraJavaOptions"])
    properties["spark.driver.extraJavaOptions"] = " ".join(java)
    return _with(properties, "spark.driver.extraClassPath", class_path(jars), ":")


def _with(properties: Mapping[str, str], key: str, ours: str, between: str) -> dict[str, str]:
    """With what the pipeline cannot do without, before what is given."""
    given = (properties[key],) if properties.get(key) else ()
    return {**properties, key: between.join((ours, *given))}


def versions() -> dict[str, str]:
    """Versions of what the guarantees rest on, for `doctor`."""
    return {name: version(name) for name in ("pyspark", "delta-spark", "deltalake", "duckdb")}
