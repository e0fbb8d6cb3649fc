"""However topics, batches, repeats and restarts fall, the numbered result is the sources' own order."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streaming.algebra.tree import Scan
from streaming.captured.captured_schema import CapturedRelation, CapturedSource, captured
from streaming.cdc.intake import Intake, IntakeResult
from streaming.durable import as_json
from streaming.integrator.integrator_machine import Completed, IntegratorMachine
from streaming.integrator.knots import Touched
from streaming.integrator.window import PartOfGlobal
from tests.engines import ENGINE
from tests.numberedlogs import Numbers, check_order, collect, touched_of
from tests.sourcelog import Record, SourceLog, Topics

SOURCES = ("north", "south")


class _View:
    def __init__(self, relation: CapturedRelation) -> None:
        self.name = relation.relation.name.replace(".", "_")
        self.tree = Scan(relation.relation.name, relation.relation.schema)


def _captured() -> list[CapturedRelation]:
    result = []
    for source in SOURCES:
        columns = [("id", "int4"), ("v", "int4")]
        result.append(
            captured(f"{source}.account", f"{source}.public.account", columns, key=["id"])
        )
        result.append(captured(f"{source}.entry", f"{source}.public.entry", columns))
    return result


def _intake() -> Intake:
    relations = _captured()
    views = [_View(relation) for relation in relations]
    sources = [CapturedSource(name, name, snapshot=False) for name in SOURCES]
    groups = {"main": [view.name for view in views]}
    return Intake(relations, views, groups, sources=sources, engine=ENGINE)


VALUES = st.fixed_dictionaries({"id": st.integers(0, 3), "v": st.integers(0, 3)})
CHANGES = st.one_of(
    st.tuples(st.sampled_from(["account", "entry"]), st.just("c"), st.none(), VALUES),
    st.tuples(st.sampled_from(["account", "entry"]), st.just("u"), VALUES, VALUES),
    st.tuples(st.sampled_from(["account", "entry"]), st.just("d"), VALUES, st.none()),
)
TRANSACTIONS = st.lists(st.lists(CHANGES, max_size=4), max_size=6)
"""A source's transactions; an empty one touched only tables that are not captured."""
TELLING = [("entry", "c", None, {"id": 0, "v": 0})]
"""Which connector it is, only a row tells. Until one has come, a transaction that began twice is held,
as an old connector's END may count too few; with the first row it must be released."""


def _net(source: str, changes: list[Any]) -> Counter[tuple[str, int, int]]:
    net: Counter[tuple[str, int, int]] = Counter()
    for table, _, before, after in changes:
        for sign, row in ((-1, before), (1, after)):
            if row is not None:
                net[(f"{source}.{table}", row["id"], row["v"])] += sign
    return Counter({row: count for row, count in net.items() if count})


def _results(results: list[IntakeResult]) -> dict[int, Counter[tuple[str, int, int]]]:
    found: dict[int, Counter[tuple[str, int, int]]] = {}
    for result in results:
        for relation, delta in result.updates.items():
            for row in delta.to_pylist():
                net = found.setdefault(row["_number"], Counter())
                net[(relation, row["c0"], row["c1"])] += row["_multiplicity"]
    return {n: Counter({r: c for r, c in net.items() if c}) for n, net in found.items()}


def _with_repeats(draw: st.DrawFn, transactions: list[list[Record]]) -> list[Record]:
    """The connector's output with restarts: it goes back a little and sends again."""
    log = [record for records in transactions for record in records]
    begins = {}
    place = 0
    for records in transactions:
        for _ in records:
            begins[place] = records[0]
            place += 1
    sent: list[Record] = []
    place = 0
    restarts = draw(st.integers(0, 2))
    while place < len(log):
        sent.append(log[place])
        place += 1
        if restarts and draw(st.integers(0, 9)) == 0:
            restarts -= 1
            place = max(0, place - draw(st.integers(1, 8)))
            if draw(st.booleans()):
                sent.append(begins[place])
    return sent


def _interleaved(draw: st.DrawFn, sent: list[Record]) -> list[Record]:
    """The same records with the topics' order kept and nothing else."""
    queues: dict[str, list[Record]] = {}
    for record in sent:
        queues.setdefault(record[0], []).append(record)
    result = []
    names = sorted(queues)
    while names:
        name = draw(st.sampled_from(names))
        take = draw(st.integers(1, 6))
        result += queues[name][:take]
        queues[name] = queues[name][take:]
        names = [name for name in names if queues[name]]
    return result


def _delivered(draw: st.DrawFn, records: list[Record]) -> list[IntakeResult]:
    topics, intake, results = Topics(), _intake(), []
    while records:
        size = draw(st.integers(1, 12))
        results.append(intake.step(topics.batch(records[:size]), 0))
        records = records[size:]
        if draw(st.integers(0, 3)) == 0:
            saved = as_json(intake.snapshot())
            intake = _intake()
            intake.restore(saved)
    return results


def _is_the_direct_sequence(results: list[IntakeResult], logs: dict[str, list[list[Any]]]) -> None:
    given_: dict[str, list[int]] = {source: [] for source in SOURCES}
    expected_first = 0
    for result in results:
        if result.first <= result.last:
            assert result.first == expected_first
            expected_first = result.last + 1
            covered = [(run.first, run.last) for run in result.runs["main"]]
            assert covered[0][0] == result.first and covered[-1][1] == result.last
            assert all(a[1] + 1 == b[0] for a, b in pairwise(covered))
        for row in result.transactions.to_pylist():
            given_[row["source"]].append(row["number"])
    found = _results(results)
    rel = {
        number: set(run.views)
        for result in results
        for run in result.runs.get("main", ())
        for number in range(run.first, run.last + 1)
    }
    for source, transactions in logs.items():
        numbers = given_[source]
        assert len(numbers) == len(transactions)
        assert numbers == sorted(numbers)
        for number, changes in zip(numbers, transactions, strict=True):
            net = _net(source, changes)
            assert found.get(number, Counter()) == net
            assert {row[0].replace(".", "_") for row in net} <= rel[number]


