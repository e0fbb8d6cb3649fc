"""Successive snapshots in a folder: which comes next, and the texts of its rows (DESIGN 6).

Each entry of the folder is one snapshot, in the order of their names (digits count as numbers: 9 before
10). A file is a snapshot of the source's only table. A subfolder holds each table as `<table>.csv` or
`.parquet`, or as a subfolder `<table>` of such files; with one table, the files themselves.

**Half-written ones are not read.** Names that begin with `.` or `_` or end in `.tmp` or `.part` do not
count: who writes under such a name and renames at the end is always right. Otherwise a snapshot is taken
when nothing in it has changed for a while (`settle_seconds`), or a subfolder has a `_SUCCESS`. A CSV file
that does not end with a line's end, and a Parquet file without its footer, are never whole. What was read
is compared with what is there afterwards.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from streaming.captured.captured_schema import CapturedRelation
from streaming.errors import FrescoError

ENDINGS = (".csv", ".parquet")
_UNFINISHED = (".tmp", ".part", ".crdownload")
_DIGITS = re.compile(r"(\d+)")
Signature = tuple[tuple[str, int, int], ...]
"""Path, size and time of change of each file."""


@dataclass(frozen=True)
class FoundSnapshot:
    """A snapshot that is there.

    Attributes:
        name: of its entry in the folder.
        files: table -> its files, sorted.
        signature: of all of them.
        changed_ms: when the newest was written.
    """

    name: str
    files: dict[str, tuple[Path, ...]]
    signature: Signature
    changed_ms: int


@dataclass(frozen=True)
class CsvFormat:
    """How CSV files are written; the first line names the columns."""

    delimiter: str = ","
    null: str = ""


def order_of(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """By which snapshots are sorted: runs of digits as numbers, and no two names alike (7 and 07)."""
    parts = _DIGITS.split(Path(name).stem if name.endswith(ENDINGS) else name)
    runs = ((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts if part)
    return tuple(runs), name


def next_snapshot(
    folder: Path, tables: Sequence[str], after: str | None, settle_seconds: float
) -> FoundSnapshot | None:
    """The first snapshot whose name sorts after another's, once it is whole; None while there is none.

    Raises:
        FrescoError: SNAPSHOT_FOLDER, SNAPSHOT_TABLE (a table is not in it), SNAPSHOT_UNFINISHED.
    """
    try:
        names = [entry.name for entry in folder.iterdir() if _counts(entry)]
    except OSError as error:
        raise FrescoError(
            "SNAPSHOT_FOLDER",
            f"the folder of snapshots cannot be read: {type(error).__name__}",
            where=str(folder),
            todo="correct `snapshots.folder`, or make the folder",
        ) from error
    later = [n for n in names if after is None or order_of(n) > order_of(after)]
    if not later:
        return None
    entry = folder / min(later, key=order_of)
    found = _found(entry, tables)
    settled = time.time() - found.changed_ms / 1000 >= settle_seconds
    if not settled and not (entry / "_SUCCESS").is_file():
        return None
    for files in found.files.values():
        for file in files:
            _refuse_unfinished(file)
    return found


def signature_now(found: FoundSnapshot) -> Signature:
    """The signature of the same files as they are now."""
    return _signature(found.files)


def _counts(entry: Path) -> bool:
    name = entry.name
    if name.startswith((".", "_")) or name.endswith(_UNFINISHED):
        return False
    return entry.is_dir() or name.endswith(ENDINGS)


def _found(entry: Path, tables: Sequence[str]) -> FoundSnapshot:
    files: dict[str, tuple[Path, ...]] = {}
    if entry.is_file():
        if len(tables) > 1:
            raise _lacks(entry, f"is one file, and the source has {len(tables)} tables")
        files[tables[0]] = (entry,)
    else:
        for table in tables:
            own = [entry / f"{table}{ending}" for ending in ENDINGS]
            own = [file for file in own if file.is_file()]
            if not own and (entry / table).is_dir():
                own = _parts(entry / table)
            if not own and len(tables) == 1:
                own = _parts(entry)
            if not own:
                raise _lacks(entry, f"has no file for table {table}")
            files[table] = tuple(sorted(own))
    signature = _signature(files)
    return FoundSnapshot(
        entry.name, files, signature, max(one[2] for one in signature) // 1_000_000
    )


def _parts(folder: Path) -> list[Path]:
    return [one for one in folder.iterdir() if one.is_file() and _counts(one)]


def _signature(files: dict[str, tuple[Path, ...]]) -> Signature:
    try:
        stats = [(str(one), one.stat()) for parts in files.values() for one in parts]
    except OSError as error:
        raise FrescoError(
            "SNAPSHOT_UNFINISHED",
            f"a file went away while the snapshot was looked at: {type(error).__name__}",
            where=str(error.filename),
            todo="leave a snapshot where it is until it is published",
        ) from error
    return tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in stats)


def _lacks(entry: Path, what: str) -> FrescoError:
    return FrescoError(
        "SNAPSHOT_TABLE",
        f"snapshot {entry.name} {what}",
        where=str(entry),
        todo="write all tables of a snapshot into one subfolder, as <table>.csv or <table>.parquet; to"
        " leave this one out, rename it to begin with '_'",
    )


def _refuse_unfinished(file: Path) -> None:
    """A file whose end is not there.

    Raises:
        FrescoError: SNAPSHOT_UNFINISHED.
    """
    with file.open("rb") as content:
        content.seek(0, 2)
        size = content.tell()
        content.seek(max(0, size - 4))
        end = content.read(4)
    whole = end == b"PAR1" if file.suffix == ".parquet" else end.endswith((b"\n", b"\r"))
    if not whole:
        raise FrescoError(
            "SNAPSHOT_UNFINISHED",
            "the file has no end: it is still being written, or its writer was stopped",
            where=str(file),
            todo="finish it (a CSV file ends with a line's end); better write under a name that begins"
            " with '.' and rename it when it is whole",
        )


# Rows ---------------------------------------------------------------------------------------------


def texts_sql(
    engine: duckdb.DuckDBPyConnection,
    captured: CapturedRelation,
    files: Sequence[Path],
    written: CsvFormat,
) -> str:
    """SQL of a table's rows, the captured columns as texts under their names.

    Raises:
        FrescoError: SNAPSHOT_COLUMNS, SNAPSHOT_UNREADABLE.
    """
    parts = []
    for file in files:
        if file.suffix == ".parquet":
            parts.append(_parquet(engine, captured, file))
        else:
            parts.append(_csv(captured, file, written))
    return " UNION ALL ".join(parts)


def _csv(captured: CapturedRelation, file: Path, written: CsvFormat) -> str:
    try:
        with file.open(encoding="utf-8-sig", newline="") as content:
            header = next(csv.reader(content, delimiter=written.delimiter), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FrescoError(
            "SNAPSHOT_UNREADABLE",
            f"the first line cannot be read: {error}",
            where=str(file),
            todo="write CSV in UTF-8, the first line with the columns' names",
        ) from error
    _check_columns(captured, header, file)
    columns = ", ".join(f"{_literal(name)}: 'VARCHAR'" for name in header)
    wanted = ", ".join(_identifier(column.name) for column in captured.relation.schema)
    return (
        f"SELECT {wanted} FROM read_csv({_literal(str(file))}, columns = {{{columns}}},"
        f" header = true, auto_detect = false, delim = {_literal(written.delimiter)}, quote = '\"',"
        f" escape = '\"', nullstr = {_literal(written.null)}, allow_quoted_nulls = false,"
        " strict_mode = true)"
    )


def _parquet(engine: duckdb.DuckDBPyConnection, captured: CapturedRelation, file: Path) -> str:
    read = f"read_parquet({_literal(str(file))})"
    try:
        described = engine.execute(f"DESCRIBE SELECT * FROM {read}").fetchall()
    except duckdb.Error as error:
        raise FrescoError(
            "SNAPSHOT_UNREADABLE",
            f"no Parquet file: {str(error).splitlines()[0]}",
            where=str(file),
            todo="write it anew, whole",
        ) from error
    types = {row[0]: row[1] for row in described}
    _check_columns(captured, list(types), file)
    cells = []
    for column in captured.relation.schema:
        name = _identifier(column.name)
        text = f"CAST({name} AS VARCHAR)"
        if types[column.name] == "BLOB":
            text = f"'\\x' || lower(hex({name}))"
        cells.append(f"{text} AS {name}")
    return f"SELECT {', '.join(cells)} FROM {read}"


def _check_columns(captured: CapturedRelation, header: Sequence[str], file: Path) -> None:
    """Every captured column is there once; others do not matter.

    Raises:
        FrescoError: SNAPSHOT_COLUMNS.
    """
    wanted = [column.name for column in captured.relation.schema]
    lacking = [name for name in wanted if name not in header]
    doubled = sorted({name for name in wanted if list(header).count(name) > 1})
    if lacking or doubled:
        which = f"lacks {', '.join(lacking)}" if lacking else f"has {', '.join(doubled)} twice"
        raise FrescoError(
            "SNAPSHOT_COLUMNS",
            f"the snapshot of {captured.relation.name} {which}; it has {', '.join(header)[:200]}",
            where=str(file),
            todo="write the columns that the configuration names, or change the configuration and start"
            " a new pipeline",
        )


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
