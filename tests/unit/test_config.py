"""The configuration: checked whole, explained in the reader's words, silent about secrets."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from streaming.configuration.pipeline_config import Config, load_config, parse_config
from streaming.errors import FrescoError
from streaming.pipeline.plan import plan_pipeline

ROOT = Path(__file__).parents[2]
SECRET = "postgresql://reader:hunter2@db.example/north"

SMALLEST = """
pipeline: bank
warehouse: lake
views: views
sources:
  north:
    tables:
      entry: public.entry
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Writes a configuration file and returns its path."""

    def write(text: str) -> Path:
        file = tmp_path / "pipeline.yaml"
        file.write_text(text)
        return file

    return write


def smallest(**more: Any) -> dict[str, Any]:
    source = {"tables": {"entry": "public.entry"}}
    base: dict[str, Any] = {"pipeline": "bank", "warehouse": "lake", "views": "views"}
    return base | {"sources": {"north": source}} | more


def with_source(**more: Any) -> dict[str, Any]:
    return smallest(sources={"north": {"tables": {"entry": "public.entry"}} | more})


def refused(raw: Any) -> FrescoError:
    with pytest.raises(FrescoError) as caught:
        parse_config(raw, folder=Path("/pipelines"), where="bank.yaml")
    return caught.value


def everything_said(error: BaseException) -> str:
    """The error with everything that a log with its traceback would show."""
    return "".join(traceback.format_exception(error))


# Files ------------------------------------------------------------------------------------------


def test_the_smallest_configuration_has_a_default_for_the_rest(write: Any) -> None:
    config = load_config(write(SMALLEST))
    assert (config.grouping, config.batching) == ("single", "greedy")
    assert config.kafka.bootstrap == "localhost:9092"
    assert config.metrics.port == 9464
    assert config.retention.updates_hours is None
    assert config.prefix("north") == "north"
    assert config.notifications("north") == "north.notifications"


def test_a_prefix_of_its_own_names_the_topics_of_a_source() -> None:
    config = parse_config(with_source(prefix="bank1"), folder=Path("/pipelines"))
    assert config.prefix("north") == "bank1"
    assert config.notifications("north") == "bank1.notifications"


def test_notifications_are_read_from_the_topic_that_the_configuration_names(tmp_path: Path) -> None:
    (tmp_path / "entries.sql").write_text(
        "CREATE MATERIALIZED VIEW entries AS SELECT id FROM north.entry"
    )
    raw = with_source(
        prefix="bank1",
        notifications="words.of.debezium",
        full_rows=True,
        columns={"entry": {"id": "bigint"}},
    )
    config = parse_config(raw | {"views": "."}, folder=tmp_path)
    (source,) = plan_pipeline(config).sources
    assert source.notification_topic == "words.of.debezium"
    wanted = {"bank1.public.entry", "bank1.transaction", "words.of.debezium"}
    assert plan_pipeline(config).source_topics == wanted


def test_the_bank_of_the_demo_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRESCO_NORTH", "postgresql://a@h/north")
    monkeypatch.setenv("FRESCO_SOUTH", "postgresql://a@h/south")
    for name in ("WAREHOUSE", "KAFKA", "METRICS_HOST", "METRICS_PORT"):
        monkeypatch.delenv(f"FRESCO_{name}", raising=False)
    config = load_config(ROOT / "conf" / "bank.yaml")
    assert sorted(config.sources) == ["north", "south"]
    assert config.sources["north"].secret() == "postgresql://a@h/north"
    assert config.sources["south"].tables["fresco_global"] == "public.fresco_global"
    assert config.views == ROOT / "conf" / "bank" / "views"
    assert config.warehouse.resolve() == ROOT / "warehouse"


@pytest.mark.parametrize("raw", [None, [], "bank", 7])
def test_a_file_that_is_no_mapping_is_refused(raw: object) -> None:
    assert refused(raw).code == "CONFIG_VALUE"


def test_relative_paths_start_at_the_file(write: Any, tmp_path: Path) -> None:
    config = load_config(write(SMALLEST))
    assert config.warehouse == tmp_path / "lake"
    assert config.views == tmp_path / "views"


def test_absolute_paths_stay() -> None:
    config = parse_config(smallest(warehouse="/data/lake"), folder=Path("/pipelines"))
    assert config.warehouse == Path("/data/lake")


# Keys -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "place", "key", "meant"),
    [
        (smallest(groupings="single"), "groupings", "groupings", "grouping"),
        (smallest(batching={"rows": 5, "age": 5}), "batching.age", "age", "age_ms"),
        (smallest(kafka={"bootstraps": "h:1"}), "kafka.bootstraps", "bootstraps", "bootstrap"),
        (with_source(conection="x"), "sources.north.conection", "conection", "connection"),
        (
            with_source(snapshots={"folder": "f", "settle_second": 1}),
            "sources.north.snapshots.settle_second",
            "settle_second",
            "settle_seconds",
        ),
        (smallest(metrics={"prot": 1}), "metrics.prot", "prot", "port"),
        (smallest(limits={"max_units": 1}), "limits.max_units", "max_units", "max_unit"),
        (smallest(retention={"updates": 1}), "retention.updates", "updates", "updates_hours"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(
    raw: dict[str, Any], place: str, key: str, meant: str
) -> None:
    error = refused(raw)
    assert error.code == "CONFIG_KEY"
    assert error.where == f"bank.yaml: {place}"
    assert f"'{key}'" in error.what
    assert error.todo == f"did you mean '{meant}'?"


def test_a_key_unlike_any_other_is_answered_with_all_that_are_valid() -> None:
    error = refused(smallest(metrics={"xyzzy": 1}))
    assert error.todo == "valid keys: host, port"


def test_a_misspelt_required_key_is_told_as_misspelt_not_as_missing() -> None:
    raw = smallest()
    raw["pipelin"] = raw.pop("pipeline")
    assert refused(raw).todo == "did you mean 'pipeline'?"
    assert refused({**smallest(), "sources": {"north": {"tabels": {}}}}).todo == (
        "did you mean 'tables'?"
    )


# Values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", "9lives", "a b", "a.b", "a/b", "a\n", "ä", "x" * 64, "_hidden"]
)
def test_a_bad_name_is_refused(name: str) -> None:
    assert refused(smallest(pipeline=name)).where == "bank.yaml: pipeline"
    assert refused(smallest(sources={name: {"tables": {}}})).code == "CONFIG_VALUE"


@pytest.mark.parametrize("name", ["b", "Bank-2", "x" * 63])
def test_a_good_name_is_taken(name: str) -> None:
    assert parse_config(smallest(pipeline=name), folder=Path("/p")).pipeline == name


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (smallest(sources={}), ""),
        (smallest(sources={"north": None}), "sources.north"),
        (smallest(grouping="pairs"), "grouping"),
        (smallest(batching="lazy"), "batching"),
        (smallest(batching={"rows": 0}), "batching.rows"),
        (smallest(batching={"age_ms": 5}), "batching.rows"),
        (smallest(on_span="skip"), "on_span"),
        (smallest(rates={"north.entry": -1}), "rates.north.entry"),
        (smallest(metrics={"port": 65536}), "metrics.port"),
        (smallest(metrics={"port": "many"}), "metrics.port"),
        (smallest(kafka={"replication": 0}), "kafka.replication"),
        (smallest(limits={"offsets_per_batch": 0}), "limits.offsets_per_batch"),
        (smallest(retention={"updates_hours": 0}), "retention.updates_hours"),
        (smallest(transactions_span="north.entry"), "transactions_span"),
        (with_source(transactions="none"), "sources.north.transactions"),
        (with_source(tables=["entry"]), "sources.north.tables"),
    ],
)
def test_a_bad_value_is_refused_with_its_place(raw: dict[str, Any], place: str) -> None:
    error = refused(raw)
    assert error.code == "CONFIG_VALUE"
    assert error.where == f"bank.yaml: {place}"
    assert error.what and error.todo


def test_a_configuration_cannot_be_changed() -> None:
    config = parse_config(smallest(), folder=Path("/p"))
    with pytest.raises(ValueError, match="frozen"):
        config.pipeline = "other"


# Variables --------------------------------------------------------------------------------------


def test_variables_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_HOST", "kafka-7")
    raw = smallest(kafka={"bootstrap": "${BANK_HOST}:9092,${BANK_HOST}:9093"})
    assert parse_config(raw, folder=Path("/p")).kafka.bootstrap == "kafka-7:9092,kafka-7:9093"


def test_a_default_stands_in_for_a_variable_that_is_not_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BANK_PORT", raising=False)
    raw = smallest(metrics={"host": "${BANK_HOST:-}", "port": "${BANK_PORT:-0}"})
    assert parse_config(raw, folder=Path("/p")).metrics.port == 0
    monkeypatch.setenv("BANK_PORT", "81")
    assert parse_config(raw, folder=Path("/p")).metrics.port == 81


def test_a_missing_variable_is_named_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BANK_PORT", raising=False)
    error = refused(with_source(connection="${BANK_PORT}"))
    assert error.code == "CONFIG_VARIABLE"
    assert "BANK_PORT" in error.what
    assert error.where == "bank.yaml: sources: north: connection"


def test_a_variable_s_value_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANK_CONNECTION", "postgresql://a:${x}@h/d")
    config = parse_config(with_source(connection="${BANK_CONNECTION}"), folder=Path("/p"))
    assert config.sources["north"].secret() == "postgresql://a:${x}@h/d"


# Secrets ----------------------------------------------------------------------------------------


def shown(config: Config) -> str:
    return f"{config!r} {config} {config.model_dump()} {config.model_dump_json()}"


def test_printing_a_configuration_shows_no_secret() -> None:
    raw = with_source(connection=SECRET) | {
        "kafka": {"options": {"sasl.jaas.config": "password=hunter2"}}
    }
    config = parse_config(raw, folder=Path("/p"))
    assert "hunter2" not in shown(config)
    assert config.sources["north"].secret() == SECRET


def test_spark_s_properties_are_not_printed() -> None:
    raw = smallest(spark={"spark.hadoop.fs.s3a.secret.key": "hunter2"})
    assert "hunter2" not in repr(parse_config(raw, folder=Path("/p")))


@pytest.mark.parametrize(
    "raw",
    [
        with_source(connection=SECRET, conection=SECRET),
        with_source(connection=[SECRET]),
        with_source(connection={"url": SECRET}),
        with_source(connection=SECRET, connection_file="url.txt"),
        with_source(connection=SECRET) | {"pipeline": "9"},
        with_source(connection=SECRET) | {"sources": {"north": SECRET}},
        smallest(kafka={"options": SECRET}),
        smallest(grouping=SECRET),
    ],
)
def test_no_error_shows_a_secret_not_even_its_traceback(raw: dict[str, Any]) -> None:
    assert "hunter2" not in everything_said(refused(raw))


def test_a_connection_can_be_in_a_file_beside_the_configuration(write: Any, tmp_path: Path) -> None:
    (tmp_path / "url.txt").write_text(f"{SECRET}\n")
    config = load_config(write(f"{SMALLEST}    connection_file: url.txt\n"))
    assert config.sources["north"].connection_file == tmp_path / "url.txt"
    assert config.sources["north"].secret() == SECRET
    assert "hunter2" not in shown(config)


def test_a_connection_file_that_is_not_there_is_a_coded_error(write: Any, tmp_path: Path) -> None:
    config = load_config(write(f"{SMALLEST}    connection_file: url.txt\n"))
    with pytest.raises(FrescoError) as caught:
        config.sources["north"].secret()
    assert caught.value.code == "CONFIG_FILE"
    assert caught.value.where == str(tmp_path / "url.txt")


def test_two_connections_for_one_source_are_refused() -> None:
    error = refused(with_source(connection=SECRET, connection_file="url.txt"))
    assert error.where == "bank.yaml: sources.north"
    assert "not both" in error.what


def test_a_source_may_have_no_connection() -> None:
    config = parse_config(with_source(full_rows=True), folder=Path("/p"))
    assert config.sources["north"].secret() is None
