"""`fresco capture` and `fresco snapshots`: sources without Debezium, published as by Debezium."""

from __future__ import annotations

from typing import Annotated

import typer

from streaming.app import stop_on_signals
from streaming.cli.reporting import ConfigOption, JsonOption, err, reported
from streaming.service.terminal import log_libraries


def capture(
    config: ConfigOption,
    source: Annotated[str, typer.Option("--source", help="a MariaDB or MySQL source")],
    as_json: JsonOption = False,
) -> None:
    """Publish a MariaDB's or MySQL's snapshot and log to Kafka, as Debezium does, until SIGTERM."""
    from streaming.capture.capturing import Capture
    from streaming.cli.capture_lines import capture_status
    from streaming.configuration.pipeline_config import load_config, mask_files

    with reported(as_json), capture_status(err, as_json) as tell:
        settings = mask_files(load_config(config))
        log_libraries(settings.warehouse)
        running = Capture(settings, source, tell)
        stop_on_signals(running.request_stop)
        running.run()


def snapshots(
    config: ConfigOption,
    source: Annotated[str, typer.Option("--source", "-s", help="a source with `snapshots`")],
    once: Annotated[bool, typer.Option("--once", help="end when there is no further one")] = False,
    as_json: JsonOption = False,
) -> None:
    """Publish the differences of a source's successive snapshots, for a database without a log."""
    from streaming.capture.monitor import Monitor
    from streaming.cli.snapshot_lines import published
    from streaming.configuration.pipeline_config import load_config, mask_files

    with reported(as_json), published(as_json) as (tell, progress):
        settings = mask_files(load_config(config))
        log_libraries(settings.warehouse)
        monitor = Monitor(settings, source, tell, progress)
        stop_on_signals(monitor.request_stop)
        monitor.run(once)
