"""Global transactions from the tags in captured rows to one number, through the whole intake."""

from __future__ import annotations

from streaming.captured.captured_schema import CapturedRelation, CapturedSource, captured
from streaming.cdc.intake import Intake, IntakeResult
from streaming.durable import as_json
from streaming.integrator.integrator_machine import TIMEOUT_MS
from tests.engines import ENGINE
from tests.intakeworld import BaseView, net
from tests.sourcelog import Record, SourceLog, Topics


def relations() -> list[CapturedRelation]:
    tables = {
        "account": [("id", "int4"), ("v", "text")],
        "entry": [("id", "int4"), ("v", "text")],
        "fresco_global": [("id", "text"), ("parts", "int4")],
    }
    keys = {"account": ["id"], "entry": [], "fresco_global": ["id"]}
    return [
        captured(f"{source}.{table}", f"{source}.public.{table}", columns, key=keys[table])
        for source in ("north", "south")
        for table, columns in tables.items()
    ]


def make(snapshot: bool = False, apart: bool = False) -> Intake:
    sources = [CapturedSource(name, name, snapshot=snapshot) for name in ("north", "south")]
    views = [BaseView(relation) for relation in relations()]
    groups = {"main": [v.name for v in views]}
    return Intake(relations(), views, groups, sources=sources, apart=apart, engine=ENGINE)


def move(
    log: SourceLog, account: int, old: str, new: str, tag: str | None = None, of: int = 2
) -> list[Record]:
    before, after = {"id": account, "v": old}, {"id": account, "v": new}
    changes: list = [("account", "u", before, after)]
    if tag is not None:
        changes.append(("fresco_global", "c", None, {"id": tag, "parts": of}))
    return log.commit(changes)


def numbers(*results: IntakeResult) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"north": [], "south": []}
    for result in results:
        for row in result.transactions.sort_by("position").to_pylist():
            found[row["source"]].append(row["number"])
    return found


def test_oddity_18_a_transfer_between_two_databases_has_one_number() -> None:
    north, south, topics, intake = SourceLog("north"), SourceLog("south"), Topics(), make()
    first = intake.step(
        topics.batch([*move(north, 1, "a", "b", "g"), *move(north, 2, "a", "b")]), 0
    )
    assert first.last == 0 and first.overdue == ("g",) and first.held == 2
    second = intake.step(topics.batch(move(south, 1, "a", "b", "g")), 0)
    assert numbers(second) == {"north": [1, 2], "south": [1]}


def crossing(common: bool) -> IntakeResult:
    """g1 before g2 in the north, g2 before g1 in the south; on one account in each, or on two."""
    north, south, intake = SourceLog("north"), SourceLog("south"), make()
    other = 1 if common else 2
    records = [
        *move(north, 1, "a", "b", "g1"),
        *move(north, other, "b", "c", "g2"),
        *move(south, 1, "a", "b", "g2"),
        *move(south, other, "b", "c", "g1"),
    ]
    return intake.step(Topics().batch(records), 0)


def test_global_transactions_that_cross_are_ordered_by_the_keys_they_touch() -> None:
    found = numbers(crossing(common=False))
    assert found["north"] == found["south"][::-1] and len(set(found["north"])) == 2
    together = crossing(common=True)
    assert numbers(together) == {"north": [1, 1], "south": [1, 1]}
    assert together.largest_unit == 4


def test_a_truncate_conflicts_with_every_key_of_its_relation() -> None:
    north, south, intake = SourceLog("north"), SourceLog("south"), make()
    cut: list = [("entry", "t", None, None), ("fresco_global", "c", None, {"id": "g2", "parts": 2})]
    added: list = [
        ("entry", "c", None, {"id": 1, "v": "x"}),
        ("fresco_global", "c", None, {"id": "g1", "parts": 2}),
    ]
    records = [
        *north.commit(added),
        *north.commit(cut),
        *move(south, 1, "a", "b", "g2"),
        *move(south, 2, "a", "b", "g1"),
    ]
    found = numbers(intake.step(Topics().batch(records), 0))
    assert found["north"][0] < found["north"][1]


