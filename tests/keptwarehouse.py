"""Warehouses that an earlier version of the program has left, each stopped in the middle of its work.

A history is a fixed row of moves in a shop (`changingviews`): views of many kinds, one that has joined,
one that is suspended, others that ask their source and hold answers, a transaction that has come by half,
lists that wait in the merge. `keep` plays it and stores what outlives the service, `kept` gives that
back: the warehouse, the topics, and the source as the history left it.
"""

from __future__ import annotations

import base64
import json
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from streaming import packed_rows
from streaming.algebra.source_queries import SourceAnswer, SourceQuery
from streaming.ask.postgres.pg_state import PgState
from streaming.engines.duck.signed import Signed
from streaming.messages import INLINE_LIMIT
from streaming.scalars.types import delta_schema
from streaming.stages import asking_stage
from streaming.viewchanges.asked_changes import ask_to_add
from tests.changingviews import Driver, Shop, relations
from tests.sourcelog import Record

FIXTURES = Path(__file__).parent / "fixtures"
NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
ENTRIES = "SELECT id, account, amount FROM north.entry"
TOTALS = "SELECT account, SUM(amount) AS total, COUNT(*) AS n FROM north.entry GROUP BY account"
PAIRS = "SELECT e.id, e.amount, o.words FROM north.entry e JOIN north.other o ON e.account = o.id"
BY_SOURCE = (
    "SELECT o.id, o.words, e.id AS entry, e.amount FROM north.other o "
    "JOIN north.entry e ON e.account = o.id"
)


