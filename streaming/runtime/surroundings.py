"""What surrounds a pipeline's topics, known before it starts: the topics themselves, and what fills them.

`fresco doctor` shows all of it. A start refuses what is wrong, which loses or alters data, and logs what
is doubtful.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from http.client import HTTPException

from streaming.config import Config
from streaming.embedded.connect import ConnectRest
from streaming.errors import FrescoError
from streaming.runtime.kafka import Broker
from streaming.runtime.plan import Pipeline
from streaming.sourceconfig import Source
from streaming.sources.checked import Checked, failed
from streaming.sources.connectsettings import Wanted, check_connector
from streaming.sources.published import check_published
from streaming.sources.schema import CapturedSource
from streaming.sources.topics import check_topics

log = logging.getLogger("fresco")


def examined_topics(pipeline: Pipeline, broker: Broker) -> Iterator[Checked]:
    """The captured topics that exist."""
    facts = broker.described(pipeline.source_topics)
    yield from check_topics(pipeline.sources, pipeline.captured, facts)


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
        code = "SOURCE_CONNECT_UNREACHABLE"
        return [Checked(check, "warning", says, f"see sources.{wanted.source}.connect", code)], None
    if not mine:
        # Nothing comes without one, so nothing is lost: it may be about to be made.
        says = f"no connector there has topic.prefix={wanted.prefix}"
        todo = f"create it, or set sources.{wanted.source}.prefix or .connect"
        return [Checked(check, "warning", says, todo, "SOURCE_CONNECTOR_MISSING")], None
    found: list[Checked] = []
    for name, one in mine.items():
        found += check_connector(name, one["info"]["config"], wanted)
        status = one.get("status") or {}
        parts = [status.get("connector") or {}, *status.get("tasks", ())]
        if any(part.get("state") == "FAILED" for part in parts):
            todo = "read its trace in the worker's log, remove the cause and restart it"
            code = "SOURCE_CONNECTOR_FAILED"
            found.append(Checked(check, "warning", f"{name} has failed: nothing comes", todo, code))
    options = next(iter(mine.values()))["info"]["config"]
    reads = options.get("plugin.name") == "pgoutput"
    return found, options.get("publication.name", "dbz_publication") if reads else None


def wanted_of(source: Source, captured: CapturedSource, pipeline: Pipeline) -> Wanted:
    """What a source's configuration asks of its connector."""
    mine = pipeline.captured_of(captured.name)
    return Wanted(
        captured.name,
        captured.prefix,
        captured.notification_topic,
        [one.counted_as for one in mine],
        [f"{one.counted_as}.{column.name}" for one in mine for column in one.relation.schema],
        captured.snapshot,
        captured.transactions == "metadata",
        source.decimals,
        captured.dialect == "mysql",
    )


def examined_sources(config: Config, pipeline: Pipeline) -> Iterator[Checked]:
    """The databases that are captured, and their connectors."""
    for captured in pipeline.sources:
        source = config.sources[captured.name]
        publication = None
        if source.connect is not None:
            address = source.connect.get_secret_value()
            found, publication = examined_connector(address, wanted_of(source, captured, pipeline))
            yield from found
        connection = source.secret()
        if connection is None or source.snapshots is not None or source.database != "postgres":
            continue
        try:
            tables = list(source.tables.values())
            yield from check_published(connection, captured.name, tables, publication)
        except FrescoError as error:
            yield failed(f"publication of {captured.name}", error)


def refuse(found: Iterable[Checked]) -> None:
    """Log what is doubtful.

    Raises:
        FrescoError: the first thing that is wrong; it says how many more there are.
    """
    checks = list(found)
    for one in checks:
        if one.level == "warning":
            log.warning("%s: %s: %s -> %s", one.code, one.check, one.says, one.todo)
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
