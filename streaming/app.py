"""Entry point of spark-submit: `spark-submit --packages ... streaming/app.py --config conf/bank.yaml`.

Under spark-submit a script sees its own folder, not the package's parent: install the package on the
driver, or pass its wheel with --py-files.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path


def serve(config: Path, *, local_jars: bool, on_stop: Callable[[Callable[[], None]], None]) -> None:
    """Run a pipeline until it is told to stop.

    Args:
        local_jars: take Spark's extra jars from Fresco's cache (fetched when missing); False when
            spark-submit or the cluster brings them.
        on_stop: is given the function that asks the service to stop.

    Raises:
        FrescoError: what keeps the pipeline from running.
    """
    from streaming.config import load_config
    from streaming.runtime.service import Service

    jars = None
    if local_jars:
        from streaming.embedded.jars import spark_jars

        jars = [str(jar) for jar in spark_jars()]
    service = Service(load_config(config), jars=jars)
    on_stop(service.request_stop)
    service.run()


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 after a clean stop, 1 with the error on standard error."""
    from streaming.errors import FrescoError

    parser = argparse.ArgumentParser(prog="app.py", description="Run a Fresco pipeline.")
    parser.add_argument("--config", required=True, type=Path, help="the pipeline's YAML file")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.WARNING)

    def stop_on_signals(stop: Callable[[], None]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop())

    try:
        serve(options.config, local_jars=False, on_stop=stop_on_signals)
    except FrescoError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
