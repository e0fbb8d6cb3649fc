# ruff: noqa: E501, the table below has a test in each line
"""Whose trouble each error of a step is (DESIGN 11): one view's trouble is one view's trouble.

`TROUBLE` says it of every code that the modules of the steps name, with the test that makes it happen,
or, where everything ends, why nobody could go on. An error that is added without an entry fails here.
What no code names is made to happen below, in the stepped pipeline: the service goes on, and the other
views are right.
"""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import duckdb
import pyarrow as pa
import pytest
from test_rows_that_conflict import back, proved_but_for_gaps, told
from test_view_changes import rows

from streaming.errors import FrescoError, ProtocolError
from streaming.messages import ActionList, Rows, decode
from streaming.packed_rows import pack, unpack
from streaming.viewmanagers.modes import MODES
from streaming.viewmanagers.replica import ReplicaManager
from streaming.warehouse import group_writer
from streaming.warehouse.snapshot import suspended_views
from tests.changingviews import NAME, VIEWS, Driver, Shop
from tests.importgraph import ROOT, imported, reached

Whose = Literal["record", "view", "source", "pipeline"]
"""`record`: it is kept as a bad record, of which a person decides; the views that read it stop before it.
`view`: that view is suspended, or its request ends. `source`: what needs the source waits, and says so.
`pipeline`: the service ends, or all of it waits."""

