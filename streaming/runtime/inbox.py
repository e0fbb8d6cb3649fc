"""What a stage takes from its topics: each producer's messages once and in order (DESIGN 9).

Producers may repeat messages after a crash, and a paused one may send late: what was seen is dropped
by (producer, sequence), and what is missing is reported, never passed over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from streaming.errors import FrescoError
from streaming.messages import FORMAT_VERSION, Message, decode


class Inbox:
    """What a stage has seen of each producer: drops repeats, refuses gaps and old generations."""

    def __init__(self, seen: Mapping[str, Any] | None = None, *, late: bool = False) -> None:
        """Args:
        late: of a producer not seen yet the first message may have any sequence: who reads a topic
            from some offset on.
        """
        self._late = late
        self._seen: dict[str, list[int]] = {key: list(value) for key, value in (seen or {}).items()}

    def snapshot(self) -> dict[str, tuple[int, int]]:
        """ "topic producer" -> (generation, sequence)."""
        return {key: (value[0], value[1]) for key, value in self._seen.items()}

    def producers(self) -> set[str]:
        """All that have been heard of."""
        return {key.partition(" ")[2] for key in self._seen}

    def take(
        self,
        records: pa.Table,
        producers: Collection[str] | None = None,
        unheard: Collection[str] = (),
    ) -> list[Message]:
        """The new messages of records (topic, partition, offset, value, headers), topic by topic.

        Args:
            producers: those that are listened to; None for all.
            unheard: those whose messages are seen and not handed on.

        Raises:
            FrescoError: KAFKA_SEQUENCE_GAP, KAFKA_MESSAGE_DAMAGED; nothing counts as seen then.
        """
        seen = {key: list(value) for key, value in self._seen.items()}
        taken = []
        records = records.sort_by(
            [(name, "ascending") for name in ("topic", "partition", "offset")]
        )
        columns = (
            records.column(name).to_pylist()
            for name in ("topic", "partition", "offset", "value", "headers")
        )
        for topic, partition, offset, value, header_list in zip(*columns, strict=True):
            where = f"topic {topic}, partition {partition}, offset {offset}"
            try:
                fields = {item["key"]: item["value"].decode() for item in header_list}
                if producers is not None and fields["producer"] not in producers:
                    continue
                key = f"{topic} {fields['producer']}"
                generation, sequence = int(fields["generation"]), int(fields["sequence"])
                if int(fields["format"]) != FORMAT_VERSION:
                    raise ValueError(f"its header says format {fields['format']}")
            except (AttributeError, TypeError, KeyError, ValueError) as error:
                raise _damaged(where, error) from error
            last_generation, last = seen.get(key, [0, sequence - 1 if self._late else 0])
            if sequence <= last or generation < last_generation:
                continue
            if sequence > last + 1:
                raise FrescoError(
                    "KAFKA_SEQUENCE_GAP",
                    f"message {sequence} of {fields['producer']} follows {last}",
                    where=where,
                    todo="a message was deleted from the topic; restore it, or "
                    "rebuild the pipeline in an empty warehouse",
                )
            try:
                if fields["producer"] not in unheard:
                    taken.append(decode(value))
            except ValidationError as error:
                raise _damaged(where, error.errors()[0]["msg"]) from error
            seen[key] = [generation, sequence]
        self._seen = seen
        return taken


def _damaged(where: str, error: Exception | str) -> FrescoError:
    return FrescoError(
        "KAFKA_MESSAGE_DAMAGED",
        f"not a message of format {FORMAT_VERSION}: {error}",
        where=where,
        todo="something else writes to a topic of the pipeline; stop it and remove the record",
    )
