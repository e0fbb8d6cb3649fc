"""`fresco demo --scenario anomalies`: each naive state wrong as the paper says, each right one right.

The databases are PostgreSQL's, started by the command itself; no other part of the stack is needed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from streaming.demo.anomalies.all_anomalies import SCENARIOS
from streaming.demo.anomalies.shown import Anomaly, AnomalyShown, Side, bag


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What the command says, seed 1."""
    words = ["demo", "--scenario", "anomalies", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "streaming", *words], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_anomaly_comes_out_as_its_paper_says(told: dict[str, Any]) -> None:
    assert told["holds"]
    found = {one["key"]: one for one in told["anomalies"]}
    assert list(found) == list(SCENARIOS) and len(found) == 12
    for name, one in found.items():
        assert one["naive_is_wrong"] and one["right_is_right"], name
        assert one["history"] and one["steps"] and one["seed"] == 1, name
        assert one["right"]["states"][-1] == one["sources"][-1], name


def test_the_states_are_those_of_the_papers(told: dict[str, Any]) -> None:
    found = {one["key"]: one for one in told["anomalies"]}
    naive = {name: one["naive"]["states"] for name, one in found.items()}
    assert naive["insertion"][-1] == "{[1], 2[4]}"
    assert naive["deletion"] == ["{[1,3]}"]
    assert naive["several-sources"][-1] == "{[1,2,3,4]}"
    assert "{[1,3,5]}" in naive["global-transaction"]
    assert "{[1,10,20]}" in naive["no-registry"]
    assert naive["figure-1"][1] == "{2[7,2], [7,10], -1[7,20]}"
    assert "T2: TR2 has read ty(2) and waits for tx" in found["figure-1"]["history"]


OUTCOME = AnomalyShown(
    anomaly=Anomaly("k", "t", "p", "s"),
    seed=1,
    views=("v",),
    history=(),
    steps=(),
    naive=Side("n", (({},), (bag((1,), (1,)),)), (({},), (bag((1,), (1,)),))),
    right=Side("r", (({},), (bag((1,)),)), (({},), (bag((1,)),))),
    sources=(({},), (bag((1,)),)),
)


def test_the_verdict_can_fail() -> None:
    assert OUTCOME.holds
    good, bad = OUTCOME.right, OUTCOME.naive
    assert not replace(OUTCOME, naive=good).holds, "a naive manager that is right shows nothing"
    assert not replace(OUTCOME, right=bad).holds, "a right one that is wrong"
    assert not replace(OUTCOME, right=replace(good, states=good.states[:1])).holds, "or late"
    assert not replace(OUTCOME, naive=replace(bad, expected=good.expected)).holds, (
        "or not the paper's"
    )
