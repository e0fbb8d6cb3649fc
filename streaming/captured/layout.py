"""The columns of a captured relation over time: a position means one column of one type, for ever.

A table is altered while messages, checkpoints and recorded updates refer to its columns by position. So
a layout only grows (DESIGN 6). What the database has now is compared with it at each look:

    a new column              gets the next position.
    a column that is gone     keeps its position; no value of it comes any more: it is *lost*.
    a wider type              gets the next position, which goes on with the values of the one before
                              (`before`); that one is hidden, and still read as long as values fit it.
    another type, or a new    lost, and the next position: what is stored may be something else now,
    column of its name        and no event tells of it.

Each look that changes something is a *generation*. A view is planned as of one, sees the columns of that
generation and goes on so until a column that it reads is lost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from streaming.algebra.tree import Relation
from streaming.captured.captured_schema import CapturedRelation, SourceType, source_type
from streaming.captured.retyped import written_as
from streaming.scalars.expression import Column


@dataclass(frozen=True)
class Kept:
    """One column of a layout.

    Attributes:
        type: Spark's.
        source: the database type by which events are read.
        native: the type as the database itself writes it, which tells whether values may have changed.
        identity: what the database tells columns of one name apart by ("16402.3"); "" where nothing.
        made: which version of its entry in the catalog it is, and of the table's files ("812 9f..", " -"
            behind them where stored rows lack the column); "" where nobody knows.
        since: the generation from which it is there.
        until: the generation from which it is not to be seen any more; None while it is.
        lost: no value of it comes any more.
        first: the transaction number from which it is recorded; 0 for one that always was.
        last: the number from which it is recorded no more; None while it is.
        before: position of the narrower column that it goes on with.
    """

    name: str
    type: str
    source: str = ""
    native: str = ""
    identity: str = ""
    made: str = ""
    since: int = 0
    until: int | None = None
    lost: bool = False
    first: int = 0
    last: int | None = None
    before: int | None = None

    def seen(self, generation: int) -> bool:
        """Whether a view that is planned as of a generation can name it."""
        return self.since <= generation and (self.until is None or generation < self.until)

    def as_dict(self) -> dict[str, Any]:
        """JSON, without what is as in a column that has never changed."""
        plain = {one.name: one.default for one in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != plain[name]}


@dataclass(frozen=True)
class Layout:
    """All columns that a relation has had.

    Attributes:
        key: the primary key's positions now.
        left_out: columns that it has at its source and not here, with their types there.
    """

    relation: str
    columns: tuple[Kept, ...]
    key: tuple[int, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(relation: Relation) -> Layout:
        """That of a relation whose columns have not changed."""
        columns = tuple(Kept(one.name, one.type) for one in relation.schema)
        return Layout(relation.name, columns, relation.key, relation.left_out)

    @property
    def generation(self) -> int:
        """Of the last change."""
        return max((max(one.since, one.until or 0) for one in self.columns), default=0)

    @property
    def lost(self) -> frozenset[int]:
        """Positions of the columns of which no value comes any more."""
        return frozenset(at for at, one in enumerate(self.columns) if one.lost)

    def as_of(self, generation: int) -> Relation:
        """The relation as a view is planned over it; every position is there, others' columns hidden."""
        schema = tuple(
            Column(one.name, one.type, not one.seen(generation), one.before) for one in self.columns
        )
        seen = {one.name: at for at, one in enumerate(schema) if not one.hidden}
        names = [self.columns[at].name for at in self.key]
        key = tuple(seen[name] for name in names) if all(name in seen for name in names) else ()
        return Relation(self.relation, schema, key, self.left_out)

    @property
    def newest(self) -> Relation:
        """As a view is planned over it now."""
        return self.as_of(self.generation)

    def captured(self, now: CapturedRelation) -> CapturedRelation:
        """What the database has now, its columns at their places."""
        fresh = {one.name: at for at, one in enumerate(now.relation.schema)}
        sources = [
            now.source_types[fresh[one.name]]
            if one.until is None and one.name in fresh
            else one.source or one.type
            for one in self.columns
        ]
        return replace(now, relation=self.newest, source_types=tuple(sources), lost=self.lost)

    def grown(self, now: CapturedRelation, generation: int, number: int) -> Layout:
        """The layout with what the database has now; itself where nothing has changed.

        Args:
            generation: of what changes now.
            number: the next transaction number.
        """
        columns, places = list(self.columns), {}
        seen = {one.name: at for at, one in enumerate(columns) if one.until is None}
        for fresh in _fresh(now):
            at = seen.get(fresh.name)
            if at is not None and same_column(columns[at], fresh):
                columns[at] = replace(
                    columns[at],
                    source=fresh.source,
                    native=fresh.native,
                    identity=fresh.identity,
                    made=fresh.made,
                )
                places[fresh.name] = at
                continue
            added = replace(fresh, since=generation, first=number)
            if at is not None and widened(columns[at], fresh):
                columns[at] = replace(columns[at], until=generation)
                added = replace(added, before=at, first=columns[at].first)
            elif at is not None:
                columns[at] = _gone(columns[at], generation, number)
            places[fresh.name] = len(columns)
            columns.append(added)
        for name, at in seen.items():
            if name not in places:
                columns[at] = _gone(columns[at], generation, number)
        key = tuple(places[now.relation.schema[at].name] for at in now.relation.key)
        _end_with_their_successors(columns, number)
        found = Layout(self.relation, tuple(columns), key, now.refused)
        return self if found == self else found


