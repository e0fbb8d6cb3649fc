"""Services under test: started as a person starts them, watched by what they leave, ended at will.

A service is a process group of its own (Python and the JVM of its Spark), so that killing or pausing
it means all of it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import yaml

from streaming.configuration.pipeline_config import Config, load_config
from streaming.demo.demonstration import DRIVER_JAVA
from streaming.demo.embedded.server_process import guarded
from streaming.demo.marker import Marker
from streaming.errors import FrescoError
from streaming.readers import Warehouse
from streaming.warehouse.epoch import Epoch

Found = TypeVar("Found")
ROOT = Path(__file__).resolve().parents[2]
BANK_CONFIG = ROOT / "conf" / "bank.yaml"
POLL_SECONDS = 0.01
POLL = "250ms"
"""How often a query of a service under test looks for input: its own 50 ms cost a seventh more."""
TRACE = re.compile(r"^Traceback.*\n(?:.+\n)*?(?=^\d{4}-|\Z)", re.MULTILINE)
REST_PER_COST = 6
"""A condition that is dear to ask rests so many times as long as it took."""


class Process:
    """A started command in its own process group, its output in one file."""

    def __init__(
        self,
        words: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        traces: Path | None = None,
    ) -> None:
        """Args:
        log: what it says.
        traces: its own log file, whose traces it is to be judged by, too.
        """
        self.log, self._traces = log, traces
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                guarded(words),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "COLUMNS": "200", **environment},
                cwd=ROOT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the first process, and of its group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """True until the first process has ended."""
        return self._process.poll() is None

    @property
    def says(self) -> str:
        """Everything it wrote, and the traces of its log; lines and runs of blanks made one blank."""
        said = self.log.read_text(errors="replace")
        if self._traces is not None and self._traces.exists():
            said += "".join(TRACE.findall(self._traces.read_text(errors="replace")))
        return re.sub(r"\s+", " ", said)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to the whole group; returns when it is gone."""
        if self.running:
            self.signal(signal.SIGKILL)
        self._process.wait()

    def interrupt(self) -> None:
        """SIGINT to the first process, as Ctrl-C does that of a child with its own session."""
        os.kill(self.pid, signal.SIGINT)

    def ends(self, seconds: float = 120) -> int:
        """Its exit status, once it has ended by itself."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running: {self.tail()}") from None

    def stops(self, seconds: float = 120) -> int:
        """Its exit status after SIGTERM."""
        os.kill(self.pid, signal.SIGTERM)
        return self.ends(seconds)

    def ended_within(self, seconds: float) -> bool:
        """Wait for its end, so long at most."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def tail(self) -> str:
        """The last lines it wrote."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])


def until(
    condition: Callable[[], Found], what: str, seconds: float = 300, alive: Process | None = None
) -> Found:
    """The first truthy value of `condition`; fails naming `what` after `seconds`.

    Args:
        alive: a process that must run meanwhile.
    """
    deadline = time.monotonic() + seconds
    asked = time.monotonic()
    while not (found := condition()):
        cost = time.monotonic() - asked
        if alive is not None and not alive.running:
            raise AssertionError(f"ended while waiting for {what}:\n{alive.tail()}")
        if time.monotonic() > deadline:
            said = f":\n{alive.tail()}" if alive is not None else ""
            raise AssertionError(f"still waiting for {what} after {seconds:.0f} s{said}")
        time.sleep(max(POLL_SECONDS, REST_PER_COST * cost))
        asked = time.monotonic()
    return found


@dataclass(frozen=True)
class Pipeline:
    """A configuration file, and where what it makes is found.

    Attributes:
        group: its only merge group.
        environment: what the file's variables stand for; holds secrets, do not print it.
    """

    config: Path
    warehouse: Path
    group: str
    environment: Mapping[str, str] = field(repr=False)
    _seen: dict[tuple[str, ...], list[Epoch]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The epochs at the last news: tests ask again and again, and a table is dear to open."""

    def command(self, *words: str) -> list[str]:
        """A `fresco` command over this configuration."""
        return [sys.executable, "-m", "streaming", *words, "--config", str(self.config)]

    def start(self, name: str = "service", *options: str) -> Process:
        """Start `fresco run`; its log is named after it and goes on over starts of one name."""
        log, traces = (self.config.parent / f"{name}.{end}" for end in ("log", "all.log"))
        words = self.command("run", "--log", str(traces), *options)
        return Process(words, log, self.environment, traces)

    def read_config(self) -> Config:
        """The checked configuration."""
        with mock.patch.dict(os.environ, self.environment):
            return load_config(self.config)

    def news(self) -> tuple[str, ...]:
        """Changes with every commit to a table of the warehouse; costs next to nothing to ask."""
        logs = sorted(self.warehouse.glob("*/_delta_log"))
        return tuple(max(map(str, log.glob("[0-9]*.json")), default=str(log)) for log in logs)

    def epochs(self) -> list[Epoch]:
        """What has been published; empty before the first epoch."""
        news = self.news()
        if news not in self._seen:
            try:
                found = Warehouse(self.warehouse).epochs(self.group)
            except FrescoError:
                found = []
            self._seen.clear()
            self._seen[news] = found
        return list(self._seen[news])

    def newest(self) -> Epoch | None:
        """The newest epoch."""
        found = self.epochs()
        return found[-1] if found else None

    def shows_ms(self) -> int | None:
        """When the newest source transaction committed that every group shows."""
        shown = list[int]()
        try:
            warehouse = Warehouse(self.warehouse)
            for group in warehouse.groups():
                shown.append(max(one.committed_ms or 0 for one in warehouse.epochs(group)))
        except FrescoError:
            return None  # some group has no epoch yet
        return min(shown, default=None)

    def rows(self, view: str) -> list[tuple[Any, ...]]:
        """A view's rows at the newest epoch, sorted; a suspended one's as of its last good number."""
        table = Warehouse(self.warehouse).read(view, suspended_as_of=True)
        return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def reflects(self, marker: Marker) -> Callable[[], bool]:
        """A condition: the views are past the marker. It looks again only when there is news."""
        seen = set[tuple[str, ...]]()

        def reached() -> bool:
            news = self.news()
            if news in seen:
                return False
            seen.add(news)
            return marker.reflected(self.warehouse)

        return reached

    @contextmanager
    def running(self, name: str = "service") -> Iterator[Process]:
        """A started service, killed at the end whatever happened."""
        service = self.start(name)
        try:
            yield service
        finally:
            service.kill()


