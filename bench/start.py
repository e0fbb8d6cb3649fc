"""How long a start takes to its first commit: `fresco run` over a pipeline that was killed, under load.

Run: python -m bench.start [--starts 5] [--rate 10]. PostgreSQL, Kafka and Debezium run beside it, and
transfers are committed all the while. Each start but the first finds what the one before it left, ends
with SIGKILL at its first commit, and is timed from the moment at which its process begins.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from streaming.demo.bank_workload import Workload
from streaming.demo.demonstration import BANK, BankStack
from streaming.demo.embedded.parts import DATABASES

MOST_SECONDS = 180.0


def commits(warehouse: Path) -> int:
    """Commits of the only group's table."""
    return len(list((warehouse / "bank" / "_delta_log").glob("0*.json")))


def start(bank: BankStack) -> float:
    """Seconds from the start of a process to a new commit; the process is killed then.

    Raises:
        RuntimeError: it has ended, or nothing was committed for three minutes.
    """
    before, begun = commits(bank.warehouse), time.monotonic()
    words = [sys.executable, "-m", "streaming", "run", "--config", str(BANK)]
    with open(bank.folder / "start.log", "wb") as log:
        process = subprocess.Popen(
            words, env={**os.environ, **bank.environment}, stdout=log, stderr=log
        )
    try:
        while commits(bank.warehouse) <= before:
            if process.poll() is not None or time.monotonic() - begun > MOST_SECONDS:
                raise RuntimeError((bank.folder / "start.log").read_text()[-2000:])
            time.sleep(0.02)
        return time.monotonic() - begun
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--rate", type=float, default=10.0)
    options = parser.parse_args()
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="fresco-bench-") as folder:
        bank = BankStack(Path(folder), console)
        try:
            bank.start()
            bank.stack.capture()
            dsns = {name: bank.stack.dsn(name) for name in DATABASES}
            workload = Workload(dsns, rate=options.rate, seed=1, say=console.print).start()
            took = [start(bank) for _ in range(options.starts + 1)]
            workload.stop()
        finally:
            bank.stop()
    print(f"empty warehouse: {took[0]:.1f} s")
    again = sorted(took[1:])
    print(
        f"after a kill: {statistics.median(again):.1f} s (median of {len(again)}; "
        f"{again[0]:.1f} to {again[-1]:.1f})"
    )


if __name__ == "__main__":
    main()
