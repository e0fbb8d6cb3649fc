"""What surrounds a pipeline's topics, known before it starts: the topics themselves, and what fills them.

`fresco doctor` shows all of it. A start refuses what is wrong, which loses or alters data, and logs what
is doubtful.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from streaming.config import Config
from streaming.errors import FrescoError
from streaming.runtime.kafka import Broker
from streaming.runtime.plan import Pipeline
from streaming.sources.checked import Checked, failed
from streaming.sources.published import check_published
from streaming.sources.topics import check_topics

log = logging.getLogger("fresco")


def examined_topics(pipeline: Pipeline, broker: Broker) -> Iterator[Checked]:
    """The captured topics that exist."""
    facts = broker.described(pipeline.source_topics)
    yield from check_topics(pipeline.sources, pipeline.captured, facts)


def examined_sources(config: Config, pipeline: Pipeline) -> Iterator[Checked]:
    """The databases that are captured."""
    for captured in pipeline.sources:
        source = config.sources[captured.name]
        connection = source.secret()
        if connection is None or source.snapshots is not None or source.database != "postgres":
            continue
        try:
            yield from check_published(connection, captured.name, list(source.tables.values()))
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
