"""What surrounds a pipeline's topics, known before it starts: the topics themselves, and what fills them.

`fresco doctor` shows all of it. A start refuses what is wrong, which loses or alters data, and logs what
is doubtful.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from http.client import HTTPException

from streaming.algebra.scans import columns_read
from streaming.ask.source_kind import Captor
from streaming.ask.source_kinds import kind_of_source
from streaming.captured.captured_schema import CapturedRelation, CapturedSource
from streaming.captured.checked import Checked, failed, warn
from streaming.captured.source_topics import capture_topic, check_topics
from streaming.cdc.connect_rest import ConnectRest
from streaming.cdc.connector_settings import (
    HAS_FAILED,
    NO_CONNECTOR,
    NO_WORKER,
    Wanted,
    check_connector,
    check_decimals,
)
from streaming.cdc.placeholder import check_placeholder
from streaming.cdc.record_shapes import NEWEST, check_shapes
from streaming.configuration.pipeline_config import Config
from streaming.configuration.source_config import SourceConfig
from streaming.errors import FrescoError
from streaming.pipeline.plan import Pipeline
from streaming.runtime.kafka import Broker
from streaming.scalars.types import is_decimal
from streaming.service.old_date_search import check_dates
from streaming.warehouse.updates import UpdatesReader


def examined_topics(pipeline: Pipeline, broker: Broker) -> Iterator[Checked]:
    """The captured topics that exist."""
    facts = broker.described(pipeline.source_topics)
    yield from check_topics(pipeline.sources, pipeline.captured, facts)


def unseen(config: Config, pipeline: Pipeline) -> list[tuple[CapturedRelation, CapturedSource]]:
    """What is captured by connectors whose settings nobody may look at."""
    sources = {
        one.name: one
        for one in pipeline.sources
        if config.sources[one.name].connect is None and config.sources[one.name].snapshots is None
    }
    return [(one, sources[one.source]) for one in pipeline.captured if one.source in sources]


def examined_records(config: Config, pipeline: Pipeline, broker: Broker) -> Iterator[Checked]:
    """The newest records of sources whose connectors' settings nobody may look at."""
    mine = unseen(config, pipeline)
    there = broker.topics() if mine else set()
    records = broker.newest([one.topic for one, _ in mine if one.topic in there], NEWEST)
    for one, source in mine:
        yield from check_shapes(one, source, records.get(one.topic, ()))


def examined_connector(address: str, wanted: Wanted) -> tuple[list[Checked], str | None]:
    """What a Connect worker tells of a source's connector, and the publication it reads from.

    Args:
        address: the worker's URL, which is not shown: it may hold a password.
    """
    check = f"connector of {wanted.source}"
    try:
        told = ConnectRest(address).ask("GET", "/connectors?expand=info&expand=status")
        mine = {
            name: one
            for name, one in told.items()
            if one["info"]["config"].get("topic.prefix") == wanted.prefix
        }
    except (OSError, ValueError, HTTPException, AttributeError, KeyError, TypeError) as error:
        says = f"Kafka Connect does not tell its connectors: {type(error).__name__}"
        return [NO_WORKER.found(check, says, f"see sources.{wanted.source}.connect")], None
    if not mine:
        # Nothing comes without one, so nothing is lost: it may be about to be made.
        says = f"no connector there has topic.prefix={wanted.prefix}"
        todo = f"create it, or set sources.{wanted.source}.prefix or .connect"
        return [NO_CONNECTOR.found(check, says, todo)], None
    found: list[Checked] = []
    for name, one in mine.items():
        found += check_connector(name, one["info"]["config"], wanted)
        status = one.get("status") or {}
        parts = [status.get("connector") or {}, *status.get("tasks", ())]
        if any(part.get("state") == "FAILED" for part in parts):
            todo = "read its trace in the worker's log, remove the cause and restart it"
            found.append(HAS_FAILED.found(check, f"{name} has failed: nothing comes", todo))
    options = next(iter(mine.values()))["info"]["config"]
    reads = options.get("plugin.name") == "pgoutput"
    return found, options.get("publication.name", "dbz_publication") if reads else None


