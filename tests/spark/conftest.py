"""One local driver for all of Spark's tests, set as the service's own is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from streaming.demo.demonstration import DRIVER_JAVA
from streaming.spark.jars import spark_jars
from streaming.spark.spark_session import session_properties


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session over two cores."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    given = {
        "spark.driver.extraJavaOptions": DRIVER_JAVA,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark")),
    }
    builder = SparkSession.builder.appName("fresco-test")
    for key, value in session_properties(given, [str(jar) for jar in spark_jars()]).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()
