"""Checks of everything a pipeline needs, each with what to do about it; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from streaming.ask.mariadb import mysql_check
from streaming.ask.postgres import published
from streaming.ask.source_kind import Captor
from streaming.ask.source_kinds import kind_of_source
from streaming.captured import source_origin, source_topics
from streaming.captured.checked import Checked, Rule, failed
from streaming.cdc import (
    connector_settings,
    old_dates,
    placeholder,
    record_shapes,
)
from streaming.configuration.pipeline_config import Config, load_config
from streaming.errors import FrescoError
from streaming.isolated.delta_install import check
from streaming.isolated.delta_tables import delta_table_of
from streaming.pipeline.plan import Pipeline, plan_pipeline
from streaming.runtime.kafka import Broker, Topics
from streaming.service.origins import Origins
from streaming.service.surroundings import (
    examined_dates,
    examined_records,
    examined_sources,
    examined_topics,
)
from streaming.spark.java import java_command
from streaming.spark.spark_session import versions

_KNOWN_LOSS = (
    "Debezium up to 3.6 may lose the rest of a multi-row insert or COPY when it restarts inside it; "
    "`fresco verify --source` finds it"
)


LOOKS = {
    "configuration": "the configuration can be read",
    "java": "the Java that Spark is started with",
    "libraries": "versions of Spark, Delta, DuckDB and others",
    "sources and views": "tables and views can be planned, and the logs hold whole rows",
    "kafka": "the brokers answer",
    "captured topics": "the captured topics exist",
    "the pipeline's topics": "how many of the pipeline's own topics exist",
    "delta tables": "triggers and delta tables of isolated views are whole",
    "connector versions": "what is known of the connector's versions",
    "connector settings": "warns where nobody has looked at a connector's settings",
}
"""What only `doctor` looks at."""
GROUPS: tuple[tuple[str, Sequence[Rule]], ...] = (
    ("Kafka's topics", source_topics.RULES),
    (
        "PostgreSQL's tables and publications",
        (*published.RULES, *old_dates.RULES, *placeholder.RULES),
    ),
    ("PostgreSQL's server, against the last start", source_origin.RULES),
    ("MariaDB and MySQL", mysql_check.RULES),
    (
        "Records, where `sources.S.connect` does not tell the connector's settings",
        record_shapes.RULES,
    ),
    ("Kafka Connect, where `sources.S.connect` names its worker", connector_settings.RULES),
)
"""What starts look at, too: one list of all that is refused or warned of."""
_LEVELS = {"wrong": "refused", "warning": "warned of", "either": "refused or warned of"}


def listed() -> str:
    """All checks, as docs/doctor.md shows them."""
    lines = ["## Whether anything can run", "", "| check | what |", "|---|---|"]
    lines += [f"| {check} | {what} |" for check, what in LOOKS.items()]
    for title, rules in GROUPS:
        lines += ["", f"## {title}", "", "| code | at a start | what |", "|---|---|---|"]
        lines += [f"| `{one.code}` | {_LEVELS[one.level]} | {one.means} |" for one in rules]
        if rules is mysql_check.RULES:
            lines += ["", mysql_check.variables_table().rstrip()]
        if rules is record_shapes.RULES:
            lines += ["", record_shapes.shapes_table().rstrip()]
        if rules is connector_settings.RULES:
            lines += ["", connector_settings.settings_table().rstrip()]
    return "\n".join(lines) + "\n"


def examine(path: Path) -> list[Checked]:
    """Run every check that the ones before it allow.

    Raises:
        FrescoError: the configuration itself cannot be read.
    """
    config = load_config(path)
    found = [_checked("configuration", lambda: str(path)), examined_java(), *_libraries()]
    pipelines: list[Pipeline] = []

    def plan() -> str:
        pipelines.append(plan_pipeline(config))
        views, relations = pipelines[0].every_view, pipelines[0].every_relation
        return f"{len(views)} views over {len(relations)} relations"

    found.append(_checked("sources and views", plan))
    for name in config.sources:
        found.extend(_server(config, name, planned=bool(pipelines)))
    if pipelines:
        found.extend(examined_sources(config, pipelines[0], _topics(config, pipelines[0])))
        found.extend(Origins(config, pipelines[0]).checks)
        found.extend(examined_dates(config, pipelines[0]))
    if pipelines and pipelines[0].views:
        found.extend(_kafka(config, pipelines[0]))
    for name, relations in pipelines[0].sessions.relations.items() if pipelines else ():
        tables = [delta_table_of(one, config.pipeline) for one in relations]
        dsn = config.sources[name].secret() or ""
        found.append(_checked("delta tables", partial(check, dsn, name, tables)))
    todo = "run verify --source after connector restarts"
    found.append(Checked("connector versions", "ok", _KNOWN_LOSS, todo))
    return [*found, *_trusted(config)]


def _trusted(config: Config) -> Iterator[Checked]:
    """The sources whose connector's settings nobody can look at."""
    names = [
        name
        for name, one in config.sources.items()
        if kind_of_source(name, one).log_rights is None and one.capture == "debezium"
        if one.snapshots is None and one.connect is None
    ]
    if names:
        yield Checked(
            "connector settings",
            "warning",
            f"nobody has looked at the connectors of {', '.join(names)}",
            "set sources.S.connect to the Kafka Connect worker's URL",
        )


