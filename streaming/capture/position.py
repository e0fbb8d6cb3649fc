"""How far a capture has come (DESIGN 6, MariaDB)."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Literal

from streaming.ask.mariadb.mysql_state import LogPlace, place
from streaming.errors import FrescoError

FORMAT = 1


@dataclass(frozen=True)
class PublishedPosition:
    """How far a source is published; it stands in the state topic, in the same Kafka transaction as
    what it speaks of.

    Attributes:
        at: where the first transaction that is not published whole begins.
        events: how many of its events are published.
        gtid: of the last transaction before `at`, "" where the server says none.
        server: the server's id.
        snapshot: `none` wanted, `running` or `done`.
        attempts: snapshots begun at `at` before this one was, while one is running.
    """

    at: LogPlace
    events: int = 0
    gtid: str = ""
    server: int = 0
    snapshot: Literal["none", "running", "done"] = "none"
    attempts: int = 0

    def moved(self, at: LogPlace, events: int = 0, gtid: str | None = None) -> PublishedPosition:
        """Further on."""
        return replace(self, at=at, events=events, gtid=self.gtid if gtid is None else gtid)

    def to_json(self) -> bytes:
        said = {
            "format": FORMAT,
            "file": self.at.file,
            "pos": self.at.offset,
            "events": self.events,
            "gtid": self.gtid,
            "server_id": self.server,
            "snapshot": self.snapshot,
            "attempts": self.attempts,
        }
        return json.dumps(said).encode()


def progress_from_json(content: bytes, where: str) -> PublishedPosition:
    """What `to_json` wrote.

    Raises:
        FrescoError: CAPTURE_STATE.
    """
    try:
        said = json.loads(content)
        if said["format"] != FORMAT:
            raise ValueError(f"format {said['format']}")
        return PublishedPosition(
            place(said["file"], said["pos"]),
            int(said["events"]),
            str(said["gtid"]),
            int(said["server_id"]),
            said["snapshot"],
            int(said["attempts"]),
        )
    except (ValueError, KeyError, TypeError, FrescoError) as error:
        raise FrescoError(
            "CAPTURE_STATE",
            f"how far the capture has come cannot be read: {error}",
            where=where,
            todo="capture under another prefix, in a new pipeline",
        ) from error