class Asked:
    """The shop's database, which always answers with all that has been committed."""

    durable = 7

    def __init__(self, shop: Shop, name: str, operators: Any) -> None:
        self._shop, self.name, self._operators = shop, name, operators

    def answer(self, query: SourceQuery[Signed]) -> SourceAnswer[Signed]:
        log, (entry, other) = self._shop.log, relations()
        entries = {(0, (id_, *values)): 1 for id_, values in self._shop.rows.items()}
        words = {(0, one): 1 for one in self._shop.words}
        base = {
            "north.entry": Signed(delta_schema(entry.relation.schema), bag=entries),
            "north.other": Signed(delta_schema(other.relation.schema), bag=words),
        }
        given = tuple(self._operators.evaluate(p.tree, {**base, **p.inputs}) for p in query.parts)
        state = PgState(log.lsn, log.transaction + 1, log.transaction + 1)
        return SourceAnswer(query.view, query.id, query.step, self.name, given, state)

    def pin(self) -> None: ...

    def release(self) -> None: ...

    def mark(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class History:
    """Attributes:
    views: by name all that follows its name in its file.
    joins: whether a view is added on the way; no view can be where a group goes by blocks, or REL rides.
    rel: how REL travels.
    inline: bytes of rows that travel within messages; more of them are in files.
    """

    views: dict[str, str]
    joins: bool = False
    rel: Literal["direct", "with-actions"] = "direct"
    inline: int = INLINE_LIMIT

    def shop(self, folder: Path) -> Shop:
        return Shop(folder, views=self.views, connection=NOWHERE, rel=self.rel)


COMPLETE = {
    "totals": TOTALS,
    "entries": ENTRIES,
    "large": "SELECT account, total FROM totals WHERE total > 10",
    "ratio": "SELECT id, 100 / amount AS ratio FROM north.entry",
    "pairs": f"USING compensating AS {PAIRS}",
    "swept": f"USING sweep AS {PAIRS}",
    "turned": f"USING c_strobe AS {BY_SOURCE}",
}
HISTORIES = {
    "complete": History(COMPLETE, joins=True),
    "files": History(COMPLETE, joins=True, inline=0),
    "strong": History(
        {
            "totals": TOTALS,
            "hacid": f"WITH STRONG CONSISTENCY USING eca AS {PAIRS}",
            "strobed": f"WITH STRONG CONSISTENCY USING strobe AS {BY_SOURCE}",
            "counted": f"WITH STRONG CONSISTENCY USING recompute AS {PAIRS}",
        },
        rel="with-actions",
    ),
    "blocks": History(
        {
            "totals": f"WITH COMPLETE EVERY 3 CONSISTENCY AS {TOTALS}",
            "entries": f"WITH COMPLETE EVERY 3 CONSISTENCY AS {ENTRIES}",
        }
    ),
}


@contextmanager
def answering(shop: Shop) -> Any:
    """The shop's database answers its views."""

    def asked(name: str, dsn: str, relations_: Any, operators: Any, **_: Any) -> Asked:
        return Asked(shop, name, operators)

    with mock.patch.object(asking_stage, "asked_source", asked):
        yield


def play(
    shop: Shop, service: Callable[[Callable[[Driver], None]], None], joins: bool = True
) -> Record:
    """The history's moves, but for the last record, which is returned: a transaction's END.

    Args:
        service: is given what the service does between them.
    """
    for id_ in (1, 2, 3):
        shop.other(id_, ["one", "two", "three"][id_ - 1])
    for id_ in range(1, 8):
        shop.put(id_, id_ % 3 + 1, id_ * 4)
    service(_round)
    if joins:
        service(_add)
    shop.put(3, 2, 0)  # no ratio
    shop.delete(5)
    service(_settled)
    shop.put(2, 1, 90)
    service(lambda driver: driver.step("integrator"))
    shop.put(8, 1, 32)  # what the answers see, and the log has not told
    shop.put(1, 3, 5)
    service(_without_entries)
    begin, row, end = shop.log.commit([("entry", "c", None, dict(id=9, account=2, amount=36))])
    shop.publish([begin, row])
    service(lambda driver: driver.step("integrator"))
    shop.rows[9] = (2, 36)
    return end


def _round(driver: Driver) -> None:
    driver.round()
    driver.round()


def _add(driver: Driver) -> None:
    text = "SELECT id, words FROM north.other WHERE id > 1"
    ask_to_add(driver.shop.config, driver.shop.write("words", text))


def _settled(driver: Driver) -> None:
    for _ in range(8):
        driver.round()


def _without_entries(driver: Driver) -> None:
    """Views take their step, but for the first; the merge waits for it."""
    for name in driver.views()[1:]:
        driver.step(name)
    for name in driver.steppers:
        if name.startswith("merge:"):
            driver.step(name)


def keep(name: str, file: Path) -> None:
    """Play a history and keep what it leaves."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "shop"
        shop = HISTORIES[name].shop(folder)
        inline = mock.patch.object(packed_rows, "INLINE_LIMIT", HISTORIES[name].inline)
        with answering(shop), inline:
            driver = Driver(shop)
            play(shop, lambda moves: moves(driver), HISTORIES[name].joins)
            driver.close()
        (folder / "topics.json").write_text(json.dumps(_texts(shop.records), indent=1))
        with tarfile.open(file, "w:xz") as archive:
            archive.add(folder, arcname=".")


def kept(name: str, version: int, folder: Path) -> tuple[Shop, Record]:
    """The shop of a history as a version of the program has left it, and the record that comes next."""
    shop = HISTORIES[name].shop(folder / "made")
    end = play(shop, lambda moves: None)
    stored = folder / "kept"
    with tarfile.open(FIXTURES / f"state_{version}" / f"{name}.tar.xz") as archive:
        archive.extractall(stored, filter="data")
    shop.folder, shop.views = stored, stored / "views"
    config = {"views": shop.views, "warehouse": stored / "warehouse"}
    shop.config = shop.config.model_copy(update=config)
    shop.records = _records(json.loads((stored / "topics.json").read_text()))
    return shop, end


def _texts(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: _texts(item) for key, item in value.items()}
    return [_texts(item) for item in value] if isinstance(value, list) else value


def _records(value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {"base64"}:
            return base64.b64decode(value["base64"])
        return {key: _records(item) for key, item in value.items()}
    return [_records(item) for item in value] if isinstance(value, list) else value


if __name__ == "__main__":
    for name in HISTORIES:
        keep(name, Path(sys.argv[1]) / f"{name}.tar.xz")
