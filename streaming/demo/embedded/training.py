"""Makes the class archive of local drivers: one small query, as a stage has it, over a broker of its own.

Run as a program, by `make jars`. Nothing depends on the archive: without it drivers only start slower,
so a training that fails says so and is no error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from kafka import KafkaProducer
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from streaming.demo.embedded.kafka_broker import KafkaBroker, create_topics
from streaming.demo.embedded.ports import choose_ports
from streaming.spark.class_archive import archive_file, training_options
from streaming.spark.jars import print_progress, spark_jars
from streaming.spark.java import SHORT_LIVED
from streaming.spark.local_session import jvm_silent
from streaming.spark.spark_session import STACK, session_properties

_TOPICS = ("first", "second")
_BATCH_SECONDS = 60.0
_END_SECONDS = 300.0


def train(archive: Path, jars: list[str]) -> None:
    """Leave `archive`, whole or not at all.

    Raises:
        FrescoError: the broker did not start.
        TimeoutError: no batch came.
        subprocess.TimeoutExpired: the JVM did not end.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="fresco-training-")))
        ports = choose_ports(folder, {"kafka": None, "kafka-controller": None})
        kafka = KafkaBroker(folder, ports["kafka"], ports["kafka-controller"])
        undo.callback(kafka.stop)
        kafka.start()
        create_topics(kafka.bootstrap, _TOPICS)
        with KafkaProducer(bootstrap_servers=kafka.bootstrap) as producer:
            for topic in _TOPICS:
                producer.send(topic, b"{}")
        fresh = Path(tempfile.mkdtemp(dir=archive.parent)) / archive.name
        undo.callback(shutil.rmtree, fresh.parent)
        java = " ".join((STACK, *SHORT_LIVED, *training_options(fresh)))
        properties = session_properties({"spark.driver.extraJavaOptions": java}, jars)
        builder = SparkSession.builder.appName("fresco-training")
        for key, value in properties.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        try:
            _read(spark, kafka.bootstrap, folder / "checkpoint")
        finally:
            _end(spark)
        os.replace(fresh, archive)


def _read(spark: SparkSession, bootstrap: str, checkpoint: Path) -> None:
    """Take one batch, as a stage's query does, and touch Delta's part of Spark."""
    came = threading.Event()

    def step(batch: DataFrame, _: int) -> None:
        if batch.toArrow().num_rows:
            came.set()

    def stream(topic: str) -> DataFrame:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        return reader.option("includeHeaders", "true").load().select("topic", "value", "headers")

    first, second = (stream(topic) for topic in _TOPICS)
    query = first.union(second).writeStream.foreachBatch(step)
    running = query.option("checkpointLocation", str(checkpoint)).start()
    try:
        if not came.wait(_BATCH_SECONDS):
            raise TimeoutError(f"no batch in {_BATCH_SECONDS:.0f} s: {running.exception()}")
    finally:
        running.stop()
    table = str(checkpoint.parent / "table")
    spark.range(8).selectExpr("id", "id % 2 AS half").write.format("delta").save(table)
    spark.read.format("delta").load(table).groupBy("half").count().toArrow()


def _end(spark: SparkSession) -> None:
    """End the session and wait for its JVM, which writes the archive last.

    Raises:
        subprocess.TimeoutExpired: it did not end.
    """
    gateway = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        raise


def main() -> None:
    """Make the archive when there is none."""
    jars = [str(jar) for jar in spark_jars()]
    archive = archive_file(jars)
    if archive.is_file():
        return
    print_progress("classes of the driver: archiving")
    begun = time.monotonic()
    try:
        with jvm_silent():
            train(archive, jars)
    except Exception as failure:
        print_progress(f"no archive of the driver's classes, it will start slower: {failure}")
        return
    size = archive.stat().st_size >> 20
    print_progress(f"classes of the driver: {size} MiB in {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
