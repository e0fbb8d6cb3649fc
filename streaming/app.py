"""Entry point of spark-submit: `spark-submit --packages ... streaming/app.py --config conf/bank.yaml`.

Under spark-submit a script sees its own folder, not the package's parent: install the package on the
driver, or pass its wheel with --py-files.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def serve(
    config: Path,
    *,
    local_jars: bool,
    on_stop: Callable[[Callable[[], None]], None],
    roles: Sequence[str] = (),
    metrics_port: int | None = None,
) -> None:
    """Run a pipeline, or its stages of some roles, until it is told to stop.

    Args:
        local_jars: take Spark's extra jars from Fresco's cache (fetched when missing); False when
            spark-submit or the cluster brings them.
        on_stop: is given the function that asks the service to stop.
        roles: `integrator`, `view:<name>`, `merge:<group>`; () for all.
        metrics_port: in place of the configured one.

    Raises:
        FrescoError: what keeps the pipeline from running.
    """
    from streaming.config import load_config

    settings = load_config(config)
    jars = None
    if local_jars:
        from streaming.embedded.jars import spark_jars

        jars = [str(jar) for jar in spark_jars()]
    from streaming.runtime.session import StartingSession

    session = StartingSession(settings, jars=jars)
    # The JVM starts while the service's own modules load: a second and more.
    from streaming.runtime.service import Service

    service = Service(settings, session=session, roles=roles, metrics_port=metrics_port)
    on_stop(service.request_stop)
    service.run()


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at SIGINT and SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop())


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 after a clean stop, 1 with the error on standard error."""
    from streaming.errors import FrescoError

    parser = argparse.ArgumentParser(prog="app.py", description="Run a Fresco pipeline.")
    parser.add_argument("--config", required=True, type=Path, help="the pipeline's YAML file")
    parser.add_argument(
        "--role", action="append", default=[], help="a stage to run here; all without"
    )
    parser.add_argument("--metrics-port", type=int, help="in place of metrics.port; 0: a free one")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.ERROR)

    try:
        serve(
            options.config,
            local_jars=False,
            on_stop=stop_on_signals,
            roles=options.role,
            metrics_port=options.metrics_port,
        )
    except FrescoError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
