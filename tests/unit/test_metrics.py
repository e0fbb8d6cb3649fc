"""What a pipeline exports, and where."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streaming.errors import FrescoError
from streaming.metrics import Metrics

KNOWN = """
source_lag_seconds transactions held_parts held_rows incomplete_seconds
released_globals spanning_transactions bad_records numbered view_frontier
group_frontier freshness_seconds vut_cells commits commit_seconds action_lists rows
batch_seconds view_suspended view_waiting view_stalled source_asked sessions
"""


def touch(metrics: Metrics) -> None:
    """Give every series a value: a labelled one is exported from its first value on."""
    metrics.source_lag.labels("north").set(1.5)
    metrics.transactions.labels("north").inc(7)
    metrics.held_parts.set(2)
    metrics.held_rows.set(3)
    metrics.incomplete.labels("north").set(61)
    metrics.released.inc()
    metrics.spanning.inc(4)
    metrics.bad_records.labels("north.public.entry").inc()
    metrics.numbered.set(9)
    metrics.view_frontier.labels("balance").set(8)
    metrics.frontier.labels("bank").set(7)
    metrics.freshness.labels("balance").observe(1.2)
    for colour, cells in {"white": 4, "red": 3, "gray": 2, "black": 1}.items():
        metrics.vut_cells.labels("bank", colour).set(cells)
    metrics.commits.labels("bank").inc()
    metrics.commit_seconds.labels("bank").observe(0.04)
    metrics.action_lists.labels("balance").inc()
    metrics.rows.labels("view:balance").inc(12)
    metrics.batch_seconds.labels("integrator").observe(0.3)
    for gauge in (metrics.suspended, metrics.waiting):
        gauge.labels("balance").set(1)
    metrics.stalled.labels("balance", "SERVICE_NOT_RUNNING").set(1)
    metrics.source_asked.labels("balance", "held").inc(3)
    metrics.sessions.labels("bank_isolated").inc()


@pytest.fixture(scope="module")
def exported() -> Iterator[str]:
    """The text of /metrics, over HTTP."""
    metrics = Metrics()
    touch(metrics)
    server = metrics.serve("127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as said:
            yield said.read().decode()
    finally:
        server.close()


def samples(text: str) -> dict[str, float]:
    """Sample -> value, as `name{label=value}`."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


@pytest.mark.parametrize(
    ("sample", "value"),
    [
        ("fresco_source_lag_seconds{source=north}", 1.5),
        ("fresco_transactions_total{source=north}", 7),
        ("fresco_held_parts{}", 2),
        ("fresco_held_rows{}", 3),
        ("fresco_released_globals_total{}", 1),
        ("fresco_spanning_transactions_total{}", 4),
        ("fresco_bad_records_total{topic=north.public.entry}", 1),
        ("fresco_numbered{}", 9),
        ("fresco_view_frontier{view=balance}", 8),
        ("fresco_group_frontier{group=bank}", 7),
        ("fresco_freshness_seconds_count{view=balance}", 1),
        ("fresco_freshness_seconds_sum{view=balance}", 1.2),
        ("fresco_freshness_seconds_bucket{le=1.0,view=balance}", 0),
        ("fresco_freshness_seconds_bucket{le=1.5,view=balance}", 1),
        ("fresco_vut_cells{colour=white,group=bank}", 4),
        ("fresco_vut_cells{colour=red,group=bank}", 3),
        ("fresco_vut_cells{colour=gray,group=bank}", 2),
        ("fresco_vut_cells{colour=black,group=bank}", 1),
        ("fresco_commits_total{group=bank}", 1),
        ("fresco_commit_seconds_count{group=bank}", 1),
        ("fresco_action_lists_total{view=balance}", 1),
        ("fresco_rows_total{stage=view:balance}", 12),
        ("fresco_batch_seconds_sum{stage=integrator}", 0.3),
        ("fresco_view_suspended{view=balance}", 1),
        ("fresco_incomplete_seconds{source=north}", 61),
        ("fresco_source_asked_total{view=balance,what=held}", 3),
    ],
)
def test_metrics_are_exported_over_http(exported: str, sample: str, value: float) -> None:
    assert samples(exported)[sample] == value


def test_nothing_is_exported_that_this_test_does_not_know(exported: str) -> None:
    names = {family.name for family in text_string_to_metric_families(exported)}
    assert {name.removesuffix("_created") for name in names} == {
        f"fresco_{n}" for n in KNOWN.split()
    }


def test_every_metric_has_a_value_in_these_tests() -> None:
    """One without a series would pass all of them unseen."""
    metrics = Metrics()
    touch(metrics)
    assert [one.name for one in metrics.registry.collect() if not one.samples] == []


def test_two_services_in_one_process_do_not_share_their_numbers() -> None:
    one, other = Metrics(), Metrics()
    one.numbered.set(5)
    assert other.registry.get_sample_value("fresco_numbered") == 0


def test_a_port_in_use_is_a_coded_error_with_the_place() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FrescoError) as caught:
            Metrics().serve("127.0.0.1", port)
    assert caught.value.code == "METRICS_PORT_IN_USE"
    assert caught.value.where == f"127.0.0.1:{port}"
    assert "metrics.port" in caught.value.todo


def test_an_address_of_another_machine_is_not_called_a_port_in_use() -> None:
    with pytest.raises(FrescoError) as caught:
        Metrics().serve("192.0.2.1", 0)
    assert caught.value.code == "METRICS_ADDRESS"
    assert "metrics.host" in caught.value.todo


def test_a_closed_server_gives_its_port_back() -> None:
    server = Metrics().serve("127.0.0.1", 0)
    port = server.port
    server.close()
    again = Metrics().serve("127.0.0.1", port)
    assert again.port == port
    again.close()