@settings(max_examples=60, deadline=None)
@given(st.data(), TRANSACTIONS, TRANSACTIONS)
def test_delivery_in_any_order_with_repeats_and_restarts_is_the_direct_sequence(
    data: st.DataObject, north: list[list[Any]], south: list[list[Any]]
) -> None:
    logs = {"north": [*north, TELLING], "south": [*south, TELLING]}
    sent: list[Record] = []
    for source, transactions in logs.items():
        log = SourceLog(source)
        sent += _with_repeats(data.draw, [log.commit(changes) for changes in transactions])
    results = _delivered(data.draw, _interleaved(data.draw, sent))
    if not results:
        return
    _is_the_direct_sequence(results, logs)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.lists(st.lists(CHANGES, min_size=1, max_size=5), min_size=1, max_size=3))
def test_an_old_connector_that_counts_from_one_again_loses_and_doubles_nothing(
    data: st.DataObject, transactions: list[list[Any]]
) -> None:
    log = SourceLog("north", version="3.6.0.Final")
    sent: list[Record] = []
    for changes in transactions:
        sent += _with_a_restart_inside(data.draw, log, changes)
    closing = [("account", "c", None, {"id": 9, "v": 9}), ("entry", "c", None, {"id": 9, "v": 9})]
    sent += log.commit(closing)
    results = _delivered(data.draw, _interleaved(data.draw, sent))
    _is_the_direct_sequence(results, {"north": [*transactions, closing], "south": []})


def _with_a_restart_inside(draw: st.DrawFn, log: SourceLog, changes: list[Any]) -> list[Record]:
    """A transaction sent in passes: each later one counts from 1 and END counts the last only."""
    log.transaction += 1
    key = str(log.transaction)
    places = [log.lsn + 10 * (i + 1) for i in range(len(changes))]
    records: list[Record] = []
    start = 0
    for last in (False, True) if draw(st.booleans()) else (True,):
        records.append(log.begin(key))
        stop = len(changes) if last else draw(st.integers(0, len(changes)))
        counts: dict[str, int] = {}
        for order, i in enumerate(range(start, stop), 1):
            table, op, before, after = changes[i]
            counts[table] = counts.get(table, 0) + 1
            records.append(log.row(table, op, before, after, key=key, order=order, lsn=places[i]))
        start = draw(st.integers(0, stop)) if not last else start
    log.lsn = places[-1] + 10
    return [*records, log.end(key, counts)]


# Global transactions over the machine alone -------------------------------------------------------


@st.composite
def _global_history(draw: st.DrawFn) -> tuple[dict[str, list[tuple[set[int], str | None]]], int]:
    """Per source, transactions as (keys touched, global id or None), from many threads.

    Each thread commits its global transactions one after the other; the sources see the threads'
    parts in different orders, as two databases under load do.
    """
    sources = ["a", "b", "c"][: draw(st.integers(2, 3))]
    count = draw(st.integers(1, 8))
    keys = draw(st.integers(1, 6))
    logs: dict[str, list[tuple[set[int], str | None]]] = {source: [] for source in sources}
    touched = st.sets(st.integers(0, keys), min_size=1, max_size=2)
    for source in sources:
        for number in draw(st.permutations(range(count))):
            logs[source].append((draw(touched), f"g{number}"))
        for _ in range(draw(st.integers(0, 4))):
            place = draw(st.integers(0, len(logs[source])))
            logs[source].insert(place, (draw(touched), None))
    return logs, len(sources)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.large_base_example])
@given(st.data(), _global_history())
def test_crossing_global_transactions_keep_each_keys_order_and_one_number_each(
    data: st.DataObject, history: tuple[dict[str, list[tuple[set[int], str | None]]], int]
) -> None:
    logs, parts = history
    machine = IntegratorMachine(tuple(logs))
    asked: list[str] = []

    def keys(source: str, first: int, last: int) -> Touched:
        asked.append(source)
        return touched_of(logs, source, first, last)

    machine.handle(_closing(logs))
    sent = dict.fromkeys(logs, 0)
    numbers: Numbers = {}
    while any(sent[s] < len(logs[s]) for s in logs):
        blocks = {}
        for source, log in logs.items():
            size = data.draw(st.integers(0, 4))
            blocks[source] = (sent[source] + 1, min(sent[source] + size, len(log)))
            sent[source] = blocks[source][1]
        tagged = tuple(
            PartOfGlobal(source, ordinal, str(logs[source][ordinal - 1][1]), parts)
            for source, (first, last) in blocks.items()
            for ordinal in range(first, last + 1)
            if logs[source][ordinal - 1][1] is not None
        )
        result = machine.handle(Completed(0, blocks, tagged, keys=keys))
        collect(numbers, result.assignments)
        if data.draw(st.booleans()):
            saved = as_json(machine.snapshot())
            machine = IntegratorMachine(tuple(logs))
            machine.restore(saved)
    check_order(logs, numbers)


def _closing(logs: dict[str, Any]) -> Completed:
    from streaming.integrator.integrator_machine import Closed

    return Completed(0, closed=tuple(Closed(source) for source in logs))