def _gone(column: Kept, generation: int, number: int) -> Kept:
    return replace(column, until=generation, lost=True, last=number)


def _end_with_their_successors(columns: list[Kept], number: int) -> None:
    """A narrower column is lost with the one that went on with it: the same events tell both."""
    for column in reversed(columns):
        if column.lost and column.before is not None and not columns[column.before].lost:
            columns[column.before] = replace(columns[column.before], lost=True, last=number)


def _fresh(now: CapturedRelation) -> list[Kept]:
    natives = now.natives or now.source_types
    identities = now.identities or ("",) * len(now.source_types)
    made = now.made or ("",) * len(now.source_types)
    parts = zip(now.relation.schema, now.source_types, natives, identities, made, strict=True)
    return [
        Kept(column.name, column.type, source, native, identity, entry)
        for column, source, native, identity, entry in parts
    ]


def same_column(known: Kept, now: Kept) -> bool:
    """Whether a column is the one of before, and its values are read and stored as before."""
    if known.identity and now.identity and known.identity != now.identity:
        return False
    if known.type != now.type:
        return False
    if not known.native or known.native == now.native:
        return not _written_anew(known.made, now.made)
    return _read_alike(known, now) and holds(known.native, now.native)


def _written_anew(before: str, now: str) -> bool:
    """Whether a column of one type may have had another in between, by which its values changed.

    A type that changes them changes the column's entry and writes the table's files anew. Others do
    one of these; what fills in a column that stored rows lacked does both, and changes no value.
    """
    old, new = before.split(), now.split()
    return len(old) == 2 and len(new) >= 2 and old[0] != new[0] and old[1] != new[1]


def widened(known: Kept, now: Kept) -> bool:
    """Whether a column has a wider type, by which all that it held is what it was."""
    if known.identity and now.identity and known.identity != now.identity:
        return False
    before = known.native or known.type
    if known.native == now.native and _written_anew(known.made, now.made):
        return False
    return _read_alike(known, now) and holds(before, now.native or now.type)


def _read_alike(known: Kept, now: Kept) -> bool:
    """Whether events carry the values of both in one form."""
    return written_as(known.source or known.type) == written_as(now.source)


_WHOLE = {
    "tinyint": 1, "smallint": 2, "int2": 2, "mediumint": 3, "int": 4, "int4": 4, "integer": 4,
    "bigint": 8, "int8": 8,
}  # fmt: skip
_FLOATS = {"float": 4, "float4": 4, "real": 4, "double": 8, "float8": 8, "double precision": 8}
_TEXTS = {
    "varchar": None, "character varying": None, "text": 65535, "tinytext": 255, "mediumtext": 1 << 24,
    "longtext": 1 << 32,
}  # fmt: skip
_ENDLESS = 1 << 40
_SET = re.compile(r"(?:character set|collate)\s+(\S+)")
_ITEMS = re.compile(r"^(enum|set)\((.*)\)$")


def holds(before: str, now: str) -> bool:
    """Whether a database keeps every value as it is when a column's type becomes another.

    Types as a database writes them, MariaDB's with `character set NAME` where they have one.
    """
    if before == now:
        return True
    sets = [_SET.findall(one) for one in (before, now)]
    if sets[0] != sets[1] and sets[1] != ["utf8mb4"]:
        return False
    before, now = (" ".join(_SET.sub("", one).split()).lower() for one in (before, now))
    items = [_ITEMS.match(one) for one in (before, now)]
    if items[0] and items[1]:
        return items[0][1] == items[1][1] and (items[1][2] + ",").startswith(items[0][2] + ",")
    old, new = source_type(before), source_type(now)
    if old.base == new.base and old.arguments == new.arguments:
        return True
    bases = [one.base.removesuffix(" zerofill").removesuffix(" unsigned") for one in (old, new)]
    unsigned = ["unsigned" in one.base for one in (old, new)]
    if all(base in _WHOLE for base in bases):
        sizes = [_WHOLE[base] for base in bases]
        if unsigned[0] == unsigned[1]:
            return sizes[1] >= sizes[0]
        return unsigned[0] and sizes[1] > sizes[0]
    if all(base in _FLOATS for base in bases):
        return _FLOATS[bases[1]] >= _FLOATS[bases[0]] and not new.arguments
    if old.base in ("numeric", "decimal") and new.base in ("numeric", "decimal"):
        return _digits(new.arguments) >= _digits(old.arguments) and _scales(old, new)
    if old.base in _TEXTS and new.base in _TEXTS:
        endless = "character varying" in (old.base, new.base)
        return _length(new, endless) >= _length(old, endless)
    if old.base == "uuid":
        return new.base == "text"
    if old.base == new.base and "time" in old.base:
        least = 0 if old.base == "datetime" else 6
        return (new.arguments or (least,)) >= (old.arguments or (least,))
    return old.base == new.base in ("varbinary",) and new.arguments >= old.arguments


