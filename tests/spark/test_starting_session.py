"""A session whose JVM starts beside what else a driver's start does; each in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streaming.demo.demonstration import DRIVER_JAVA

HEAD = f"""
import threading
from streaming.configuration.pipeline_config import Config
from streaming.configuration.source_config import SourceConfig
from streaming.spark.jars import spark_jars
from streaming.spark.spark_session import StartingSession

tables = SourceConfig(tables={{"t": "public.t"}})
spark = {{"spark.driver.extraJavaOptions": "{DRIVER_JAVA}"}}
config = Config(pipeline="p", warehouse="w", views="v", sources={{"s": tables}}, spark=spark)
jars = [str(jar) for jar in spark_jars()]
starting = StartingSession(config, jars=jars)
"""
STOPPED_EARLY = """
starting.stop()
starting._thread.join()
assert starting._jvm.wait(60) != 0, "the JVM was not ended"
"""
USED = """
session = starting()
assert session.range(3).count() == 3 and starting() is session
assert session.conf.get("spark.sql.codegen.wholeStage") == "false"
assert session.newSession().conf.get("spark.sql.codegen.wholeStage") == "true"
starting.stop()
"""
AGAIN = """
again = StartingSession(config, jars=jars)
assert again().range(2).count() == 2
again.stop()
"""
REFUSED = """
try:
    starting()
except Exception:
    starting.stop()
else:
    raise AssertionError("it has started")
"""


def ends_well(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "rest", [USED, STOPPED_EARLY, STOPPED_EARLY + AGAIN], ids=["used", "stopped early", "again"]
)
def test_a_session_starts_by_itself_and_leaves_no_jvm(rest: str) -> None:
    ends_well(HEAD + rest)


def test_what_keeps_a_session_from_starting_is_raised_where_it_is_asked_for() -> None:
    bad = HEAD.replace("spark = {", 'spark = {"spark.master": "no such master", ')
    ends_well(bad + REFUSED)
