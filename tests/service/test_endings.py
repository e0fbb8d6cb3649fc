"""A real service is told to end, by each way a person or a system has: one line, status, nobody left."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Bank
from services import Pipeline, Process, until

LINES_OF_OTHERS = re.compile(
    r"^\s+at [\w.$]+\(|py4j|log4j|ECONNREFUSED|org\.apache|Traceback", re.M
)
FEW = 40
"""Lines of a start and an end."""


def members(pid: int) -> set[int]:
    """Processes that have this one among their ancestors."""
    found, level = set[int](), {pid}
    while level:
        level = {
            int(child)
            for one in level
            for file in Path(f"/proc/{one}/task").glob("*/children")
            for child in file.read_text().split()
        }
        found |= level
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] not in "ZX"
    except OSError:
        return False


def check_end(service: Process, children: set[int], reason: str, group: str) -> None:
    assert children and not any(map(alive, children)), "the JVM has ended with it"
    said = service.log.read_text()
    assert len(re.findall("stopped by", said)) == 1
    assert re.search(
        rf"stopped by {reason}; {group} shows everything up to \d+ \(epoch", service.says
    )
    assert not LINES_OF_OTHERS.search(said), said
    assert len(said.splitlines()) < FEW, said


@pytest.mark.timeout(900)
def test_signals_to_the_group_and_a_closed_terminal_end_a_service_that_runs(
    make_pipeline: Callable[[str], Pipeline],
) -> None:
    """Ctrl-C at a terminal and `timeout` signal the whole group; a closed terminal, the driver."""
    pipeline = make_pipeline("ending")
    for number, send in (
        (signal.SIGTERM, os.killpg),
        (signal.SIGINT, os.killpg),
        (signal.SIGHUP, os.kill),
    ):
        with pipeline.running(f"by-{number.name}") as service:
            until(lambda: "stage integrator runs" in service.says, "its start", alive=service)
            until(pipeline.newest, "an epoch", alive=service)
            children = members(service.pid)
            send(service.pid, number)
            assert service.ends() == 0, service.tail()
        check_end(service, children, number.name, pipeline.group)


@pytest.mark.timeout(900)
def test_with_kafka_away_it_ends_when_told_and_the_lines_of_clients_are_in_the_log(
    bank: Bank, make_pipeline: Callable[[str], Pipeline]
) -> None:
    pipeline, kafka = make_pipeline("away"), bank.stack.stack.kafka
    with pipeline.running() as service:
        until(pipeline.newest, "an epoch", alive=service)
        children = members(service.pid)
        kafka.stop()
        try:
            until(lambda: "starts again in" in service.says, "a stage to fail", alive=service)
            os.killpg(service.pid, signal.SIGTERM)
            assert service.ends(90) == 0, service.tail()
            check_end(service, children, "SIGTERM", pipeline.group)
            refused = pipeline.start("refused")
            assert refused.ends(90) == 1
        finally:
            kafka.start()
    assert "KAFKA_UNREACHABLE" in refused.says and "nothing is lost" not in refused.says
    assert not LINES_OF_OTHERS.search(refused.log.read_text()), refused.log.read_text()


@pytest.mark.timeout(900)
def test_without_its_jvm_a_service_says_so(make_pipeline: Callable[[str], Pipeline]) -> None:
    pipeline = make_pipeline("killed_jvm")
    with pipeline.running() as service:
        until(pipeline.newest, "an epoch", alive=service)
        children = members(service.pid)
        for one in children:
            os.kill(one, signal.SIGKILL)
        assert service.ends(90) == 1
    check_end(service, children, "SERVICE_JVM_ENDED", pipeline.group)
    assert "SERVICE_JVM_ENDED Spark's JVM has ended with status -9" in service.says
