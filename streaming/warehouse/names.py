"""Physical names: what a column, a view or a relation is called inside Delta (DESIGN 8).

A user's names may hold anything; Delta and Spark refuse some characters, take a dot for a path,
and hold `Id` and `id` for one column. Physical names escape exactly what is refused, so ordinary
names stay as they are. The escape is one-to-one: `%` itself is escaped, an escape has a fixed
length (`%XX` or `%uXXXXXX`), and what is added to tell clashing names apart (`%_2`) cannot be read
as one. So the mapping follows from the list of true names alone; it is also stored in the table's
own schema, as the metadata `fresco.name` of each field.
"""

from __future__ import annotations

from collections.abc import Sequence

TRUE_NAME = "fresco.name"
"""Metadata key of a Delta field that holds the true name."""
RESERVED = frozenset({"view", "_id", "_n", "number", "multiplicity", "relation"})
"""Column names of Fresco's own tables; a view or relation of that name gets the ending `%_`."""
_REFUSED = frozenset(" ,;{}()=.%`\"'/\\")


def escape(name: str) -> str:
    """The name with every refused or unprintable character as `%XX` (`%uXXXXXX` beyond 8 bits)."""
    if not name:
        return "%"
    return "".join(_escape_character(one) for one in name)


def _escape_character(one: str) -> str:
    if one not in _REFUSED and one.isprintable():
        return one
    code = ord(one)
    return f"%{code:02X}" if code <= 0xFF else f"%u{code:06X}"


def physical_name(name: str) -> str:
    """Physical name of a view or relation, as the struct column that holds its rows."""
    escaped = escape(name)
    return f"{escaped}%_" if escaped.casefold() in RESERVED else escaped


def physical_names(names: Sequence[str]) -> tuple[str, ...]:
    """Physical names of one schema's columns, in order, different from each other in any case.

    The first of several names that differ in case only keeps its own; the next gets `%_2`, and so
    on. A column added at the end leaves the earlier names as they are.
    """
    seen: dict[str, int] = {}
    physical = []
    for name in names:
        escaped = escape(name)
        count = seen[escaped.casefold()] = seen.get(escaped.casefold(), 0) + 1
        physical.append(escaped if count == 1 else f"{escaped}%_{count}")
    return tuple(physical)


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """Names for engines that ignore case: true names, but where they clash the physical ones."""
    seen: set[str] = set()
    distinct = []
    for true, physical in zip(names, physical_names(names), strict=True):
        distinct.append(physical if true.casefold() in seen else true)
        seen.add(true.casefold())
    return tuple(distinct)


def position_of(label: str, names: Sequence[str]) -> int | None:
    """Where the column of one of these names is that `distinct_names` gives a label, None for another.

    A label may be a true name where names clash by case only: so it was written before.
    """
    for known in (distinct_names(names), tuple(names)):
        if label in known:
            return known.index(label)
    return None


def folder_name(name: str) -> str:
    """A folder for one partition's files, in characters no file system or URL changes.

    Two names may share a folder: the log, not the folder, says which partition a file is in.
    """
    return "".join(one if one.isascii() and (one.isalnum() or one in "_-") else "_" for one in name)