def bank_pipeline(folder: Path, name: str, environment: Mapping[str, str]) -> Pipeline:
    """conf/bank.yaml under another pipeline name, with a warehouse of its own below `folder`."""
    settings = yaml.safe_load(BANK_CONFIG.read_text())
    settings |= {"pipeline": name, "views": str(BANK_CONFIG.parent / settings["views"])}
    return write_pipeline(folder, settings, environment)


def specified_pipeline(
    folder: Path,
    name: str,
    views: Mapping[str, tuple[str, str]],
    environment: Mapping[str, str],
    **more: Any,
) -> Pipeline:
    """The bank's sources under views of a test: view -> its level and mode, and its SELECT."""
    files = folder / "views"
    files.mkdir(parents=True)
    for view, (how, query) in views.items():
        text = f"CREATE MATERIALIZED VIEW {view}\nWITH {how}\nAS {query}\n"
        (files / f"{view}.sql").write_text(text)
    settings = yaml.safe_load(BANK_CONFIG.read_text())
    settings |= {"pipeline": name, "views": str(files), "metrics": {"port": 0}, **more}
    return write_pipeline(folder, settings, environment)


def write_pipeline(
    folder: Path, settings: Mapping[str, Any], environment: Mapping[str, str]
) -> Pipeline:
    """A pipeline of these settings, its file and its warehouse in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    name, config, warehouse = settings["pipeline"], folder / "pipeline.yaml", folder / "warehouse"
    spark = {"spark.driver.extraJavaOptions": DRIVER_JAVA, "spark.sql.streaming.pollingDelay": POLL}
    given = {**settings, "spark": spark, "warehouse": str(warehouse)}
    config.write_text(yaml.safe_dump(given, sort_keys=False))
    return Pipeline(config, warehouse, name, environment)
