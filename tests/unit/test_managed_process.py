"""A managed process is watched, says what went wrong, and never outlives its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streaming.demo.embedded.ports import choose_ports
from streaming.demo.embedded.server_process import Command, ManagedProcess
from streaming.errors import FrescoError

Start = Callable[..., ManagedProcess]


def alive(pid: int) -> bool:
    """True while `pid` runs; a zombie has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def await_true(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Poll `condition` until it holds; False after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `python -c script` as a managed process, and stops it after the test."""
    started: list[ManagedProcess] = []

    def start_script(script: str) -> ManagedProcess:
        words = [sys.executable, "-u", "-c", textwrap.dedent(script)]
        process = ManagedProcess(Command("script", words), tmp_path)
        started.append(process)
        return process.start()

    yield start_script
    for process in started:
        process.stop(seconds=1)


def test_a_process_is_healthy_once_its_check_passes(start: Start) -> None:
    process = start("print('ready'); import time; time.sleep(600)")
    process.wait_healthy(lambda: "ready" in process.log.read_text(), 20)
    assert process.running
    assert os.getpgid(process.pid) == process.pid != os.getpgid(0)
    process.stop()
    assert not process.running and not alive(process.pid)


def test_one_that_ends_early_is_named_with_the_end_of_its_log(start: Start) -> None:
    process = start("import sys; print('the port is taken'); sys.exit(3)")
    with pytest.raises(FrescoError) as raised:
        process.wait_healthy(lambda: False, 20)
    assert raised.value.code == "EMBEDDED_START_FAILED"
    assert "script ended before it was ready" in raised.value.what
    assert "the port is taken" in raised.value.what
    assert raised.value.where == str(process.log)


def test_one_that_is_not_ready_in_time_is_stopped(start: Start) -> None:
    process = start("import time; print('slow'); time.sleep(600)")

    def refused() -> bool:
        raise ConnectionRefusedError("nobody listens")

    with pytest.raises(FrescoError, match=r"not ready after .*nobody listens"):
        process.wait_healthy(refused, 0.5)
    assert not alive(process.pid)


def test_a_missing_program_is_a_coded_error(tmp_path: Path) -> None:
    process = ManagedProcess(Command("ghost", ["/no/such/program"]), tmp_path)
    with pytest.raises(FrescoError) as raised:
        process.start().wait_healthy(lambda: False, 20)
    assert raised.value.code == "EMBEDDED_START_FAILED"
    assert "ghost" in raised.value.what


def test_a_command_that_fails_says_its_exit_code(start: Start) -> None:
    with pytest.raises(FrescoError, match="ended with 7"):
        start("import sys; sys.exit(7)").wait_done(20)


def test_stop_kills_one_that_ignores_the_signal_and_its_children(start: Start) -> None:
    process = start(
        """
        import signal, subprocess, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("child", child.pid)
        time.sleep(600)
        """
    )
    process.wait_healthy(lambda: "child " in process.log.read_text(), 20)
    child = int(process.log.read_text().split()[1])
    process.stop(seconds=0.5)
    assert not alive(process.pid)
    assert await_true(lambda: not alive(child))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    script = textwrap.dedent(
        f"""
        import sys, time
        from pathlib import Path
        from streaming.demo.embedded.server_process import Command, ManagedProcess
        words = [sys.executable, "-c", "import time; time.sleep(600)"]
        print(ManagedProcess(Command("child", words), Path({str(tmp_path)!r})).start().pid)
        sys.stdout.flush()
        time.sleep(600)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    assert await_true(lambda: not alive(child))


def test_a_process_outlives_the_thread_that_started_it(start: Start) -> None:
    started: list[ManagedProcess] = []
    thread = threading.Thread(
        target=lambda: started.append(start("print('up'); import time; time.sleep(600)"))
    )
    thread.start()
    thread.join()
    process = started[0]
    process.wait_healthy(lambda: "up" in process.log.read_text(), 20)
    assert process.running and alive(process.pid)


def test_a_folder_keeps_its_ports_and_a_taken_one_is_refused(tmp_path: Path) -> None:
    first = choose_ports(tmp_path, {"kafka": None, "postgres": None})
    assert len(set(first.values())) == 2
    assert choose_ports(tmp_path, {"kafka": None, "postgres": None}) == first
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", first["kafka"]))
        listener.listen()
        moved = choose_ports(tmp_path, {"kafka": None, "postgres": None})
        assert moved["kafka"] != first["kafka"] and moved["postgres"] == first["postgres"]
        with pytest.raises(FrescoError) as raised:
            choose_ports(tmp_path, {"kafka": first["kafka"]})
    assert raised.value.code == "EMBEDDED_PORT_IN_USE"
    assert str(first["kafka"]) in raised.value.what