def _digits(arguments: Sequence[int]) -> int:
    """Before the point; as many as there can be where nothing is said."""
    if not arguments:
        return _ENDLESS
    return arguments[0] - (arguments[1] if len(arguments) > 1 else 0)


def _scales(old: SourceType, new: SourceType) -> bool:
    if not new.arguments:
        return True
    if not old.arguments:
        return False
    scales = [one.arguments[1] if len(one.arguments) > 1 else 0 for one in (old, new)]
    return scales[1] >= scales[0]


def _length(text: SourceType, endless: bool) -> int:
    """How much a text may hold; PostgreSQL's `text` (`endless`) as much as it likes, MariaDB's 64 KiB."""
    if text.arguments:
        return text.arguments[0]
    return (None if endless else _TEXTS[text.base]) or _ENDLESS


def layout_of(entry: Mapping[str, Any]) -> Layout:
    """From a catalog's entry of a relation. Raises KeyError, TypeError for another format."""
    columns = tuple(Kept(**one) for one in entry["schema"])
    left_out = tuple((str(name), str(type_)) for name, type_ in entry.get("left_out", ()))
    return Layout(entry["name"], columns, tuple(entry["key"]), left_out)


def entry_of(layout: Layout) -> dict[str, Any]:
    """The catalog's entry, JSON-able."""
    columns = [one.as_dict() for one in layout.columns]
    left_out = [list(one) for one in layout.left_out]
    return {
        "name": layout.relation,
        "schema": columns,
        "key": list(layout.key),
        "left_out": left_out,
    }


def grown(
    layouts: Mapping[str, Layout],
    relations: Sequence[CapturedRelation],
    number: int,
    whole: Collection[str] = (),
) -> dict[str, Layout]:
    """The layouts of these relations with what their databases have now; one generation for all.

    Args:
        number: the next transaction's.
        whole: sources that tell what a new column holds as updates (`differential`).
    """
    generation = 1 + max((one.generation for one in layouts.values()), default=-1)
    found = {}
    for one in relations:
        name = one.relation.name
        known = layouts.get(name)
        if known is None:
            known = Layout(name, tuple(_fresh(one)), one.relation.key, one.refused)
            found[name] = known
        else:
            found[name] = known.grown(one, generation, 0 if one.source in whole else number)
    return found


def loses(layouts: Mapping[str, Layout], reads: Mapping[str, frozenset[int]]) -> list[str]:
    """What a view cannot read any more of what it reads, in words."""
    said = []
    for name, positions in sorted(reads.items()):
        layout = layouts.get(name)
        for at in sorted(positions & layout.lost) if layout else ():
            assert layout is not None
            said.append(f"column {layout.columns[at].name} of {name} {_why(layout, at)}")
    return said


def _why(layout: Layout, at: int) -> str:
    """What became of a lost column."""
    old = layout.columns[at]
    new = next((c for c in layout.columns if c.name == old.name and c.until is None), None)
    if new is None:
        return "was dropped or renamed"
    before, now = old.native or old.type, new.native or new.type
    if before != now or old.type != new.type:
        return f"was {before} and is {now}: what is stored may have changed with it"
    return "was dropped and made anew, or retyped and back: what is stored may be something else"


def unrecorded(
    layouts: Mapping[str, Layout], reads: Mapping[str, frozenset[int]], emptied: Mapping[str, int]
) -> Iterator[tuple[str, int]]:
    """Columns among those read that `_updates` does not have from the beginning: relation and position.

    Args:
        emptied: relation -> the last number at which it was emptied: what it holds was told since.
    """
    for name, positions in sorted(reads.items()):
        for at in sorted(positions) if name in layouts else ():
            if layouts[name].columns[at].first > max(emptied.get(name, 0), 0):
                yield name, at
