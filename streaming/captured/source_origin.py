"""Which server a PostgreSQL source is, and whether its log goes on where it was (oddity 33).

Commit positions order a source's transactions, and one at or below the last is a repeat. A database that
was restored, or is another under the same prefix, may begin below it: then all that it commits would
pass for repeats. Server and timeline are kept from each start to the next; while a pipeline runs, an END
below the last with a later commit time shows it (`log`).
"""

from __future__ import annotations

from dataclasses import dataclass

from streaming.captured.checked import Checked, Rule
from streaming.errors import FrescoError

WAY_ON = (
    "its commits cannot be put in order with those before: give the connector another topic.prefix, so"
    " that it takes a snapshot into new topics, set sources.S.prefix to it, and begin with an empty"
    " warehouse under another pipeline name; the old warehouse stays readable"
)

POSITIONS_BACK = Rule(
    "SOURCE_POSITIONS_BACK",
    "wrong",
    "a log that is below what has been taken: another server, or one that was restored",
)
ANOTHER_SERVER = Rule(
    "SOURCE_ANOTHER_SERVER",
    "warning",
    "another server than at the last start, by its system identifier",
)
TIMELINE = Rule(
    "SOURCE_TIMELINE", "warning", "another timeline: a standby took over, or a backup came back"
)
RULES = (POSITIONS_BACK, ANOTHER_SERVER, TIMELINE)


@dataclass(frozen=True)
class Origin:
    """A server at one moment.

    Attributes:
        system: PostgreSQL's system identifier.
        timeline, position: of its log, the position in bytes; None at a standby.
    """

    system: str
    timeline: int | None
    position: int | None


def check_origin(source: str, now: Origin, kept: Origin | None, last: int) -> Checked:
    """The server against that of the last start.

    Args:
        kept: at the last start; None where there was none.
        last: the last commit position that has a number; -1 for none.
    """
    check = f"server of {source}"
    if now.position is not None and now.position < last:
        return POSITIONS_BACK.found(
            check,
            f"its log is at {now.position}, and transactions up to {last} have been taken: it is"
            " another server, or one that was restored",
            WAY_ON,
        )
    if kept is not None and kept.system != now.system:
        return ANOTHER_SERVER.found(
            check,
            f"it is another server than at the last start (system {kept.system}, now {now.system})",
            "let the connector take a new snapshot: what was changed between the two is in no log;"
            " then `fresco verify --source`",
        )
    known = kept is not None and None not in (kept.timeline, now.timeline)
    if kept is not None and known and kept.timeline != now.timeline:
        return TIMELINE.found(
            check,
            f"its log is on timeline {now.timeline}, at the last start on {kept.timeline}: a"
            " standby took over, or a backup was restored, and may lack the last commits",
            "`fresco verify --source` finds a difference, a new snapshot mends it",
        )
    return Checked(check, "ok", f"system {now.system}")


def went_back(source: str, position: int, last: int) -> FrescoError:
    """The error of an END that is below the last one seen and was committed later."""
    return FrescoError(
        POSITIONS_BACK.code,
        f"the log of source {source} goes on at {position}, below {last}, with later commits: another"
        " server, or one that was restored, writes under its prefix",
        where=f"source {source}",
        todo=WAY_ON,
    )