def test_a_part_in_one_snapshot_brings_the_other_and_what_it_builds_on_into_number_0() -> None:
    north, south, topics, intake = SourceLog("north"), SourceLog("south"), Topics(), make(True)
    tag = north.row("fresco_global", "r", None, {"id": "g", "parts": 2})
    tables = {"account": 0, "entry": 0}
    snapshots = [
        tag,
        *north.scanned({**tables, "fresco_global": 1}),
        *south.scanned({**tables, "fresco_global": 0}),
    ]
    early = [*move(south, 1, "a", "b"), *move(south, 2, "a", "b")]
    waiting = intake.step(topics.batch([*snapshots, *early]), 0)
    assert waiting.last == -1 and waiting.overdue == ("g",)
    result = intake.step(topics.batch(move(south, 1, "b", "c", "g")), 0)
    assert numbers(result)["south"] == [0, 1, 0]
    left = {row: n for row, n in net(result)[(0, "south.account")].items() if n}
    assert left == {(1, "a"): -1, (1, "c"): 1}


# Numbered apart -----------------------------------------------------------------------------------


def parts(result: IntakeResult) -> list[tuple[int, str, int]]:
    return [(part.number, part.id, part.parts) for part in result.parts]


def test_parts_that_are_numbered_apart_wait_for_nobody_and_are_announced() -> None:
    north, south, topics, intake = (
        SourceLog("north"),
        SourceLog("south"),
        Topics(),
        make(apart=True),
    )
    first = intake.step(
        topics.batch([*move(north, 1, "a", "b", "g"), *move(north, 2, "a", "b")]), 0
    )
    assert numbers(first)["north"] == [1, 2] and first.overdue == ("g",)
    assert parts(first) == [(1, "g", 2)] and first.split
    saved = as_json(intake.snapshot())
    intake = make(apart=True)
    intake.restore(saved)
    second = intake.step(topics.batch(move(south, 1, "a", "b", "g")), 0)
    assert numbers(second)["south"] == [3] and parts(second) == [(3, "g", 2)]
    assert second.overdue == () and not second.split


def test_a_part_that_is_numbered_apart_is_work_for_every_view_of_the_group() -> None:
    """Each G-Strobe waits for all parts, so all views of a group pass the transaction at once."""
    north, topics, intake = SourceLog("north"), Topics(), make(apart=True)
    records = [*move(north, 1, "a", "b", "g"), *move(north, 2, "a", "b")]
    _, part, local = intake.step(topics.batch(records), 0).runs["main"]
    assert (part.first, part.last) == (1, 1) and (local.first, local.last) == (2, 2)
    assert part.views == tuple(sorted(BaseView(relation).name for relation in relations()))
    assert part.idle == ()
    assert local.views == (BaseView(relations()[0]).name,)


def test_a_part_keeps_its_tag_until_it_has_a_number_and_a_part_in_a_snapshot_needs_none() -> None:
    north, south, topics = SourceLog("north"), SourceLog("south"), Topics()
    intake = make(snapshot=True, apart=True)
    tag = north.row("fresco_global", "r", None, {"id": "g", "parts": 3})
    tables = {"account": 0, "entry": 0}
    waiting = intake.step(
        topics.batch(
            [
                tag,
                *north.scanned({**tables, "fresco_global": 1}),
                *move(north, 1, "a", "b", "g", 3),
                *move(north, 2, "a", "b", "h"),
            ]
        ),
        0,
    )
    assert waiting.last == -1 and parts(waiting) == [], "the south's snapshot is open"
    saved = as_json(intake.snapshot())
    intake = make(snapshot=True, apart=True)
    intake.restore(saved)
    result = intake.step(
        topics.batch(
            [*south.scanned({**tables, "fresco_global": 0}), *move(south, 1, "a", "b", "g", 3)]
        ),
        0,
    )
    assert numbers(result) == {"north": [1, 2], "south": [3]}
    assert parts(result) == [(1, "g", 2), (2, "h", 2), (3, "g", 2)], (
        "one of g's three is in number 0"
    )