TROUBLE: dict[Whose, dict[str, str]] = {
    "record": {
        "unit/test_debezium_events.py::test_a_bad_event_is_named_and_nothing_else_is_lost": (
            "SOURCE_FIELD_MISSING SOURCE_FLATTENED SOURCE_NOT_AN_EVENT SOURCE_NOT_JSON "
            "SOURCE_NOT_UTF8 SOURCE_RELATION_UNKNOWN SOURCE_TRANSACTION_BAD"
        ),
        "unit/test_view_recovery.py::test_of_many_bad_records_of_a_step_one_stands_for_the_rest": "SOURCE_MANY_BAD",
        "unit/test_debezium_events.py::test_a_bad_notification_is_named_where_it_is_read": "SOURCE_NOTIFICATION_BAD",
        "unit/test_snapshots_again.py::"
        "test_a_snapshot_that_nobody_can_tell_stops_the_views_of_its_relation_and_no_others": "SOURCE_SNAPSHOT_REPEATED",
        "unit/test_changed_columns.py::"
        "test_oddity_17_a_retyped_column_stops_the_views_that_read_it": "SOURCE_VALUE_UNFIT",
        "service/test_snapshots_untrue.py::"
        "test_what_a_later_snapshot_tells_as_something_else_suspends_who_reads_it": (
            "SOURCE_OLD_DATES SOURCE_OLD_DATES_UNKNOWN"
        ),
    },
    "view": {
        "unit/test_whose_trouble.py::test_what_a_view_s_stage_raises_is_that_view_s": (
            "PROTOCOL_FIFO_ADAPTER PROTOCOL_MEDIATOR PROTOCOL_QUERY_PROCESSOR "
            "PROTOCOL_VIEW_MANAGER VIEW_FAILED"
        ),
        "unit/test_whose_trouble.py::test_a_list_that_the_merge_cannot_use": "PROTOCOL_MERGE ROWS_DAMAGED WAREHOUSE_SCHEMA",
        "unit/test_rows_refused.py::test_a_view_that_asks_its_source_is_suspended_and_ends": "VIEW_KEY_TAKEN WAREHOUSE_KEY",
        "unit/test_changed_columns.py::test_oddity_17_a_retyped_column_stops_the_views_that_read_it": "VIEW_VALUE_UNFIT",
        "service/test_source_trouble.py::test_a_relation_that_is_not_captured_is_not_asked_for": "SOURCE_TABLE_UNKNOWN",
        "service/test_isolated.py::test_triggers_dropped_switched_off_and_put_back": "SOURCE_TRIGGER_GAP SOURCE_TRIGGER_MISSING",
        "unit/test_whose_trouble.py::test_a_view_whose_saved_state_cannot_be_read": "STATE_CHECKPOINT",
        "unit/test_retention_loop.py::test_a_view_whose_updates_are_gone_refuses_to_start": "STATE_UPDATES_DROPPED",
        "unit/test_bag.py::test_division_by_zero_is_an_error_but_not_in_a_branch_not_taken": "VALUE_DIVISION_BY_ZERO",
        "unit/test_sql.py::test_a_letter_whose_other_case_is_uncertain_is_an_error": "VALUE_LETTERCASE",
        "unit/test_bag.py::test_a_sum_that_its_type_cannot_hold_is_an_error": "VALUE_OVERFLOW",
        "service/test_isolated_service.py::test_without_capture_there_is_no_kafka": "VIEW_ARITHMETIC",
        "unit/test_fixed_groups.py::test_a_group_of_blocks_or_of_sessions_keeps_its_views": "VIEW_CHANGE_ISOLATED",
        "unit/test_view_commands.py::test_a_request_is_told_until_it_is_made": "VIEW_CHANGE_PENDING",
        "unit/test_view_requests.py::"
        "test_a_request_that_has_become_impossible_is_told_so_and_ends": "VIEW_CHANGE_REFUSED",
        "unit/test_view_recovery.py::"
        "test_where_rel_rides_on_the_lists_a_suspended_view_stays_so_and_the_others_go_on": "VIEW_CHANGE_ROUTING",
        "service/test_bad_input.py::"
        "test_oddity_17_a_column_dropped_at_the_database_stops_only_the_views_that_read_it": "VIEW_COLUMN_CHANGED",
        "service/test_source_load.py::test_the_sources_rows_are_brought_to_a_number_exactly": "VIEW_INITIAL_ROWS",
        "service/test_bad_input.py::"
        "test_an_undecodable_record_suspends_the_views_over_its_relation_only": "VIEW_INPUT_DAMAGED",
        "unit/test_mediator.py::test_a_parent_that_is_asked_must_not_have_a_source_s_name": "VIEW_NAMED_LIKE_SOURCE",
        "unit/test_asking_protocol.py::test_what_is_not_select_project_join_is_refused": "VIEW_NOT_PSJ",
        "unit/test_mediator_units.py::"
        "test_a_view_is_suspended_where_its_parent_is_once_its_lists_are_sent": "VIEW_PARENT_SUSPENDED",
        "unit/test_first_rows.py::test_a_relation_that_is_gone_is_named_with_what_to_do": "VIEW_RELATION_UNCAPTURED",
        "service/test_bad_input.py::test_a_retraction_without_its_row_suspends_the_view_only": "VIEW_RETRACTION_MISSING",
        "unit/test_view_changes.py::test_a_view_that_fails_as_it_joins_leaves_again_unseen": "VIEW_SUSPENDED",
        "service/test_isolated.py::"
        "test_rows_that_the_table_cannot_take_suspend_their_view_alone_until_it_is_computed_anew": "WAREHOUSE_NEGATIVE",
        "unit/test_whose_trouble.py::test_rows_that_cannot_be_planned_for_a_reason_without_a_code": "WAREHOUSE_ROWS",
        "unit/test_warehouse_identity.py::test_a_type_without_canonical_form_is_refused_by_name": "WAREHOUSE_TYPE",
    },
    "source": {
        "service/test_mariadb_trouble.py::"
        "test_what_is_wrong_with_a_source_has_a_code_and_no_password": (
            "SOURCE_BEHIND SOURCE_CREDENTIALS SOURCE_QUERY_TIMEOUT SOURCE_TABLE_MISSING "
            "SOURCE_UNREACHABLE"
        ),
        "unit/test_connection_strings.py::test_an_unreadable_connection_string_is_not_repeated": "SOURCE_CONNECTION",
        "unit/test_incomplete.py::test_each_transaction_is_told_of_once": "SOURCE_GLOBAL_INCOMPLETE SOURCE_SNAPSHOT_OPEN SOURCE_TRANSACTION_INCOMPLETE",
        "unit/test_mysql_capture.py::test_places_are_ordered_over_files_and_need_a_number": "SOURCE_LOG_NAME",
        "service/test_mariadb_trouble.py::"
        "test_a_user_who_lacks_a_right_is_told_which_and_not_waited_for": "SOURCE_QUERY_REFUSED",
        "service/test_source_trouble.py::"
        "test_a_standby_is_refused_and_answers_once_it_is_the_primary": "SOURCE_STANDBY",
        "service/test_isolated.py::test_a_table_whose_writers_do_not_end_is_left_alone": "SOURCE_TABLE_LOCKED",
        "unit/test_stalls.py::test_rows_of_which_no_end_comes": "SOURCE_TRANSACTION_OPEN",
    },
    "pipeline": {
        "the integrator is in contradiction with itself": "PROTOCOL_INTEGRATOR",
        "the sessions of a group are in contradiction with themselves": "PROTOCOL_ISOLATED",
        "only with on_span: halt, by which the user asks for it": "GROUP_SPAN",
        "what all stages still need of a topic is gone": "KAFKA_EXPIRED",
        "something else writes to the pipeline's own topics": "KAFKA_MESSAGE_DAMAGED",
        "the order of a source's transactions is lost, and with it every later number": "KAFKA_PARTITIONS",
        "a message of the pipeline's own topics is gone": "KAFKA_SEQUENCE_GAP",
        "no stage can go on without the broker: each is tried again and waits": "KAFKA_UNREACHABLE",
        "another start holds the pipeline": "SERVICE_FENCED WAREHOUSE_FENCED",
        "no query runs without it": "SERVICE_JVM_ENDED",
        "the log is not the one that was numbered: later numbers would build on it": "SOURCE_POSITIONS_BACK",
        "a stage's chain of manifests says what is committed; nothing can be written past it": "STATE_DAMAGED STATE_NEWER",
        "another writer works at the group's table": "WAREHOUSE_CONFLICT",
        "the merge's state is not that of this table": "WAREHOUSE_EPOCH",
        "a view's stage that fails too often suspends its view; no other can be done without": "STAGE_FAILED",
    },
}
"""Whose trouble -> test or reason -> codes."""
SEEN_BY_STATUS = {
    "STAGE_RESTARTS",
}
"""Codes that only tell people how it stands."""
BEFORE = set(
    """
    KAFKA_COMPACTED KAFKA_RETENTION KAFKA_TOPICS_USED KAFKA_TOPIC_MISSING MERGE_ALGORITHM
    MERGE_BATCHING MERGE_SNAPSHOT READ_ABOVE_FRONTIER READ_CATALOG READ_CHANGELOG
    READ_EPOCH_EXPIRED READ_NOT_RECORDED READ_NO_EPOCH READ_NO_WAREHOUSE
    READ_VIEW_NOT_THERE
    SOURCE_ANOTHER_SERVER SOURCE_GLOBAL_TABLE SOURCE_NO_COLUMNS SOURCE_NO_SCHEMA
    SOURCE_REPLICA_IDENTITY SOURCE_SCHEMA_PART SOURCE_TABLE_KIND SOURCE_TABLE_UNFIT
    SOURCE_PLACEHOLDER_KNOWN SOURCE_RECORD_SHAPE SOURCE_TIMELINE SOURCE_TOPIC_CLASH VIEW_ANOMALIES VIEW_COLUMN_NAME VIEW_CYCLE VIEW_DUPLICATE
    VIEW_KEY_MISSING VIEW_LEVEL_MODE VIEW_LEVEL_UNKNOWN VIEW_MODE_SOURCES VIEW_MODE_UNKNOWN
    VIEW_NAME VIEW_NONE VIEW_PARENT VIEW_PARENT_LEVEL VIEW_REFRESH VIEW_SELF_JOIN
    VIEW_SOURCE_UNASKABLE VIEW_SOURCE_UNCAPTURED VIEW_SYNTAX
    """.split()  # noqa: SIM905
)
"""Codes of what is read and checked before any stage runs, of a person's command, or of a reader."""

