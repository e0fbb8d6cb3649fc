"""What a pipeline exports on /metrics (prometheus-client); one instance per service.

Names follow Prometheus: a unit in the name, `_total` for counters. Dashboards and alert rules in
conf/ use these and nothing else.
"""

from __future__ import annotations

import errno
from functools import partial
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from streaming.errors import FrescoError

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 13, 21, 34, 60, 300)


class Metrics:
    """All collectors, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        seconds = partial(Histogram, registry=registry, buckets=_SECONDS)
        self.source_lag = gauge(
            "fresco_source_lag_seconds", "Now minus the newest numbered source commit", ["source"]
        )
        self.transactions = counter(
            "fresco_transactions_total", "Source transactions numbered", ["source"]
        )
        self.held_parts = gauge(
            "fresco_held_parts", "Parts of global transactions that wait for others"
        )
        self.held_rows = gauge("fresco_held_rows", "Rows of transactions that are not complete yet")
        self.incomplete = gauge(
            "fresco_incomplete_seconds",
            "Since when the first transaction of a source lacks rows that its END counts",
            ["source"],
        )
        self.released = counter(
            "fresco_released_globals_total", "Global transactions released as local"
        )
        self.spanning = counter(
            "fresco_spanning_transactions_total", "Transactions that changed several merge groups"
        )
        self.bad_records = counter(
            "fresco_bad_records_total", "Records that could not be decoded", ["topic"]
        )
        self.numbered = gauge("fresco_numbered", "Highest transaction number given")
        self.view_frontier = gauge(
            "fresco_view_frontier", "Highest number a view manager has handled", ["view"]
        )
        self.frontier = gauge(
            "fresco_group_frontier", "Every transaction up to it is published", ["group"]
        )
        self.freshness = seconds(
            "fresco_freshness_seconds", "Source commit to warehouse commit, per commit", ["view"]
        )
        self.vut_cells = gauge(
            "fresco_vut_cells", "Cells of the view update table", ["group", "colour"]
        )
        self.commits = counter(
            "fresco_commits_total", "Warehouse transactions committed", ["group"]
        )
        self.commit_seconds = seconds(
            "fresco_commit_seconds", "One warehouse commit, changelog and state", ["group"]
        )
        self.action_lists = counter(
            "fresco_action_lists_total", "Action lists sent, empty ones included", ["view"]
        )
        self.rows = counter("fresco_rows_total", "Delta rows, by stage", ["stage"])
        self.batch_seconds = seconds("fresco_batch_seconds", "One step of a stage", ["stage"])
        self.suspended = gauge("fresco_view_suspended", "1 while a view is suspended", ["view"])
        self.waiting = gauge(
            "fresco_view_waiting",
            "1 while a view waits for a source that cannot be asked",
            ["view"],
        )
        self.stalled = gauge(
            "fresco_view_stalled",
            "1 while something holds a view up, by its code",
            ["view", "code"],
        )
        self.sessions = counter(
            "fresco_sessions_total", "Sessions of isolated views that found something", ["group"]
        )
        self.source_asked = counter(
            "fresco_source_asked_total",
            "Of a view manager that asks: updates, queries, statements, held, again, compensations",
            ["view", "what"],
        )

    def serve(self, host: str, port: int) -> MetricsServer:
        """Answer /metrics on host:port (0: a free port).

        Raises:
            FrescoError: METRICS_PORT_IN_USE, METRICS_ADDRESS.
        """
        try:
            server, _ = start_http_server(port, addr=host, registry=self.registry)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise FrescoError(
                    "METRICS_PORT_IN_USE",
                    f"cannot listen: {error}",
                    where=f"{host}:{port}",
                    todo="set metrics.port to a free port, or to 0 to have one chosen",
                ) from error
            raise FrescoError(
                "METRICS_ADDRESS",
                f"cannot listen: {error}",
                where=f"{host}:{port}",
                todo="set metrics.host to an address of this machine, and metrics.port to a port "
                "that this user may open",
            ) from error
        return MetricsServer(server)


class MetricsServer:
    """The running HTTP endpoint."""

    def __init__(self, server: WSGIServer) -> None:
        self._server = server
        self.port = int(server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