def wanted_of(source: SourceConfig, captured: CapturedSource, pipeline: Pipeline) -> Wanted:
    """What a source's configuration asks of its connector."""
    mine = pipeline.captured_of(captured.name)
    return Wanted(
        captured.name,
        captured.prefix,
        captured.notification_topic,
        [one.counted_as for one in mine],
        [
            f"{one.counted_as}.{column.name}"
            for one in mine
            for column in one.relation.schema
            if not column.hidden
        ],
        captured.snapshot,
        captured.transactions == "metadata",
        source.decimals,
        kind_of_source(captured.name, source).connector == "mysql",
    )


def captured_here(source: SourceConfig, prefix: str, topics: Collection[str]) -> bool | None:
    """Whether `fresco capture` captures a source; None where nobody knows yet."""
    if source.connect is not None:
        return False
    return True if capture_topic(prefix) in topics else None


def examined_sources(
    config: Config, pipeline: Pipeline, topics: Collection[str]
) -> Iterator[Checked]:
    """The databases that are captured, and their connectors.

    Args:
        topics: all that there are.
    """
    for captured in pipeline.sources:
        source = config.sources[captured.name]
        kind = kind_of_source(captured.name, source)
        wanted, publication = wanted_of(source, captured, pipeline), None
        numbers = [
            f"{one.counted_as}.{column.name}"
            for one in pipeline.captured_of(captured.name)
            for column in one.relation.schema
            if is_decimal(column.type) and source.snapshots is None
        ]
        yield from check_decimals(wanted, numbers)
        if captured.log.marks_unchanged and source.snapshots is None:
            yield from check_placeholder(captured.name, pipeline.captured_of(captured.name))
        if source.connect is not None:
            address = source.connect.get_secret_value()
            found, publication = examined_connector(address, wanted)
            yield from found
        connection = source.secret()
        if connection is None or source.snapshots is not None:
            continue
        tables, name = list(source.tables.values()), captured.name
        try:
            ours = captured_here(source, captured.prefix, topics)
            yield from kind.log_checks(Captor(connection, name, tables, publication, ours))
        except FrescoError as error:
            yield failed(f"{kind.log_name} of {name}", error)


def examined_dates(config: Config, pipeline: Pipeline) -> Iterator[Checked]:
    """Days that the snapshots tell as others; each table is read for it, until the pipeline has begun."""
    if _begun(config):
        return
    read: dict[str, set[int]] = {}
    for view in pipeline.every_view:
        for name, positions in columns_read(view.tree).items():
            read.setdefault(name, set()).update(positions)
    for captured in pipeline.sources:
        source, connection = config.sources[captured.name], config.sources[captured.name].secret()
        asked = (
            kind_of_source(captured.name, source).old_calendar
            and captured.snapshot
            and source.snapshots is None
        )
        if connection is None or not asked:
            continue
        dates, wanted = dict[str, list[str]](), dict[str, list[str]]()
        for one in pipeline.captured_of(captured.name):
            own = {at: c.name for at, c in enumerate(one.relation.schema) if c.type == "date"}
            if own:
                dates[one.counted_as] = list(own.values())
                needed = {*read.get(one.relation.name, ()), *one.relation.key}
                wanted[one.counted_as] = [name for at, name in own.items() if at in needed]
        yield from check_dates(connection, captured.name, dates, wanted, source.query_timeout)


def _begun(config: Config) -> bool:
    """Whether the snapshots have been taken over."""
    try:
        return UpdatesReader(str(config.warehouse)).last >= 0
    except FrescoError:
        return False


def refuse(found: Iterable[Checked]) -> None:
    """Log what is doubtful.

    Raises:
        FrescoError: the first thing that is wrong; it says how many more there are.
    """
    checks = list(found)
    warn(one for one in checks if not one.bad)
    wrong = [one for one in checks if one.bad]
    if not wrong:
        return
    first = wrong[0].error
    if len(wrong) > 1:
        first = FrescoError(
            first.code,
            f"{first.what} (and {len(wrong) - 1} more: `fresco doctor` lists them)",
            where=first.where,
            todo=first.todo,
        )
    raise first