STEPS = (
    *(
        "stages.integrator_stage",
        "stages.view_stage",
        "stages.block_stage",
        "stages.overview_stage",
    ),
    *(
        "stages.asking_stage",
        "stages.returning_stage",
        "stages.joining_stage",
        "stages.broken_stage",
    ),
    *("stages.rel_riding", "stages.merge_stage", "isolated.isolated_stage", "service.stage_set"),
)
CHECKS = (
    "streaming.ask.mariadb.mysql_check",
    "streaming.ask.postgres.published",
    "streaming.cdc.connector_settings",
)
"""Modules of nothing but what a start looks at."""
AREAS = "SOURCE VIEW WAREHOUSE KAFKA STATE ROWS SERVICE MERGE VALUE READ GROUP STAGE PROTOCOL"
"""What codes of steps begin with; other areas are of what is checked before: SQL, CONFIG, MODE and so on."""
CODE = re.compile(f"({AREAS.replace(' ', '|')})(_[A-Z0-9]+)+")


def modules_of_steps() -> Iterator[tuple[str, ast.Module]]:
    """Every module that a stage's module imports, directly or through others."""
    waiting, seen = [f"streaming.{name}" for name in STEPS], set[str]()
    waiting += [info.manager.partition(":")[0] for info in MODES.values()]  # made by their names
    while waiting:
        name = waiting.pop()
        path = ROOT / name.replace(".", "/")
        file = (
            path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
        )
        left_out = name in seen or name in CHECKS or not name.startswith("streaming")
        if left_out or not file.is_file():
            continue
        seen.add(name)
        tree = ast.parse(file.read_text())
        yield name, tree
        package = tuple(name.split(".")[: len(name.split(".")) - (file.stem != "__init__")])
        waiting += [module for _, module in imported(package, tree)]


