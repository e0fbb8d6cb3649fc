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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.plain import PlainFormatter

if TYPE_CHECKING:
    from streaming.errors import FrescoError
    from streaming.service.ending import Ending
    from streaming.service.service import Service
    from streaming.service.terminal import Terminal

log = logging.getLogger("fresco")


def serve(
    config: Path,
    *,
    local_jars: bool,
    roles: Sequence[str] = (),
    metrics_port: int | None = None,
    log_file: Path | None = None,
) -> int:
    """Run a pipeline, or its stages of some roles, until it is told to stop; the exit status.

    Args:
        local_jars: take Spark's extra jars from Fresco's cache (fetched when missing), and keep what
            libraries say out of the terminal; False when spark-submit or the cluster brings them.
        roles: `integrator`, `view:<name>`, `merge:<group>`; () for all.
        metrics_port: in place of the configured one.
        log_file: of this start, in place of one in the warehouse.

    Raises:
        FrescoError: what keeps the pipeline from running.
    """
    from streaming.configuration.pipeline_config import load_config, mask_files
    from streaming.service.ending import Ending
    from streaming.service.terminal import log_of_start, terminal

    settings = mask_files(load_config(config))
    jars = None
    if local_jars:
        from streaming.spark.jars import spark_jars

        jars = [str(jar) for jar in spark_jars()]
    file = (log_file or log_of_start(settings.warehouse)) if local_jars else None
    with terminal(file) as shown, Ending(shown).watched() as ending:
        if file is not None:
            log.info("the log, libraries included: %s", file)

        def make() -> Service:
            from streaming.spark.spark_session import StartingSession

            session = StartingSession(settings, jars=jars)
            ending.children = session.end
            # The JVM starts while the service's own modules load: a second and more.
            from streaming.service.service import Service

            return Service(settings, session=session, roles=roles, metrics_port=metrics_port)

        return _until_it_ends(ending, make, settings.warehouse)


def _until_it_ends(ending: Ending, make: Callable[[], Service], warehouse: Path) -> int:
    """Make a service and run it; one line says why it ended, and what its views show."""
    from streaming.errors import FrescoError
    from streaming.service.ending import CHILDREN_SECONDS, StopAsked
    from streaming.service.stalls import reached

    ending.shows = partial(reached, warehouse)
    try:
        ending.service = service = make()
        service.run()
    except StopAsked:
        pass
    except FrescoError as error:
        log.error("stopped by %s; %s", error.code, ending.shows())
        raise
    except Exception as error:
        log.exception("stopped by a defect; %s", ending.shows())
        raise _defect(error, ending.terminal) from error
    finally:
        ending.starts = False
        ending.children(CHILDREN_SECONDS)
    log.info("stopped by %s; %s", ending.reason, ending.shows())
    return ending.status


def _defect(error: Exception, shown: Terminal) -> FrescoError:
    from streaming.errors import FrescoError

    what = next(iter(str(error).splitlines()), "")
    return FrescoError(
        "SERVICE_FAILED",
        f"{type(error).__name__}: {what}",
        where=str(shown.log or "the log"),
        todo="its trace is in the log; nothing is lost, start again, and report it",
    )


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at SIGINT, SIGTERM and SIGHUP."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
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
    shown = logging.StreamHandler()
    shown.setFormatter(PlainFormatter("%(asctime)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[shown])
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.getLogger("kafka").setLevel(logging.ERROR)

    try:
        return serve(
            options.config,
            local_jars=False,
            roles=options.role,
            metrics_port=options.metrics_port,
        )
    except FrescoError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
