"""A Spark session for a piece of local work that is soon done, such as a proof: no Delta, no Kafka."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession

from streaming.errors import FrescoError
from streaming.spark.jars import spark_jars_here
from streaming.spark.java import SHORT_LIVED, java_command
from streaming.spark.spark_session import STACK, session_properties

_OF_DELTA = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")


@contextmanager
def passing_session() -> Iterator[SparkSession]:
    """The session of this process where it has one; else one that ends here, its JVM too.

    The JVM says nothing. It starts from the drivers' class archive where there is one.

    Raises:
        FrescoError: EMBEDDED_JAVA_MISSING, SPARK_SESSION.
    """
    if SparkContext._active_spark_context is not None:
        yield SparkSession(SparkContext._active_spark_context)
        return
    java_command()
    java = " ".join((STACK, *SHORT_LIVED))
    jars = [str(jar) for jar in spark_jars_here()]
    properties = session_properties({"spark.driver.extraJavaOptions": java}, jars)
    builder = SparkSession.builder.appName("fresco")
    for key, value in properties.items():
        if key not in _OF_DELTA:
            builder = builder.config(key, value)
    try:
        with jvm_silent():
            session = builder.getOrCreate()
    except Exception as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise FrescoError("SPARK_SESSION", f"Spark does not start: {said[0]}") from error
    gateway = SparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
        # With the gateway left in place a later session would have this JVM's class path.
        SparkContext._gateway = SparkContext._jvm = None


@contextmanager
def jvm_silent() -> Iterator[None]:
    """What a JVM that starts in here says goes nowhere, for good: it has the streams of its start."""
    kept = [os.dup(stream) for stream in (1, 2)]
    with open(os.devnull, "wb") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
        try:
            yield
        finally:
            for stream, was in zip((1, 2), kept, strict=True):
                os.dup2(was, stream)
                os.close(was)