def _checked(check: str, run: Callable[[], str]) -> Checked:
    try:
        return Checked(check, "ok", run())
    except FrescoError as error:
        return failed(check, error)


def examined_java() -> Checked:
    """The Java that Spark would be started with."""
    return _checked("java", java_command)


def _libraries() -> Iterator[Checked]:
    yield Checked("libraries", "ok", ", ".join(f"{k} {v}" for k, v in versions().items()))


def _server(config: Config, name: str, planned: bool) -> Iterator[Checked]:
    """The right to read a MariaDB's or MySQL's log; the log itself where nothing can be planned."""
    source = config.sources[name]
    connection = source.secret()
    kind = kind_of_source(name, source)
    if connection is None or kind.log_rights is None:
        return
    try:
        if not planned:
            yield from kind.log_checks(Captor(connection, name, list(source.tables.values())))
        yield kind.log_rights(connection, name)
    except FrescoError as error:
        yield failed(f"{kind.log_name} of {name}", error)


def _topics(config: Config, pipeline: Pipeline) -> set[str]:
    """All topics that there are, where they tell who captures a source; none without a broker."""
    if all(
        kind_of_source(one.name, config.sources[one.name]).log_rights is None
        for one in pipeline.sources
    ):
        return set()
    with suppress(FrescoError), closing(Broker(config)) as broker:
        return broker.topics()
    return set()


def _kafka(config: Config, pipeline: Pipeline) -> Iterator[Checked]:
    brokers: list[Broker] = []

    def connect() -> str:
        brokers.append(Broker(config))
        return config.kafka.bootstrap

    yield _checked("kafka", connect)
    if not brokers:
        return
    there = brokers[0].topics()
    found = list(examined_topics(pipeline, brokers[0]))
    found += examined_records(config, pipeline, brokers[0])
    brokers[0].close()
    missing = sorted(pipeline.source_topics - there)
    if missing and not config.kafka.create_source_topics:
        yield Checked(
            "captured topics",
            "wrong",
            f"missing: {', '.join(missing)}",
            "start the connectors, or set kafka.create_source_topics: true",
        )
    elif not found:
        yield Checked("captured topics", "ok", f"{len(pipeline.source_topics)} topics")
    yield from found
    own = {name for group in pipeline.groups for name in Topics(config.pipeline).of_group(group)}
    made = len(own & there)
    yield Checked(
        "the pipeline's topics",
        "ok",
        f"{made} of {len(own)} exist; the rest is made at the first start",
    )
