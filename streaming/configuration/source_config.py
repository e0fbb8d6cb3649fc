"""The part of a configuration that says of a source where it is and what is captured (DESIGN 13)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from streaming.errors import FrescoError
from streaming.plain import controls, plain


def _without_controls(value: str) -> str:
    if controls(value):
        raise ValueError(f"{plain(value)} holds a control character or a line's end")
    return value


Named = Annotated[str, AfterValidator(_without_controls)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class SnapshotsConfig(Section):
    """A source without a log, published from its successive snapshots by `fresco snapshots`."""

    folder: Path | None = None
    """Where they are, one file or subfolder each; without it the tables are read by `connection`."""
    settle_seconds: Annotated[float, Field(ge=0)] = 10.0
    """A snapshot is read when nothing in it has changed for so long."""
    every_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Between two looks at the folder, or two readings of the tables."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    null: str = ""
    """What stands for NULL in CSV; in quotes it is a text."""


class SourceConfig(Section):
    """One captured database."""

    prefix: str | None = None
    """Debezium's `topic.prefix`; the source's name when not given."""
    database: str = "postgres"
    """One that a kind of source has (`ask.source_kinds`): postgres, mariadb, mysql."""
    connection: SecretStr | None = None
    """postgresql:// or mariadb:// URL of a reader of the catalog; schemas come from it when given."""
    connection_file: Path | None = None
    """A file that holds the URL instead, and nothing else."""
    connect: SecretStr | None = None
    """URL of the Kafka Connect worker that runs the connector, whose settings are read there."""
    tables: dict[Named, Named]
    """Name in views -> captured table, `schema.table`."""
    columns: dict[str, dict[Named, str]] = Field(default_factory=dict)
    """Per table name: column -> database type, where no connection can tell."""
    keys: dict[str, list[str]] = Field(default_factory=dict)
    """Per table name: primary key columns, where no connection can tell."""
    capture: Literal["debezium", "none"] = "debezium"
    """`none`: nothing captures it; its tables are for views `USING isolated` only."""
    snapshots: SnapshotsConfig | None = None
    transactions: Literal["metadata", "per-event"] = "metadata"
    decimals: Literal["precise", "string"] = "precise"
    """The connector's `decimal.handling.mode`."""
    snapshot: bool = True
    """Whether the connector takes an initial snapshot (closed by its notifications)."""
    notifications: str | None = None
    """Topic of Debezium's notifications; `<prefix>.notifications` when not given."""
    query_timeout: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that a statement of a view manager may take there."""
    patience: Annotated[float, Field(ge=0)] = 60.0
    """Seconds that a view waits for it before it leaves its group, which then goes on without it."""
    full_rows: bool | None = None
    """Asserts full row images where no connection can be asked."""

    @field_validator("connect", mode="before")
    @classmethod
    def _is_an_address(cls, value: object) -> object:
        if value in ("", None):
            return None
        if not isinstance(value, str) or not value.startswith(("http://", "https://")):
            raise ValueError("connect is the http:// or https:// URL of a Kafka Connect worker")
        return value

    @model_validator(mode="after")
    def _has_one_connection(self) -> SourceConfig:
        if self.connection is not None and self.connection_file is not None:
            raise ValueError("give connection or connection_file, not both")
        read = self.snapshots is not None and self.snapshots.folder is None
        if read and self.connection is None and self.connection_file is None:
            raise ValueError("snapshots need a folder, or a connection to read the tables by")
        return self

    @model_validator(mode="after")
    def _describes_its_tables(self) -> SourceConfig:
        for key, described in (("columns", self.columns), ("keys", self.keys)):
            if unknown := sorted(set(described) - set(self.tables)):
                raise ValueError(f"{key}.{unknown[0]}: no such table under tables")
        for table, names in self.keys.items():
            if table not in self.columns:
                raise ValueError(f"keys.{table}: its columns are not under columns.{table}")
            if unknown := [name for name in names if name not in self.columns[table]]:
                raise ValueError(f"keys.{table}: no column {unknown[0]} under columns.{table}")
        return self

    def secret(self) -> str | None:
        """The connection URL in clear, or None.

        Raises:
            FrescoError: CONFIG_FILE when `connection_file` cannot be read.
        """
        if self.connection_file is not None:
            try:
                return self.connection_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise FrescoError(
                    "CONFIG_FILE",
                    f"connection_file cannot be read: {type(error).__name__}",
                    where=str(self.connection_file),
                    todo="write the connection's URL into this file, readable for this user",
                ) from None
        return self.connection.get_secret_value() if self.connection else None
