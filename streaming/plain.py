"""Text as a person may see it: what a terminal would act on is written out.

Data, names of databases and topics, files and the environment may hold escape sequences, line ends and
marks that turn the direction of writing. Shown as they are they move the cursor, forge a line of a log
or make a name look like another. So every channel to people writes them as Python would, `\\x1b`.
"""

from __future__ import annotations

import logging

_TURNING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def plain(text: object) -> str:
    """The text in one line, with every character that is not printable written out."""
    given = str(text)
    if given.isprintable():
        return given
    return "".join(one if one.isprintable() else _written(one) for one in given)


def plain_lines(text: str) -> str:
    """The same line by line, for texts that have lines of their own."""
    return "\n".join(map(plain, text.split("\n")))


def controls(name: str) -> bool:
    """Whether a name holds what acts on a terminal: controls, line ends, turns of direction.

    Other characters that are not printable (joiners, wide spaces) belong to some scripts' names.
    """
    return any(
        one < " " or "\x7f" <= one <= "\x9f" or one in "\u2028\u2029" or one in _TURNING
        or "\ud800" <= one <= "\udfff"
        for one in name
    )  # fmt: skip


def _written(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")


class PlainFormatter(logging.Formatter):
    """A log's records: the message in one line, a trace in its own."""

    def format(self, record: logging.LogRecord) -> str:
        said = logging.makeLogRecord(
            {**record.__dict__, "msg": plain(record.getMessage()), "args": ()}
        )
        return plain_lines(super().format(said))
