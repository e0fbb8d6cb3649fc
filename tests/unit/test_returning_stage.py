"""A view that asks comes back to its group: at a cut, with what its relations held there (DESIGN 11)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from streaming import packed_rows as packing
from streaming.errors import FrescoError
from streaming.messages import ActionList, Control, Suspend, Updates, ViewChange, decode
from streaming.metrics import Metrics
from streaming.pipeline.choosing import Choice
from streaming.runtime.kafka import headers
from streaming.runtime.pulse import NOTHING
from streaming.runtime.step import Fence, ManifestStore, Outgoing, Stepper
from streaming.sql.parse import parse
from streaming.stages.asking_stage import Access
from streaming.stages.returning_stage import ReturningStage
from streaming.viewchanges.requests import Requests
from streaming.viewmanagers.base import ManagedView
from streaming.viewmanagers.levels import Level
from streaming.warehouse.updates import UpdatesWriter
from tests.golden.bank_relations import BANK
from tests.unit.test_asking_stage import SQL, World, states, world

__all__ = ["world"]


class Returning:
    """One start of the stage for a request; `_updates` holds what the world has committed."""

    def __init__(self, folder: Path, request: int, sent: dict[int, Any]) -> None:
        self.requests, self.folder, self._sent = Requests(folder), folder, sent
        spec = ManagedView("v", "g", parse(SQL, BANK))
        choice = Choice("sweep", Level.COMPLETE, "one-local", sources=("north",))
        captured: Any = [
            SimpleNamespace(relation=BANK[n]) for n in ("north.account", "north.entry")
        ]
        given = next(one for one in self.requests.all() if one.number == request)
        sources = {"north": Access("", captured)}
        self.stage = ReturningStage(spec, given, choice, sources, folder, "actions", Metrics())
        self.offset = 0
        store = ManifestStore(folder / f"manifests-{request}")
        fence = Fence(folder / f"generations-{request}", {"process": "a test"})
        self.stepper = Stepper(self.stage, store, fence, self._publish)

    def take(self, *messages: Updates | ViewChange, first: int) -> None:
        records = []
        for sequence, one in enumerate(messages, first):
            out = Outgoing(
                topic="updates",
                sequence=sequence,
                first=0,
                last=0,
                kind=one.type,
                body=one.model_dump_json(),
            )
            fields = [{"key": k, "value": v} for k, v in headers("g", "integrator", 1, out)]
            place = {"topic": "updates", "partition": 0, "offset": sequence}
            records.append({**place, "value": out.body.encode(), "headers": fields})
        self.stepper.batch(pa.Table.from_pylist(records))

    def rest(self) -> None:
        self.stepper.batch(NOTHING)

    def _publish(self, producer: str, generation: int, messages: tuple[Outgoing, ...]) -> None:
        assert producer.startswith("view:v@")
        self._sent.update({one.sequence: decode(one.body.encode()) for one in messages})


def recorded(world: World, folder: Path, since: int = 0) -> None:
    """The world's messages, from one on, in `_updates`."""
    writer = UpdatesWriter(str(folder), "p", list(BANK.values()))
    for sequence, one in list(enumerate(world.messages, 1))[since:]:
        log = one.logs["north"]
        transactions = pa.table(
            {
                "number": pa.array(log.numbers, pa.int64()),
                "source": pa.array(["north"] * len(log.numbers), pa.string()),
                "transaction": pa.array(log.transactions, pa.string()),
                "position": pa.array(log.positions, pa.int64()),
                "committed_ms": pa.array([0] * len(log.numbers), pa.int64()),
            }
        )
        tables = {name: packing.unpack(rows, folder) for name, rows in one.relations.items()}
        writer.append(sequence, tables, transactions, one.controls, last=one.last)
    writer.close()


def test_it_tries_until_its_source_answers_and_joins_at_the_cut_it_is_told(
    world: World, tmp_path: Path
) -> None:
    world.commit("north.entry", (1, (2, 2, None)))
    world.commit("north.account", (-1, (1, "ann", "x")), (1, (1, "eve", "x")))
    recorded(world, tmp_path)
    sent: dict[int, Any] = {}
    requests = Requests(tmp_path)
    world.trouble = FrescoError("SOURCE_UNREACHABLE", "the source is away")
    one = requests.put("resume", "v", by_itself=True).number
    Returning(tmp_path, one, sent).rest()
    told = requests.told(one, "done") or {}
    assert told["error"]["code"] == "SOURCE_UNREACHABLE" and requests.told(one, "loaded") is None
    world.trouble = None
    two = requests.put("resume", "v", by_itself=True).number
    stage = Returning(tmp_path, two, sent)
    stage.rest()
    assert requests.told(two, "loaded") == {"number": 2} and sent == {}
    early = world.messages[2]
    cut = ViewChange(group="g", view="v", change="add", number=2)
    later = world.commit("north.entry", (1, (3, 1, None)))
    stage.take(early, cut, later, first=7)
    change, first, then = (sent[number] for number in sorted(sent))
    assert change == cut
    assert isinstance(first, ActionList) and (first.first, first.last) == (2, 2) and first.complete
    assert isinstance(then, ActionList) and (then.first, then.last) == (3, 3)
    again = Returning(tmp_path, two, sent)
    again.take(world.commit("north.entry", (-1, (2, 2, None))), first=10)
    found = list(states({n: one for n, one in sent.items() if one != cut}))
    assert found == [
        (2, [(1, "eve"), (2, "bob")]),
        (3, [(1, "eve"), (2, "bob"), (3, "eve")]),
        (4, [(1, "eve"), (3, "eve")]),
    ]


def test_what_was_damaged_before_the_cut_suspends_it_there_and_stops_nothing_else(
    world: World, tmp_path: Path
) -> None:
    recorded(world, tmp_path)
    sent: dict[int, Any] = {}
    request = Requests(tmp_path).put("resume", "v", by_itself=True).number
    stage = Returning(tmp_path, request, sent)
    stage.rest()
    assert Requests(tmp_path).told(request, "loaded") == {"number": 0}
    damaged = Control(number=1, relation="north.entry", kind="tainted")
    world.commit("north.entry", controls=(damaged,))
    recorded(world, tmp_path, since=1)
    cut = ViewChange(group="g", view="v", change="add", number=1)
    later = world.commit("north.entry", (1, (3, 1, None)))
    stage.take(cut, later, first=7)
    change, end = (sent[number] for number in sorted(sent))
    assert change == cut
    assert isinstance(end, Suspend) and end.after == 0 and end.error["code"] == "VIEW_INPUT_DAMAGED"
    again = Returning(tmp_path, request, sent)
    again.take(world.commit("north.entry", (1, (4, 1, None))), first=9)
    assert again.stage.suspended == end.error and len(sent) == 2
