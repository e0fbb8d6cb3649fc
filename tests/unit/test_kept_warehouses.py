"""A start over a warehouse that an earlier version has left goes on with it (`keptwarehouse`).

What it left is in every durable form: machines in the middle of a protocol, answers that are held,
lists that wait, a view that has joined, one that is suspended. Afterwards each view holds its SQL's rows
over the source, and `verify` finds nothing between the epochs of both.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_view_changes import rows

from streaming.proof.verdicts import verify_pipeline
from streaming.readers import Warehouse
from tests.changingviews import Driver, Shop
from tests.keptwarehouse import HISTORIES, answering, kept
from tests.sourcelog import Record

VERSIONS = (1,)
LEVELS = {"complete": "complete", "files": "complete", "strong": "strong", "blocks": "complete-N"}


@pytest.fixture(params=[(name, v) for name in HISTORIES for v in VERSIONS], ids=str)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Shop, Record]]:
    name, version = request.param
    shop, end = kept(name, version, tmp_path)
    with answering(shop):
        yield name, shop, end


def contents(shop: Shop) -> dict[str, list[tuple[Any, ...]]]:
    """What each view must hold, computed from the shop's rows in plain Python."""
    entries = [(id_, account, amount) for id_, (account, amount) in shop.rows.items()]
    words = dict(shop.words)
    totals = [
        (account, sum(a for _, one, a in entries if one == account), n)
        for account in {one for _, one, _ in entries}
        if (n := sum(one == account for _, one, _ in entries))
    ]
    pairs = [(id_, amount, words[account]) for id_, account, amount in entries if account in words]
    turned = [
        (account, words[account], id_, amount)
        for id_, account, amount in entries
        if account in words
    ]
    found = {
        "entries": entries,
        "totals": totals,
        "large": [(account, total) for account, total, _ in totals if total > 10],
        "ratio": [(id_, 100 / amount) for id_, _, amount in entries if amount],
        "words": [(id_, word) for id_, word in shop.words if id_ > 1],
        **dict.fromkeys(("pairs", "swept", "hacid", "counted"), pairs),
        **dict.fromkeys(("turned", "strobed"), turned),
    }
    return {name: sorted(rows_) for name, rows_ in found.items()}


def test_a_start_over_it_goes_on(left: tuple[str, Shop, Record]) -> None:
    name, shop, end = left
    before = len(Warehouse(shop.warehouse).epochs("shop"))
    driver = Driver(shop)
    assert shop.events, "what was captured is there again"
    shop.publish([end])
    shop.put(3, 2, 25)  # the row that had no ratio
    shop.put(10, 1, 40)
    shop.delete(4)
    shop.other(4, "four")
    shop.other(5, "five")  # number 21 ends a block of three
    for _ in range(10):
        driver.round()
    driver.close()
    views = Warehouse(shop.warehouse).views()
    expected = contents(shop)
    assert {view: rows(shop, view) for view in views} == {view: expected[view] for view in views}
    epochs = Warehouse(shop.warehouse).epochs("shop")
    assert len(epochs) > before and not epochs[-1].suspended
    verdict = verify_pipeline(shop.warehouse)
    assert verdict.problems == ()
    achieved = {line.name: line.achieved for line in verdict.lines}
    assert achieved["shop"] == LEVELS[name], achieved
