"""Which tables a statement changes when its server runs it: by itself, through views, triggers, routines.

Of a session that logs statements the log holds what it said, not what that did. So what a statement
writes is read from its words, and followed through the catalog: a view writes its tables, a table's
triggers and a routine write what their bodies write. Where a statement can be read in two ways the
wider one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streaming.capture.log_events import Table
from streaming.capture.statements import Words, table_at, words_of

_SKIPPED = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "INTO", "TABLE", "ONLY")
_NO_WRITE_BEFORE = ("ON", "FOR", "KEY", "OR", ".")
_ENDS = ("WHERE", "ORDER BY", "ORDER", "LIMIT", "RETURNING", ";", "END")
_JOINS = (",", "JOIN", "STRAIGHT_JOIN")
_AFTER_TABLE = (
    *_JOINS, *_ENDS, "SET", "USING", "ON", "LEFT", "RIGHT", "INNER", "CROSS", "NATURAL", "OUTER",
    "USE", "FORCE", "IGNORE", "PARTITION", "FROM", "(", ")", "=", ".", "FOR",
)  # fmt: skip


@dataclass(frozen=True)
class _Ref:
    table: Table
    alias: str


@dataclass(frozen=True)
class WriterCatalog:
    """What changes tables beside statements: by lower-case database and name.

    Attributes:
        views: view -> its definition.
        triggers: table -> the bodies of its triggers, each in its database.
        routines: procedure or function -> its body; None when the user may not see it.
    """

    views: Mapping[Table, str] = field(default_factory=dict)
    triggers: Mapping[Table, Sequence[str]] = field(default_factory=dict)
    routines: Mapping[Table, str | None] = field(default_factory=dict)


def read_catalog(cursor: Any) -> WriterCatalog:
    """The catalog of this moment."""
    views: dict[Table, str] = {}
    triggers: dict[Table, list[str]] = {}
    routines: dict[Table, str | None] = {}
    cursor.execute("SELECT table_schema, table_name, view_definition FROM information_schema.views")
    for database, name, text in cursor.fetchall():
        views[folded((_text(database), _text(name)))] = _text(text)
    cursor.execute(
        "SELECT event_object_schema, event_object_table, action_statement"
        " FROM information_schema.triggers"
    )
    for database, name, text in cursor.fetchall():
        triggers.setdefault(folded((_text(database), _text(name))), []).append(_text(text))
    cursor.execute(
        "SELECT routine_schema, routine_name, routine_definition FROM information_schema.routines"
    )
    for database, name, text in cursor.fetchall():
        routines[folded((_text(database), _text(name)))] = None if text is None else _text(text)
    return WriterCatalog(views, triggers, routines)


def sees_triggers(cursor: Any) -> bool:
    """Whether the user may see every table's triggers; otherwise there may be more than are seen."""
    cursor.execute("SHOW GRANTS")
    grants = [str(row[0]).upper() for row in cursor.fetchall()]
    return any(" ON *.*" in one and ("ALL PRIVILEGES" in one or "TRIGGER" in one) for one in grants)


def reached(
    words: Words, database: str, tables: frozenset[Table], catalog: Callable[[], WriterCatalog]
) -> Table | None:
    """A table of `tables` that the statement may change; None when it changes none of them."""
    captured = {folded(table): table for table in tables}
    todo: list[tuple[str, Table]] = list(_touched(words, database))
    known: WriterCatalog | None = None
    seen: set[tuple[str, Table]] = set()
    while todo:
        what, name = todo.pop()
        if (what, name) in seen:
            continue
        seen.add((what, name))
        if what == "table" and name in captured:
            return captured[name]
        known = known or catalog()
        bodies: list[str] = []
        if what == "routine":
            if name not in known.routines:
                continue
            body = known.routines[name]
            if body is None:  # nobody knows what it does
                return next(iter(tables), None)
            bodies = [body]
        elif name in known.views:
            todo += [("table", one) for one in _named(known.views[name], name[0])]
        else:
            bodies = list(known.triggers.get(name, ()))
        for body in bodies:
            read = words_of(body)
            if read is None:
                return next(iter(tables), None)
            todo += _touched(read, name[0])
    return None


def folded(table: Table) -> Table:
    """Case apart: of tables that differ in it only, both count."""
    return table[0].lower(), table[1].lower()