def codes_of_steps() -> dict[str, str]:
    """Code -> a module that names it."""
    found: dict[str, str] = {}
    for name, tree in modules_of_steps():
        for node in reached(tree):
            match node:
                case ast.Constant(value=str(text)) if CODE.fullmatch(text):
                    found[text] = name
                case ast.Call(
                    func=ast.Name(id="ProtocolError"), args=[ast.Constant(value=who), *_]
                ):
                    found[f"PROTOCOL_{str(who).upper()}"] = name
    return found


def test_every_error_of_a_step_is_somebody_s_trouble() -> None:
    named = codes_of_steps()
    codes = [c for found in TROUBLE.values() for text in found.values() for c in text.split()]
    codes += [*BEFORE, *SEEN_BY_STATUS]
    assert len(set(codes)) == len(codes), "each is one's"
    assert sorted(named.keys() - set(codes)) == [], "say whose trouble it is"
    assert sorted(set(codes) - named.keys()) == [], "no step names it any more"


def test_each_is_made_to_happen() -> None:
    for whose, found in TROUBLE.items():
        for how in found:
            place, _, name = how.partition("::")
            if whose == "pipeline":
                assert not name and " " in how, f"{how}: why can nobody go on?"
                continue
            tree = ast.parse((ROOT / "tests" / place).read_text())
            tests = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
            assert name in tests, how


# What no code names -------------------------------------------------------------------------------


def begun(folder: Path, **how: Any) -> tuple[Shop, Driver]:
    shop = Shop(folder, **how)
    shop.put(1, 1, 10)
    shop.put(2, 1, 20)
    driver = Driver(shop)
    driver.round()
    driver.round()
    assert rows(shop, "entries") == [(1, 1, 10), (2, 1, 20)]
    return shop, driver


def goes_on(shop: Shop, driver: Driver, code: str, after: int = 2) -> None:
    """`entries` is suspended with that code, and every other view shows what comes."""
    driver.recovers = False
    for _ in range(3):
        driver.round()
    assert suspended_views(shop.warehouse, NAME) == {"entries": after}
    assert told(shop, "entries")["code"] == code
    assert rows(shop, "entries") == [(1, 1, 10), (2, 1, 20)]
    shop.put(6, 6, 60)
    driver.round()
    driver.round()
    totals: dict[int, tuple[int, int]] = {}
    for account, amount in shop.rows.values():
        total, count = totals.get(account, (0, 0))
        totals[account] = (total + amount, count + 1)
    assert rows(shop, "totals") == [(a, *found) for a, found in sorted(totals.items())]
    driver.recovers = True


def comes_back(shop: Shop, driver: Driver) -> None:
    back(driver, "entries")
    shop.put(7, 7, 70)
    driver.round()
    driver.round()
    assert rows(shop, "entries") == [(id_, *values) for id_, values in sorted(shop.rows.items())]
    driver.close()
    proved_but_for_gaps(shop)


