"""The dashboard and the alert rules in conf/ ask for metrics that there are, and for all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_metrics import touch

from streaming.metrics import Metrics

CONF = Path(__file__).parents[2] / "conf"
DASHBOARDS = CONF / "grafana" / "dashboards"


@pytest.fixture(scope="module")
def known() -> dict[str, set[str]]:
    """Sample name -> its labels, of everything that Metrics exports."""
    metrics = Metrics()
    touch(metrics)
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DASHBOARDS / "fresco.json").read_text())
    return found


@pytest.fixture(scope="module")
def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((CONF / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def asked(expression: str) -> set[str]:
    """The metrics an expression names."""
    return set(re.findall(r"fresco_\w+", expression))


def grouped(expression: str) -> set[str]:
    """The labels an expression groups or joins by."""
    lists = re.findall(r"\b(?:by|on|group_left)\s*\(([^)]*)\)", expression)
    return {name.strip() for one in lists for name in one.split(",") if name.strip()}


def expressions(dashboard: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (panel["title"], target["expr"])
        for panel in dashboard["panels"]
        for target in panel["targets"]
    ]


def test_every_metric_that_the_dashboard_asks_for_exists(
    dashboard: dict[str, Any], known: dict[str, set[str]]
) -> None:
    for title, expression in expressions(dashboard):
        assert asked(expression), title
        assert asked(expression) <= set(known), title


def test_the_dashboard_shows_every_metric(
    dashboard: dict[str, Any], known: dict[str, set[str]]
) -> None:
    shown = set().union(*(asked(expression) for _, expression in expressions(dashboard)))
    of_histograms = {name for name in known if name.endswith(("_count", "_sum"))}
    assert shown == set(known) - of_histograms


def test_the_dashboard_groups_by_labels_its_metrics_have(
    dashboard: dict[str, Any], known: dict[str, set[str]]
) -> None:
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            labels = set().union(*(known[name] for name in asked(target["expr"])))
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert grouped(target["expr"]) | legend <= labels, panel["title"]


def test_the_dashboard_has_what_grafana_needs(dashboard: dict[str, Any]) -> None:
    assert dashboard["uid"] and dashboard["title"] == "Fresco"
    assert dashboard["schemaVersion"] >= 39
    (source,) = yaml.safe_load((CONF / "grafana/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) >= 10
    for panel in panels:
        assert panel["title"] and panel["type"] in {"stat", "timeseries"}
        assert panel["datasource"] == {"type": "prometheus", "uid": source["uid"]}
        assert panel["targets"] and panel["fieldConfig"]["defaults"]["unit"]
        for target in panel["targets"]:
            assert (
                target["expr"] and target["refId"] and target["datasource"] == panel["datasource"]
            )


def test_panels_lie_on_the_grid_without_covering_each_other(dashboard: dict[str, Any]) -> None:
    covered: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & covered, panel["title"]
        covered |= cells


def test_the_dashboard_lies_where_grafana_s_provider_looks() -> None:
    (provider,) = yaml.safe_load((DASHBOARDS / "provider.yml").read_text())["providers"]
    assert provider["type"] == "file"
    # docker-compose.yml mounts conf/grafana there.
    assert provider["options"]["path"] == "/etc/grafana/provisioning/dashboards"


def test_every_metric_that_an_alert_asks_for_exists(
    alerts: list[dict[str, Any]], known: dict[str, set[str]]
) -> None:
    for rule in alerts:
        names = asked(rule["expr"])
        assert names <= set(known), rule["alert"]
        # Prometheus gives instance and job to every series.
        labels = set().union({"instance", "job"}, *(known[name] for name in names))
        said = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert grouped(rule["expr"]) | said <= labels, rule["alert"]


@pytest.mark.parametrize(
    ("alert", "metric"),
    [
        ("FrescoSourceLag", "fresco_source_lag_seconds"),
        ("FrescoViewSuspended", "fresco_view_suspended"),
        ("FrescoNoCommits", "fresco_commits_total"),
        ("FrescoBadRecords", "fresco_bad_records_total"),
        ("FrescoReleasedGlobals", "fresco_released_globals_total"),
        ("FrescoSpanningTransactions", "fresco_spanning_transactions_total"),
        ("FrescoPartsWait", "fresco_held_parts"),
        ("FrescoRowsMissing", "fresco_incomplete_seconds"),
        ("FrescoViewWaits", "fresco_view_waiting"),
    ],
)
def test_what_needs_a_person_has_an_alert(
    alerts: list[dict[str, Any]], alert: str, metric: str
) -> None:
    (rule,) = [one for one in alerts if one["alert"] == alert]
    assert metric in asked(rule["expr"])


def test_every_alert_says_what_is_wrong_and_what_to_do(alerts: list[dict[str, Any]]) -> None:
    names = [rule["alert"] for rule in alerts]
    assert len(set(names)) == len(names)
    for rule in alerts:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"]["summary"] and rule["annotations"]["action"]


def test_prometheus_reads_the_alerts_from_where_they_are_mounted() -> None:
    settings = yaml.safe_load((CONF / "prometheus.yml").read_text())
    assert settings["rule_files"] == ["alerts.yml"]
    compose = yaml.safe_load((CONF.parent / "docker-compose.yml").read_text())
    mounted = compose["services"]["prometheus"]["volumes"]
    for file in ("prometheus.yml", "alerts.yml"):
        assert f"./conf/{file}:/etc/prometheus/{file}:ro" in mounted
    grafana = compose["services"]["grafana"]["volumes"]
    assert "./conf/grafana:/etc/grafana/provisioning:ro" in grafana
