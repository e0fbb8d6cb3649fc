"""What a pipeline exports on /metrics (prometheus-client); one instance per service.

Names follow Prometheus: a unit in the name, `_total` for counters. Dashboards and alert rules in
conf/ use these and nothing else.
"""

from __future__ import annotations

import errno
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from streaming.errors import FrescoError

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 13, 21, 34, 60, 300)


class Metrics:
    """All collectors, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.source_lag = Gauge(
            "fresco_source_lag_seconds",
            "Now minus the newest numbered source commit",
            ["source"],
            registry=registry,
        )
        self.transactions = Counter(
            "fresco_transactions_total",
            "Source transactions numbered",
            ["source"],
            registry=registry,
        )
        self.held_parts = Gauge(
            "fresco_held_parts",
            "Parts of global transactions that wait for others",
            registry=registry,
        )
        self.held_rows = Gauge(
            "fresco_held_rows", "Rows of transactions that are not complete yet", registry=registry
        )
        self.released = Counter(
            "fresco_released_globals_total",
            "Global transactions released as local",
            registry=registry,
        )
        self.bad_records = Counter(
            "fresco_bad_records_total",
            "Records that could not be decoded",
            ["topic"],
            registry=registry,
        )
        self.numbered = Gauge(
            "fresco_numbered", "Highest transaction number given", registry=registry
        )
        self.view_frontier = Gauge(
            "fresco_view_frontier",
            "Highest number a view manager has handled",
            ["view"],
            registry=registry,
        )
        self.frontier = Gauge(
            "fresco_group_frontier",
            "Every transaction up to it is published",
            ["group"],
            registry=registry,
        )
        self.freshness = Histogram(
            "fresco_freshness_seconds",
            "Source commit to warehouse commit, per commit",
            ["view"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.vut_cells = Gauge(
            "fresco_vut_cells",
            "Cells of the view update table",
            ["group", "colour"],
            registry=registry,
        )
        self.commits = Counter(
            "fresco_commits_total", "Warehouse transactions committed", ["group"], registry=registry
        )
        self.commit_seconds = Histogram(
            "fresco_commit_seconds",
            "One warehouse commit, changelog and state",
            ["group"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.action_lists = Counter(
            "fresco_action_lists_total",
            "Action lists sent, empty ones included",
            ["view"],
            registry=registry,
        )
        self.rows = Counter(
            "fresco_rows_total", "Delta rows, by stage", ["stage"], registry=registry
        )
        self.batch_seconds = Histogram(
            "fresco_batch_seconds",
            "One step of a stage",
            ["stage"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.suspended = Gauge(
            "fresco_view_suspended", "1 while a view is suspended", ["view"], registry=registry
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
