"""View specifications: a view file's header and SELECT as one value that the pipeline plans with.

A folder holds one view in each `*.sql`. A view may scan captured relations and other views of the
folder, which are then its parents; parents come first in what is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sqlglot import tokenize
from sqlglot.tokenizer_core import TokenType

from streaming.algebra.keys import derive_key
from streaming.algebra.tree import Relation, Tree
from streaming.algebra.tree import relations as scanned
from streaming.errors import FrescoError
from streaming.pipeline.view_file import Header, read_header
from streaming.plain import controls, plain
from streaming.scalars.expression import Schema
from streaming.sql.parse import parse, tables
from streaming.sql.scope import lookup
from streaming.viewmanagers.modes import MODES


@dataclass(frozen=True)
class ViewSpec:
    """A view as specified.

    Attributes:
        level: convergent, strong or complete.
        every: N for complete-N, None for every state.
        mode: how it is maintained (`modes.families`).
        refresh: the period of a periodic mode ("5 minutes"), or None.
        sql: the SELECT as written.
        schema: output columns with Spark's types.
        relations: names of the scanned relations (and parent views), in order of first use.
        key: output positions that identify a row; () when there is at most one row; None when none
            can be derived, and equal rows are told apart by their count only.
        location: the file, "" for one from the stored catalog.
        layout: the generation of the relations' columns that it is planned as of (`captured.layout`).
    """

    name: str
    level: str
    every: int | None
    mode: str
    refresh: str | None
    sql: str
    tree: Tree
    schema: Schema
    relations: tuple[str, ...]
    key: tuple[int, ...] | None
    location: str = ""
    layout: int = 0

    @property
    def relation(self) -> Relation:
        """The view as a relation that other views may scan."""
        return Relation(self.name, self.schema, self.key or ())


def parse_view(text: str, relations: Mapping[str, Relation], *, origin: str = "") -> ViewSpec:
    """The view that a specification defines.

    Args:
        relations: what it may scan: captured relations, and parent views as relations.
        origin: the file's path, for errors.

    Raises:
        FrescoError: VIEW_* for the header, SQL_* for the SELECT, with line and column.
    """
    return _spec(read_header(text, origin=origin), relations, origin)


def parse_view_file(path: Path, relations: Mapping[str, Relation]) -> ViewSpec:
    """The view in a file; see `parse_view`."""
    return parse_view(_text(path), relations, origin=str(path))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FrescoError(
            "VIEW_SYNTAX", "the file is not UTF-8 text", where=str(path), todo="save it as UTF-8"
        ) from error


def _identifiers(sql: str) -> Iterator[str]:
    """The names in quotes."""
    for token in tokenize(sql, read="spark"):
        if token.token_type is TokenType.IDENTIFIER:
            yield token.text


def _spec(header: Header, relations: Mapping[str, Relation], origin: str) -> ViewSpec:
    tree = parse(header.query, relations, origin=origin)
    for name in (*(column.name for column in tree.schema), *_identifiers(header.query)):
        if controls(name):
            raise FrescoError(
                "VIEW_COLUMN_NAME",
                f"the name {plain(name)} holds a control character, a line's end or a turn of direction",
                where=origin or f"view {header.name}",
                todo="give it another name with AS",
            )
    return ViewSpec(
        name=header.name,
        level=header.level,
        every=header.every,
        mode=header.mode,
        refresh=header.refresh,
        sql=header.query.strip().rstrip(";").rstrip(),
        tree=tree,
        schema=tree.schema,
        relations=scanned(tree),
        # Of an anomaly rows may stand twice.
        key=None if MODES[header.mode].anomalous else derive_key(tree, relations),
        location=origin,
    )


Instead = Callable[[Header, FrescoError], ViewSpec | None]
"""What to take in place of a view whose file does not fit the relations; None to refuse it."""


AsOf = Callable[[Header], tuple[int, Mapping[str, Relation]]]
"""The generation that a view is planned as of, and the relations as they are seen then."""


def load_views(
    folder: Path | str,
    relations: Mapping[str, Relation],
    instead: Instead = lambda *_: None,
    as_of: AsOf = lambda _: (0, {}),
) -> list[ViewSpec]:
    """Every view of a folder (`*.sql`, one each), parents before the views that scan them.

    Raises:
        FrescoError: VIEW_NONE, VIEW_DUPLICATE (names are compared without case), VIEW_CYCLE, and
            the
            codes of `parse_view`.
    """
    paths = sorted(Path(folder).glob("*.sql"))
    if not paths:
        raise FrescoError(
            "VIEW_NONE",
            "there is no view file",
            where=str(folder),
            todo="write one view to a file <name>.sql there",
        )
    headers: dict[str, tuple[Header, str]] = {}
    for path in paths:
        header = read_header(_text(path), origin=str(path))
        earlier = headers.get(header.name.lower())
        if earlier is not None:
            raise FrescoError(
                "VIEW_DUPLICATE",
                f"view {header.name} is defined twice, in {earlier[1]} and {path}",
                where=str(path),
                todo="rename or remove one of them",
            )
        headers[header.name.lower()] = (header, str(path))
    return _in_order(headers, relations, instead, as_of)


def _in_order(
    headers: Mapping[str, tuple[Header, str]],
    relations: Mapping[str, Relation],
    instead: Instead,
    as_of: AsOf,
) -> list[ViewSpec]:
    known, specs, waiting = dict(relations), [], dict(headers)
    while waiting:
        ready = [
            name
            for name, (header, origin) in waiting.items()
            if not any(
                table.lower() in waiting and lookup(table, relations) is None
                for table in tables(header.query, origin=origin)
            )
        ]
        if not ready:
            names = [header.name for header, _ in waiting.values()]
            raise FrescoError(
                "VIEW_CYCLE",
                f"views scan each other in a circle: {', '.join(names)}",
                where=next(iter(waiting.values()))[1],
                todo="define one of them over the relations alone",
            )
        for name in ready:
            header, origin = waiting.pop(name)
            generation, seen = as_of(header)
            try:
                spec = replace(_spec(header, {**known, **seen}, origin), layout=generation)
            except FrescoError as error:
                found = instead(header, error)
                if found is None:
                    raise
                spec = found
            specs.append(spec)
            known[spec.name] = spec.relation
    return specs
