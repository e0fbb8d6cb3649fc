"""The Spark session of a Fresco driver: the properties that measured best, and the jars."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any, TypeAlias

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from streaming.configuration.pipeline_config import Config
from streaming.errors import FrescoError
from streaming.spark.class_archive import archive_options, class_path

PACKAGES = (
    "io.delta:delta-spark_4.2_2.13:4.4.0",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
)
"""What `spark-submit --packages` needs."""

STACK = "-Xss8m"
"""Threads of streaming queries die of StackOverflowError with the default stack."""

_LATE_C2 = " ".join(
    f"-XX:Tier4{threshold}"
    for threshold in (
        "InvocationThreshold=50000",
        "MinInvocationThreshold=6000",
        "CompileThreshold=150000",
        "BackEdgeThreshold=400000",
    )
)
"""Ten times Java's own: with those its second compiler takes 4 of the 9 core-seconds of a start, which
has both cores full; what runs for long is compiled all the same."""
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""For the stages' queries: a batch has few rows as a rule, and to generate, compile and load code for it
takes a start 1 to 2 core-seconds. A new session of the application has Spark's own settings again."""
_CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_MASK = "spark.hadoop.fs.permissions.umask-mode"
_PROPERTIES = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.extraJavaOptions": f"{STACK} -XX:+UseParallelGC -Xms1g {_LATE_C2}",
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
    """Start (or take, under spark-submit) the session of the stages' queries.

    Args:
        jars: local jar files; None when spark-submit or the cluster provides the packages.
    """
    builder = SparkSession.builder.appName(f"fresco-{config.pipeline}")
    properties = session_properties(_masked(config), jars)
    for key, value in properties.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    for key, value in _INTERPRETED.items():
        if key not in config.spark:
            session.conf.set(key, value)
    return session


Session: TypeAlias = Callable[[], SparkSession]
"""The session once it is needed; the call waits for its JVM."""


class StartingSession:
    """A session whose JVM starts while the caller goes on: half of a driver's start is its JVM's.

    Begins at once, in a thread of its own. Call it to have the session; `stop` ends the JVM, also one
    that nobody has waited for.
    """

    def __init__(self, config: Config, *, jars: list[str] | None = None) -> None:
        self._properties = session_properties(_masked(config), jars)
        self._config, self._jars = config, jars
        self._session: SparkSession | None = None
        self._error: BaseException | None = None
        self._lock, self._stopped = threading.Lock(), False
        self._jvm: Any = None
        self._thread = threading.Thread(target=self._start, name="spark-session", daemon=True)
        self._thread.start()

    def __call__(self) -> SparkSession:
        """The session. Raises what kept it from starting."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._session is not None
        return self._session

    def _start(self) -> None:
        try:
            self._launch()
            session = spark_session(self._config, jars=self._jars)
        except BaseException as error:
            self._error = error
            if self._stopped:
                SparkContext._gateway = SparkContext._jvm = None
            return
        with self._lock:
            self._session = session
            if self._stopped:
                session.stop()

    def _launch(self) -> None:
        """Start the JVM, where this process has none yet."""
        if SparkContext._gateway is not None:
            return
        conf = SparkConf(loadDefaults=False).setAll(list(self._properties.items()))
        # A session of its own: signals to this process's group, Ctrl-C among them, are this one's alone.
        gateway = launch_gateway(conf, {"start_new_session": True})
        with self._lock:
            self._jvm = getattr(gateway, "proc", None)  # none that spark-submit has started
            if self._stopped:
                self._kill()
                raise RuntimeError("the session was stopped before it was there")
        SparkContext._ensure_initialized(gateway=gateway)

    def _kill(self) -> None:
        if self._jvm is not None:
            self._jvm.kill()

    def stop(self) -> None:
        """End the session; one that is still starting is not waited for."""
        with self._lock:
            self._stopped = True
            if self._session is not None:
                self._session.stop()
            else:
                self._kill()

    def end(self, seconds: float) -> None:
        """End the JVM that it has started, by force after so many seconds; others would outlive us."""
        if seconds:
            with suppress(Exception):  # of a JVM that has ended already
                self.stop()
            self._thread.join(seconds)  # stopped while it started, it ends its JVM itself
        process = self._jvm
        if process is None:
            return
        if not seconds:
            process.kill()
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def jvm() -> subprocess.Popen[bytes] | None:
    """The JVM that this process has started; None while there is none, and under spark-submit."""
    found: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return found


def ended_jvm(seconds: float = 0.0) -> FrescoError | None:
    """The error of a JVM that has ended while stages need it, or does in so many seconds."""
    process = jvm()
    if process is None:
        return None
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    return FrescoError(
        "SERVICE_JVM_ENDED",
        f"Spark's JVM has ended with status {status}",
        where=f"process {process.pid}",
        todo="see the log; where the system has killed it for want of memory, lower "
        "spark.driver.memory. Nothing is lost, start again",
    )


def _masked(config: Config) -> dict[str, str]:
    """What the configuration gives Spark, and the mask: Hadoop sets its files' rights itself."""
    return {_MASK: config.umask, **config.spark}


def session_properties(given: Mapping[str, str], jars: list[str] | None) -> dict[str, str]:
    """Spark's properties: those given, and what measured best where nothing, or "", is said.

    Args:
        jars: as for `spark_session`.
    """
    cores = str(os.cpu_count() or 2)
    sized = {"spark.sql.shuffle.partitions": cores, "spark.driver.memory": "3g"}
    properties = {**_PROPERTIES, **sized, **{key: value for key, value in given.items() if value}}
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
