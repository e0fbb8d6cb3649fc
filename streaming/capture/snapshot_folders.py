"""The snapshots of a source in their form, one numbered folder each, as `fresco snapshots` keeps them.

A folder holds `<table>.parquet`, and `snapshot.json` with the snapshot's name, its time, and of each
table the topic, the columns and the key that it had when it was taken, in the order in which the tables
are published. By that a snapshot is published whatever the configuration says by then: of one that is
half published, readers have the first events already. A table that is no longer read stays as it was read
last (`away`), to be compared with when it is read again. Columns are compared by name: where a table is
not as it was in the snapshot before, `<table>.before.parquet` holds the rows of that one with the columns
of this one, NULL where there was none. All of it is made before the folder is there, and does not change.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from streaming.capture import differential
from streaming.capture.dump import dump_tables
from streaming.capture.durable_folder import move_durably
from streaming.capture.snapshot_files import (
    CsvFormat,
    FoundSnapshot,
    next_snapshot,
    signature_now,
    texts_sql,
)
from streaming.captured.captured_schema import CapturedRelation, captured
from streaming.configuration.pipeline_config import Config
from streaming.configuration.source_config import SnapshotsConfig
from streaming.errors import FrescoError


class Forms:
    """Those of one source."""

    def __init__(
        self, config: Config, source: str, settings: SnapshotsConfig, folder: Path
    ) -> None:
        self._config, self._source = config, source
        self._settings, self._folder = settings, folder

    def _place(self, number: int) -> Path:
        return self._folder / f"{number:09d}"

    def there(self, number: int) -> bool:
        """Whether that snapshot is in its form."""
        return self._place(number).is_dir()

    def about(self, number: int) -> dict[str, Any]:
        """A snapshot's `name`, `ms` and `tables`."""
        found: dict[str, Any] = json.loads((self._place(number) / "snapshot.json").read_text())
        return found

    def check(self, number: int) -> None:
        """The last published form is there; those before it go.

        Raises:
            FrescoError: SNAPSHOT_STATE.
        """
        if number and not (self._place(number) / "snapshot.json").is_file():
            raise FrescoError(
                "SNAPSHOT_STATE",
                f"snapshot {number} is published, and its form is not there to compare with",
                where=str(self._folder),
                todo="restore the folder with the warehouse it belongs to, or publish under another"
                " prefix in a new pipeline",
            )
        for entry in self._folder.glob("[0-9]*"):
            if int(entry.name) < number:
                shutil.rmtree(entry, ignore_errors=True)

    def form(self, number: int, one: CapturedRelation) -> Path:
        """A table's rows in a snapshot."""
        return self._place(number) / f"{_table(one)}.parquet"

    def before(self, number: int, one: CapturedRelation) -> Path | None:
        """A table's rows in the snapshot before that one, with its columns; None for the first."""
        if number == 1:
            return None
        fitted = self._place(number) / f"{_table(one)}.before.parquet"
        return fitted if fitted.is_file() else self.form(number - 1, one)

    def as_taken(
        self, number: int, relations: Sequence[CapturedRelation]
    ) -> Iterator[CapturedRelation]:
        """All tables of a snapshot as they were when it was taken, in the order that they had.

        Raises:
            FrescoError: SNAPSHOT_STATE.
        """
        about, known = self.about(number), {_table(one): one for one in relations}
        if "tables" not in about:  # of a version that did not note it
            yield from relations
            return
        for table, was in about["tables"].items():
            one, name = known.get(table), f"{self._source}.{table}"
            if (place := about.get("places", {}).get(table)) is None:
                if one is None:
                    raise _unknown(name, about["name"])
                place = {"topic": one.topic, "collection": one.collection}
            yield _relation(name, was, place)

    def take(
        self,
        engine: duckdb.DuckDBPyConnection,
        relations: Sequence[CapturedRelation],
        number: int,
    ) -> bool:
        """Bring the snapshot after that one into its form; False where there is none.

        Raises:
            FrescoError: SNAPSHOT_*, SOURCE_*.
        """
        settings = self._settings
        draft = self._folder / "draft"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        found: FoundSnapshot | None = None
        if settings.folder is not None:
            after = self.about(number)["name"] if number else None
            tables = [_table(one) for one in relations]
            found = next_snapshot(settings.folder, tables, after, settings.settle_seconds)
            if found is None:
                return False
            name, ms, files = found.name, found.changed_ms, found.files
            written = CsvFormat(settings.delimiter, settings.null)
        else:
            secret = self._config.sources[self._source].secret() or ""
            ms, files = dump_tables(secret, self._source, relations, draft)
            name = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))
            written = CsvFormat()
        for one in relations:
            table = _table(one)
            texts = texts_sql(engine, one, files[table], written)
            differential.write_form(engine, texts, one, draft / f"{table}.parquet")
            if number:
                self._fit(engine, one, number, draft)
        if found is not None and signature_now(found) != found.signature:
            raise FrescoError(
                "SNAPSHOT_UNFINISHED",
                f"snapshot {found.name} was changed while it was read",
                where=str(settings.folder),
                todo="leave a snapshot as it is once it is there",
            )
        for text in draft.glob("*.csv"):
            text.unlink()
        noted = {
            "name": name,
            "ms": ms,
            "tables": {_table(one): _described(one) for one in relations},
            "places": {_table(one): _place(one) for one in relations},
            "away": self._keep_away(relations, number, draft) if number else {},
        }
        (draft / "snapshot.json").write_text(json.dumps(noted))
        move_durably(draft, self._place(number + 1))
        return True

    def _fit(
        self, engine: duckdb.DuckDBPyConnection, one: CapturedRelation, number: int, draft: Path
    ) -> None:
        """Write the rows of the snapshot before with the columns of this one, where they differ.

        Raises:
            FrescoError: SNAPSHOT_COLUMNS.
        """
        table, about = _table(one), self.about(number)
        if "tables" not in about or about["tables"].get(table) == _described(one):
            return
        tables = {**about.get("away", {}), **about["tables"]}
        new, fitted = draft / f"{table}.parquet", draft / f"{table}.before.parquet"
        if table not in tables:
            differential.write_fitted(engine, one, None, (), new, fitted)
            return
        old = _relation(one.relation.name, tables[table], _place(one))
        types = {column.name: column.type for column in old.relation.schema}
        other = [c.name for c in one.relation.schema if types.get(c.name, c.type) != c.type]
        if other or tables[table]["key"] != _described(one)["key"]:
            raise FrescoError(
                "SNAPSHOT_COLUMNS",
                f"{one.relation.name} has another "
                + (f"type of {', '.join(other)}" if other else "key")
                + " than in the snapshot that was published last",
                where=one.relation.name,
                todo="change it back, or publish under another prefix in a new pipeline",
            )
        differential.write_fitted(engine, one, self.form(number, one), tuple(types), new, fitted)

    def _keep_away(
        self, relations: Sequence[CapturedRelation], number: int, draft: Path
    ) -> dict[str, Any]:
        """Take over the forms of tables that are no longer read, and what was noted of them."""
        about, read = self.about(number), {_table(one) for one in relations}
        known = {**about.get("away", {}), **about.get("tables", {})}
        away = {table: was for table, was in known.items() if table not in read}
        for table in away:
            name = f"{table}.parquet"
            os.link(self._place(number) / name, draft / name)
        return away


def _table(one: CapturedRelation) -> str:
    return one.relation.name.partition(".")[2]


def _described(one: CapturedRelation) -> dict[str, Any]:
    """What `snapshot.json` notes of a table."""
    names = [column.name for column in one.relation.schema]
    return {
        "columns": [[name, text] for name, text in zip(names, one.source_types, strict=True)],
        "key": [names[at] for at in one.relation.key],
    }


def _place(one: CapturedRelation) -> dict[str, str]:
    """Where the events of a table go, and how it is counted there."""
    return {"topic": one.topic, "collection": one.collection}


def _relation(name: str, described: dict[str, Any], place: dict[str, str]) -> CapturedRelation:
    """A relation as it was noted; its decimals are published as strings, whatever they were."""
    return captured(
        name,
        place["topic"],
        [(column, text) for column, text in described["columns"]],
        key=described["key"],
        collection=place["collection"],
        decimals="string",
    )


def _unknown(name: str, snapshot: str) -> FrescoError:
    return FrescoError(
        "SNAPSHOT_STATE",
        f"snapshot {snapshot} holds {name}, which is no longer configured; where its events go was not"
        " noted",
        where=name,
        todo="put the table back into the configuration until the snapshot is published",
    )