def _touched(words: Words, database: str) -> Iterator[tuple[str, Table]]:
    """("table", what is written) and ("routine", what is called)."""
    for at, word in enumerate(words):
        before = words[at - 1].key if at else ""
        after = words[at + 1].key if at + 1 < len(words) else ""
        found = table_at(words, at, database) if before != "." else None
        if found is not None and (
            before == "CALL" or (found[1] < len(words) and words[found[1]].key == "(")
        ):
            yield "routine", folded(found[0])
        if before in _NO_WRITE_BEFORE or after in ("ON", "."):
            continue  # part of a clause, or a column
        if after == "(" and word.key != "UPDATE":
            continue  # a function
        match word.key:
            case "INSERT" | "REPLACE" | "LOAD":
                target = _after(words, at + 1) if word.key != "LOAD" else _loaded(words, at)
                into = table_at(words, target, database)
                if into is not None:
                    yield "table", folded(into[0])
            case "UPDATE":
                yield from (("table", one) for one in _updated(words, at + 1, database))
            case "DELETE":
                yield from (("table", one) for one in _deleted(words, at + 1, database))
            case "TRUNCATE":
                emptied = table_at(words, _after(words, at + 1), database)
                if emptied is not None:
                    yield "table", folded(emptied[0])


def _after(words: Words, at: int) -> int:
    while at < len(words) and words[at].key in _SKIPPED:
        at += 1
    return at


def _loaded(words: Words, at: int) -> int:
    """Where LOAD DATA ... INTO TABLE names its table."""
    for place in range(at, len(words) - 1):
        if words[place].key == "INTO" and words[place + 1].key == "TABLE":
            return place + 2
    return len(words)


def _updated(words: Words, at: int, database: str) -> list[Table]:
    """Tables of UPDATE: those whose columns are set; all where a column does not say whose it is."""
    refs, at = _refs(words, _after(words, at), database, ("SET",))
    whose: set[str] = set()
    depth, expects = 0, True
    for place in range(at + 1, len(words)):
        key = words[place].key
        depth += (key == "(") - (key == ")")
        if depth < 0 or (depth == 0 and key in _ENDS):
            break
        if expects:
            dotted = [n for n in (1, 3) if place + n < len(words) and words[place + n].key == "."]
            if not dotted:
                return [folded(ref.table) for ref in refs]
            whose.add(words[place + (2 if len(dotted) == 2 else 0)].text.lower())
        expects = depth == 0 and key == ","
    return [folded(ref.table) for ref in refs if ref.alias.lower() in whose] or [
        folded(ref.table) for ref in refs
    ]


def _deleted(words: Words, at: int, database: str) -> list[Table]:
    """Tables of DELETE FROM t, DELETE t FROM ..., DELETE FROM t USING ..."""
    at = _after(words, at)
    begins_with_from = at < len(words) and words[at].key == "FROM"
    stops = ("USING",) if begins_with_from else ("FROM",)
    targets, at = _refs(words, at + begins_with_from, database, stops)
    if at >= len(words) or words[at].key not in stops:
        return [folded(ref.table) for ref in targets]
    refs, _ = _refs(words, at + 1, database, ())
    names = {ref.alias.lower() for ref in targets}
    hit = [folded(ref.table) for ref in refs if ref.alias.lower() in names]
    return hit + [folded(ref.table) for ref in targets]


def _refs(words: Words, at: int, database: str, stops: Sequence[str]) -> tuple[list[_Ref], int]:
    """The tables of a list with joins, and where it ends."""
    found: list[_Ref] = []
    expects, depth = True, 0
    while at < len(words):
        key = words[at].key
        if depth == 0 and (key in stops or key in _ENDS):
            break
        depth += (key == "(") - (key == ")")
        if depth < 0:
            break
        if key in _JOINS:
            expects = True
        elif expects and key not in ("(", "LATERAL"):
            named = table_at(words, at, database)
            expects = False
            if named is not None and key != "SELECT":
                table, end = named
                if end + 1 < len(words) and words[end].key == "." and words[end + 1].key == "*":
                    end += 2
                if end < len(words) and words[end].key == "AS":
                    end += 1
                alias = table[1]
                if end < len(words) and words[end].is_name and words[end].key not in _AFTER_TABLE:
                    alias, end = words[end].text, end + 1
                found.append(_Ref(table, alias))
                at = end
                continue
        at += 1
    return found, at


def _named(definition: str, database: str) -> list[Table]:
    """All tables that a view's text names; the server writes them with their databases."""
    words = words_of(definition) or []
    named = [table_at(words, at, database) for at in range(len(words))]
    return [folded(one[0]) for one in named if one is not None]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