def test_a_part_in_a_snapshot_that_closes_after_another_part_has_come_is_not_waited_for() -> None:
    """Announced as late it would be one part of two, and G-Strobe would wait for the other for ever."""
    north, south, topics = SourceLog("north"), SourceLog("south"), Topics()
    intake = make(snapshot=True, apart=True)
    tables = {"account": 0, "entry": 0}
    own = [*move(north, 1, "a", "b", "g"), *move(north, 2, "a", "b", "h", 3)]
    intake.step(topics.batch([*north.scanned({**tables, "fresco_global": 0}), *own]), 0)
    tags = [("f", 1), ("g", 2), ("h", 3)]
    rows = [
        south.row("fresco_global", "r", None, {"id": id_, "parts": every}) for id_, every in tags
    ]
    result = intake.step(topics.batch([*rows, *south.scanned({**tables, "fresco_global": 3})]), 0)
    assert numbers(result)["north"] == [1, 2] and parts(result) == [(2, "h", 2)]
    assert intake.snapshot()["apart"]["seen"] == {"g": 1, "h": 1}
    late = intake.step(topics.batch([]), TIMEOUT_MS)
    assert parts(late) == [(3, "h", 2)] and late.released == ("h",)


def test_a_global_transaction_whose_parts_are_all_in_snapshots_is_not_remembered() -> None:
    north, south, topics = SourceLog("north"), SourceLog("south"), Topics()
    intake = make(snapshot=True, apart=True)
    for log in (north, south):
        tag = log.row("fresco_global", "r", None, {"id": "g", "parts": 2})
        notes = log.scanned({"account": 0, "entry": 0, "fresco_global": 1})
        intake.step(topics.batch([tag, *notes]), 0)
    assert intake.snapshot()["apart"]["seen"] == {}


def test_parts_apart_whose_tags_disagree_are_as_many_as_the_first_says() -> None:
    """Told two counts of one transaction, a view manager would refuse to go on."""
    north, south, topics, intake = (
        SourceLog("north"),
        SourceLog("south"),
        Topics(),
        make(apart=True),
    )
    first = intake.step(topics.batch(move(north, 1, "a", "b", "g")), 0)
    second = intake.step(topics.batch(move(south, 1, "a", "b", "g", 3)), 0)
    assert (*parts(first), *parts(second)) == ((1, "g", 2), (2, "g", 2))
    assert intake.snapshot()["apart"]["open"] == {}


def test_a_part_apart_that_comes_with_the_first_batch_after_a_long_pause_is_not_late() -> None:
    north, south, topics, intake = (
        SourceLog("north"),
        SourceLog("south"),
        Topics(),
        make(apart=True),
    )
    intake.step(topics.batch(move(north, 1, "a", "b", "g")), 0)
    result = intake.step(topics.batch(move(south, 1, "a", "b", "g")), 2 * TIMEOUT_MS)
    assert parts(result) == [(2, "g", 2)] and result.released == ()


def test_a_part_apart_that_does_not_come_in_time_is_announced_and_local_when_it_comes() -> None:
    north, south, topics = SourceLog("north"), SourceLog("south"), Topics()
    intake = make(apart=True)
    first = intake.step(topics.batch(move(north, 1, "a", "b", "g", 3)), 1_000)
    assert parts(first) == [(1, "g", 3)]
    assert intake.step(topics.batch([]), 1_000 + TIMEOUT_MS - 1).parts == ()
    saved = as_json(intake.snapshot())
    intake = make(apart=True)
    intake.restore(saved)
    late = intake.step(topics.batch(move(north, 2, "a", "b")), 1_000 + TIMEOUT_MS)
    assert parts(late) == [(2, "g", 3), (3, "g", 3)] and late.released == ("g",)
    assert (late.first, late.last) == (2, 4) and numbers(late)["north"] == [4]
    every = tuple(sorted(BaseView(relation).name for relation in relations()))
    assert [(run.first, run.last) for run in late.runs["main"] if run.views == every] == [(2, 3)]
    came = intake.step(topics.batch(move(south, 1, "a", "b", "g", 3)), 1_000 + 2 * TIMEOUT_MS)
    assert numbers(came)["south"] == [5] and came.parts == () and came.released == ()
    assert intake.step(topics.batch([]), 1_000 + 9 * TIMEOUT_MS).released == ()
