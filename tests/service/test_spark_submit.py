"""The pipeline under `spark-submit`, with its jars as packages, as it is started in production."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark
import pytest
from services import ROOT, Pipeline, Process, until

from streaming.proof.verdicts import verify_pipeline
from streaming.spark.artifacts import SPARK_SET
from streaming.spark.jars import IVY_SETTINGS, cache_folder
from streaming.spark.spark_session import PACKAGES


def submit_command(pipeline: Pipeline, folder: Path) -> list[str]:
    """The command of the documentation, with the settings and the cache that Fresco gives to Ivy."""
    settings = folder / "ivysettings.xml"
    settings.write_text(IVY_SETTINGS)
    return [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        "--packages",
        ",".join(PACKAGES),
        "--exclude-packages",
        ",".join(f"{group}:{name}" for group, name in SPARK_SET.excludes),
        "--conf",
        f"spark.jars.ivySettings={settings}",
        "--conf",
        f"spark.jars.ivy={cache_folder() / 'ivy'}",
        str(ROOT / "streaming" / "app.py"),
        "--config",
        str(pipeline.config),
    ]


def driver_of(submit: Process) -> int:
    """Process id of the Python driver that spark-submit's JVM has started."""

    def child() -> int:
        children = Path(f"/proc/{submit.pid}/task").glob("*/children")
        found = [int(one) for file in children for one in file.read_text().split()]
        return next((one for one in found if b"app.py" in cmdline(one)), 0)

    return until(child, "the driver", alive=submit)


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def submitted(
    make_pipeline: Callable[[str], Pipeline], tmp_path: Path
) -> Iterator[tuple[Pipeline, Process]]:
    pipeline = make_pipeline("submitted")
    # The driver's Python is the one that Fresco is installed in.
    environment = {
        **pipeline.environment,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    submit = Process(submit_command(pipeline, tmp_path), tmp_path / "submit.log", environment)
    try:
        yield pipeline, submit
    finally:
        submit.kill()


@pytest.mark.timeout(1200)
def test_spark_submit_runs_the_pipeline_until_it_is_asked_to_end(
    submitted: tuple[Pipeline, Process],
) -> None:
    pipeline, submit = submitted
    until(pipeline.newest, "the first epoch", 600, submit)
    driver = driver_of(submit)
    os.kill(driver, signal.SIGTERM)
    assert submit.ends() == 0, submit.tail()
    assert "Traceback" not in submit.says
    assert cmdline(driver) == b""
    assert verify_pipeline(pipeline.warehouse, sample=20).holds
