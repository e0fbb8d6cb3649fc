"""Of a view manager's checkpoints the one that its manifest names is kept, and no other (DESIGN 9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.runtime.manifests import ManifestStore
from tests.changingviews import Driver, Shop
from tests.stepworld import Crash


def there(shop: Shop) -> set[str]:
    folder = shop.warehouse / "_state" / "view-entries" / "checkpoints"
    return {str(file.relative_to(shop.warehouse)) for file in folder.iterdir()}


def named(shop: Shop) -> set[str]:
    latest = ManifestStore(shop.warehouse / "_state" / "view-entries" / "manifests").latest()
    assert latest is not None
    return {name for leaf in latest.snapshot["checkpoint"]["files"] for name in leaf}


def test_what_a_crash_leaves_between_a_checkpoint_and_its_manifest_goes_with_the_next_step(
    tmp_path: Path,
) -> None:
    shop = Shop(tmp_path, checkpoint_batches=1)
    armed = False

    def reach(moment: str) -> None:
        if armed and moment == "manifest of view:entries":
            raise Crash(moment)

    driver = Driver(shop, reach)
    shop.put(1, 1, 4)
    driver.round()
    before = there(shop)
    assert before == named(shop)
    armed = True
    shop.put(2, 1, 5)
    with pytest.raises(Crash):
        driver.round()
    driver.close()
    assert there(shop) > before
    again = Driver(shop, lambda moment: None)
    assert there(shop) > before, "who wrote it may still write its manifest"
    again.round()
    assert there(shop) == named(shop) != before
    again.close()
