"""A real service is told to end, by each way a person or a system has: one line, status, nobody left."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Bank
from services import Pipeline, Process, until

from streaming.service.status import pipeline_status
from streaming.service.view_states import view_states

LINES_OF_OTHERS = re.compile(
    r"^\s+at [\w.$]+\(|py4j|log4j|ECONNREFUSED|org\.apache|Traceback", re.M
)
STALLED = re.compile(r'fresco_view_stalled\{code="(\w+)",view="(\w+)"\} 1')
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


def told(pipeline: Pipeline, service: Process | None) -> set[str]:
    """What `view list`, `status` and the metrics of a service say of the views, which is the same."""
    listed = view_states(pipeline.warehouse)
    said = {
        one.view: f"{one.state} for {one.error['code']}" if one.error else one.state
        for one in listed
    }
    status = pipeline_status(pipeline.warehouse).views
    assert status.keys() == {view for view, state in said.items() if state != "maintained"}
    if service is not None:
        (port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/metrics", service.says)[-1:]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as read:
            found = STALLED.findall(read.read().decode())
        if {view: code for code, view in found} != dict(status):
            return set()  # they look at another moment
    return set(said.values())


def check_end(service: Process, children: set[int], reason: str, group: str) -> None:
    assert children and not any(map(alive, children)), "the JVM has ended with it"
    said = service.log.read_text()
    assert len(re.findall("stopped by", said)) == 1
    assert re.search(
        rf"stopped by {reason}(, by force: [^;]+)?; {group} shows everything up to \d+ \(epoch",
        service.says,
    )
    assert not LINES_OF_OTHERS.search(said), said
    assert len(said.splitlines()) < FEW, said


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("number", "send"),
    [
        (signal.SIGINT, os.killpg),
        (signal.SIGHUP, os.kill),
        # Other tests send it: to the driver alone, and to the group with Kafka away.
        pytest.param(signal.SIGTERM, os.killpg, marks=pytest.mark.deep),
    ],
)
def test_signals_to_the_group_and_a_closed_terminal_end_a_service_that_runs(
    make_pipeline: Callable[[str], Pipeline],
    number: signal.Signals,
    send: Callable[[int, signal.Signals], None],
) -> None:
    """Ctrl-C at a terminal and `timeout` signal the whole group; a closed terminal, the driver."""
    pipeline = make_pipeline(f"ending_by_{number.name.lower()}")
    with pipeline.running() as service:
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
        until(lambda: told(pipeline, service) == {"maintained"}, "a view list", alive=service)
        kafka.stop()
        try:
            until(lambda: "KAFKA_UNREACHABLE" in service.says, "the loss to be told", alive=service)
            until(
                lambda: told(pipeline, service) == {"waits for KAFKA_UNREACHABLE"},
                "all three to tell it",
                alive=service,
            )
            os.killpg(service.pid, signal.SIGTERM)
            assert service.ends(90) == 0, service.tail()
            check_end(service, children, "SIGTERM", pipeline.group)
            assert told(pipeline, None) == {"waits for SERVICE_NOT_RUNNING"}
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