def deep(raised: Exception, code: str) -> Any:
    """A kind that differs from another by its class alone."""
    return pytest.param(raised, code, marks=pytest.mark.deep)


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (pa.ArrowInvalid("offset overflow while concatenating arrays"), "VIEW_FAILED"),
        deep(
            pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes"), "VIEW_FAILED"
        ),
        (duckdb.InternalException("INTERNAL Error: Attempted to access index 5"), "VIEW_FAILED"),
        deep(duckdb.ConversionException("Could not cast"), "VIEW_FAILED"),
        deep(OverflowError("too large"), "VIEW_FAILED"),
        deep(KeyError("c7"), "VIEW_FAILED"),
        (RecursionError("maximum recursion depth exceeded"), "VIEW_FAILED"),
        (FrescoError("ROWS_DAMAGED", "a file is gone"), "ROWS_DAMAGED"),
        (ProtocolError("view_manager", "updates", "a rule"), "PROTOCOL_VIEW_MANAGER"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_a_view_s_stage_raises_is_that_view_s(
    raised: Exception, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, driver = begun(tmp_path)
    handle = ReplicaManager.handle_all

    def fails(manager: ReplicaManager, messages: Any) -> Any:
        if manager.spec.view == "entries":
            raise raised
        return handle(manager, messages)

    with monkeypatch.context() as patch:
        patch.setattr(ReplicaManager, "handle_all", fails)
        shop.put(3, 2, 30)
        goes_on(shop, driver, code)
    comes_back(shop, driver)


@pytest.mark.parametrize("raised", [OSError(28, "No space left on device"), MemoryError()])
def test_what_its_surroundings_do_to_a_stage_is_tried_again(
    raised: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, driver = begun(tmp_path)
    shop.put(3, 2, 30)
    with monkeypatch.context() as patch:

        def fails(manager: ReplicaManager, messages: Any) -> Any:
            raise raised

        patch.setattr(ReplicaManager, "handle_all", fails)
        with pytest.raises(type(raised)):
            driver.round()
    driver.round()
    driver.round()
    assert suspended_views(shop.warehouse, NAME) == {}
    assert rows(shop, "entries") == [(1, 1, 10), (2, 1, 20), (3, 2, 30)]
    driver.close()


def test_a_view_whose_saved_state_cannot_be_read(tmp_path: Path) -> None:
    """Of a view that keeps rows, unlike a selection."""
    kept = "SELECT a.id, b.account, a.amount FROM north.entry a JOIN north.entry b ON a.id = b.id"
    shop, driver = begun(tmp_path, checkpoint_batches=1, views={**VIEWS, "entries": kept})
    driver.close()
    files = list((shop.warehouse / "_state" / "view-entries" / "checkpoints").iterdir())
    assert files
    for file in files:
        file.write_bytes(b"not what was written")
    shop.put(3, 2, 30)
    driver = Driver(shop)
    (stage,) = (one for one in driver.stages.views if one.spec.view == "entries")
    assert stage.suspended is not None and stage.suspended["code"] == "STATE_CHECKPOINT"
    driver.round()
    assert suspended_views(shop.warehouse, NAME) == {"entries": 2}
    assert rows(shop, "totals") == [(1, 30, 2), (2, 30, 1)]
    comes_back(shop, driver)


def tampered(shop: Shop, change: Callable[[ActionList], ActionList], above: int = 2) -> int:
    """The lists of `entries` that the merge has not read, as a broken manager would have sent them."""
    changed = 0
    for record in shop.records[f"{NAME}.actions.{NAME}"]:
        names = {one["key"]: one["value"].decode() for one in record["headers"]}
        message = decode(record["value"])
        if names["producer"] != "view:entries" or not isinstance(message, ActionList):
            continue
        if message.first > 2 and message.delta is not None:
            record["value"] = change(message).model_dump_json().encode()
            changed += 1
    return changed


def other_rows(actions: ActionList, change: Callable[[pa.Table], pa.Table]) -> ActionList:
    assert actions.delta is not None
    table = change(unpack(actions.delta, Path()))
    return actions.model_copy(update={"delta": pack(table, lambda _: pytest.fail("large"))})


def spoilt(actions: ActionList) -> ActionList:
    assert actions.delta is not None
    return actions.model_copy(update={"delta": Rows(rows=actions.delta.rows, ipc="AAAA")})


BROKEN: dict[str, tuple[str, Callable[[ActionList], ActionList]]] = {
    "a list that skips numbers": (
        "PROTOCOL_MERGE",
        lambda one: one.model_copy(update={"first": 1, "last": 1}),
    ),
    "rows that are no rows": ("ROWS_DAMAGED", spoilt),
    "a column that is missing": (
        "WAREHOUSE_SCHEMA",
        lambda one: other_rows(one, lambda table: table.drop_columns(["c2"])),
    ),
    "rows without numbers": (
        "VIEW_FAILED",
        lambda one: other_rows(one, lambda table: table.drop_columns(["_number"])),
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_list_that_the_merge_cannot_use(what: str, tmp_path: Path) -> None:
    code, change = BROKEN[what]
    shop, driver = begun(tmp_path)
    shop.put(3, 2, 30)
    shop.put(4, 2, 40)
    driver.step("integrator")
    for name in driver.views():
        driver.step(name)
    assert tampered(shop, change)
    driver.step(f"merge:{NAME}")
    goes_on(shop, driver, code)
    comes_back(shop, driver)


def test_rows_that_cannot_be_planned_for_a_reason_without_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, driver = begun(tmp_path)
    plan = group_writer.plan_change

    def fails(place: Any, view: Any, *rest: Any) -> Any:
        if view.name == "entries":
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return plan(place, view, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(group_writer, "plan_change", fails)
        shop.put(3, 2, 30)
        goes_on(shop, driver, "WAREHOUSE_ROWS")
    comes_back(shop, driver)


# Whatever stands in a record ----------------------------------------------------------------------

ODD: list[Any] = [
    *(None, {}, [], "x", "", 1e308, 10**30, -1, True, "\ud800", 2**63, 0.1, [[[]]], "1" * 60, "-"),
    *("AQ==", "====", "NaN", "Infinity", "99999-01-01T00:00:00Z", "0" * 5000),
    *({"scale": 10**9, "value": "AQ=="}, {"scale": -5, "value": "////"}, {"value": None}),
]
WHOLE = ["null", "[]", "1", '"x"', "{}", "[" * 3000 + "]" * 3000, '{"payload": 1}', "\x00"]


def odd_event(chance: random.Random, text: str) -> str:
    """A record with something odd in it, anywhere."""
    if chance.random() < 0.1:
        return chance.choice(WHOLE)
    event = json.loads(text)
    node = event
    while True:
        key = chance.choice(list(node))
        if isinstance(node[key], dict) and node[key] and chance.random() < 0.8:
            node = node[key]
            continue
        node[key] = chance.choice(ODD)
        return json.dumps(event)


@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.deep) for n in range(2, 30))]
)
def test_no_record_of_any_topic_ends_a_step(seed: int, tmp_path: Path) -> None:
    chance, shop = random.Random(seed), Shop(tmp_path)
    driver = Driver(shop)
    for number in range(60):
        row = {"id": number, "account": chance.choice(ODD), "amount": chance.choice(ODD)}
        records = shop.log.commit([("entry", "c", None, row)])
        at = chance.randrange(len(records))
        topic, text = records[at]
        assert text is not None
        if chance.random() < 0.7:
            records[at] = (topic, odd_event(chance, text))
        shop.publish(records)
        if number % 10 == 9:
            driver.round()  # raises where a step does; the seed is in the test's name
    driver.close()


@pytest.mark.parametrize("seed", range(2))
def test_odd_values_stop_the_views_that_read_them_and_no_others(seed: int, tmp_path: Path) -> None:
    views = {**VIEWS, "words": "SELECT id, words FROM north.other"}
    chance, shop = random.Random(seed), Shop(tmp_path, views=views)
    driver = Driver(shop)
    for number in range(30):
        row = {"id": chance.choice([number, *ODD]), "account": 1, "amount": chance.choice(ODD)}
        shop.publish(shop.log.commit([("entry", "c", None, row)]))
        shop.other(number, f"w{number}")
        if number % 10 == 9:
            driver.round()
    driver.round()
    assert "words" not in suspended_views(shop.warehouse, NAME), seed
    assert rows(shop, "words") == sorted((n, f"w{n}") for n in range(30)), seed
    driver.close()
