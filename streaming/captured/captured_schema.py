"""What is captured: sources, their relations, and how a database type becomes a Spark type.

A relation's schema comes from the database's catalog (`postgres.read_schemas`, `mysql.read_schemas`,
which names MariaDB's types by PostgreSQL's where their JSON is the same), else from the schema part that
Kafka Connect puts beside each event (`schema_from_connect`). The database type is kept beside Spark's,
because the same JSON value means different things under different types: 3 is a day for a `date`, a
millisecond for a `timestamp(3)` and a microsecond for a `timestamp` (FACTS, Debezium).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from streaming.algebra.tree import Relation
from streaming.captured.log_format import POSTGRES_LOG, LogFormat
from streaming.errors import FrescoError
from streaming.scalars.expression import Column, Schema

GLOBAL_TABLE = "fresco_global"
"""The captured table by which sources tag the parts of a global transaction (DESIGN 6)."""
UNSCALED = "decimal(38,18)"
"""Spark type of a NUMERIC without scale; a value it cannot hold exactly is refused by name."""

_PLAIN = {
    "int2": "smallint",
    "smallint": "smallint",
    "int4": "int",
    "integer": "int",
    "int": "int",
    "int8": "bigint",
    "bigint": "bigint",
    "float4": "float",
    "real": "float",
    "float8": "double",
    "double precision": "double",
    "bool": "boolean",
    "boolean": "boolean",
    "text": "string",
    "varchar": "string",
    "character varying": "string",
    "bpchar": "string",
    "character": "string",
    "char": "string",
    "uuid": "string",
    "json": "string",
    "jsonb": "string",
    "bytea": "binary",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamp without time zone": "timestamp_ntz",
    "timestamptz": "timestamp",
    "timestamp with time zone": "timestamp",
    "numeric": UNSCALED,
    "decimal": UNSCALED,
    "bigint unsigned": "decimal(20,0)",
    "bits": "binary",
}
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_ARGUMENTS = re.compile(r"\(\s*(-?\d+)\s*(?:,\s*(-?\d+)\s*)?\)")


@dataclass(frozen=True)
class SourceType:
    """A database type in parts: `base` in lower case without arguments, e.g. "timestamp"."""

    base: str
    arguments: tuple[int, ...]


def source_type(text: str) -> SourceType:
    """The parts of a type as `format_type` writes it ("timestamp(3) without time zone")."""
    match = _ARGUMENTS.search(text)
    arguments = tuple(int(part) for part in match.groups() if part is not None) if match else ()
    base = " ".join(_ARGUMENTS.sub(" ", text).lower().split())
    return SourceType(base, arguments)


def spark_type(text: str) -> str | None:
    """Spark's simple string for a database type; None when it is not supported."""
    parts = source_type(text)
    if parts.base in ("numeric", "decimal") and parts.arguments:
        precision = parts.arguments[0]
        scale = parts.arguments[1] if len(parts.arguments) > 1 else 0
        if not 0 <= scale <= precision <= 38:
            return None
        return f"decimal({precision},{scale})"
    return _PLAIN.get(parts.base)


@dataclass(frozen=True)
class CapturedSource:
    """One database under one connector.

    Attributes:
        name: the source's name in relations ("north" in "north.entry").
        prefix: the connector's `topic.prefix`.
        snapshot: whether the connector takes an initial snapshot; False for `snapshot.mode` never or
            no_data, whose relations are empty at number 0.
        transactions: "metadata" (BEGIN and END in the transaction topic) or "per-event" (producers
            without transactions: each event is one).
        log: how its events and transactions say their places.
        notifications: the topic of the connector's notifications; "" is `<prefix>.notifications`.
    """

    name: str
    prefix: str
    snapshot: bool = True
    transactions: Literal["metadata", "per-event"] = "metadata"
    log: LogFormat = POSTGRES_LOG
    notifications: str = ""

    @property
    def transaction_topic(self) -> str:
        return f"{self.prefix}.transaction"

    @property
    def notification_topic(self) -> str:
        return self.notifications or f"{self.prefix}.notifications"

    @property
    def ignored_topics(self) -> tuple[str, ...]:
        """Topics of the connector that carry no rows: logical messages (op m) and heartbeats."""
        return (f"{self.prefix}.message", f"__debezium-heartbeat.{self.prefix}", self.prefix)


@dataclass(frozen=True)
class CapturedRelation:
    """A captured table.

    Attributes:
        relation: name "source.table", schema in Spark's types, key positions.
        topic: the Kafka topic of its events.
        source: name of its `CapturedSource`.
        source_types: the database type of each column of `relation.schema`.
        collection: how END and notifications name the table ("public.entry"); "" derives it from
            the topic, which is right unless the connector had to replace characters in it.
        refused: columns left out because their type is not supported, as (name, type).
        decimals: "precise" or "string", the connector's `decimal.handling.mode`. It matters for
            NUMERIC(p,0) only, where base64 and digits can look alike; otherwise both are recognised.
        placeholder: the connector's `unavailable.value.placeholder` (`cdc.placeholder`).
        toasts_from: octets of a row from which PostgreSQL stores values of it apart.
        natives: the type of each column as the database itself writes it; () where nobody has asked it.
        identities: what it tells columns of one name apart by (`layout.Kept`); () likewise.
        made: what it tells apart by whether a column's values may have been written anew (`layout.Kept`).
        lost: positions of the columns of which no value comes any more.
    """

    relation: Relation
    topic: str
    source: str
    source_types: tuple[str, ...]
    collection: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    decimals: Literal["precise", "string"] = "precise"
    placeholder: str = "__debezium_unavailable_value"
    toasts_from: int = 2032
    natives: tuple[str, ...] = ()
    identities: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    lost: frozenset[int] = frozenset()

    @property
    def comes(self) -> tuple[int, ...]:
        """Positions of the columns whose values come."""
        return tuple(at for at in range(len(self.relation.schema)) if at not in self.lost)

    @property
    def counted_as(self) -> str:
        return self.collection or self.topic.partition(".")[2]


def captured(
    name: str,
    topic: str,
    columns: Sequence[tuple[str, str]],
    *,
    key: Sequence[str] = (),
    collection: str = "",
    decimals: Literal["precise", "string"] = "precise",
    known: Mapping[str, tuple[str, str]] | None = None,
) -> CapturedRelation:
    """A captured relation from (column, database type) pairs; unsupported types go to `refused`.

    Args:
        name: "source.table".
        key: names of the primary key's columns; a key with a refused column counts as none.
        known: column -> the database's own name of its type, and the column's identity.

    Raises:
        FrescoError: SOURCE_NO_COLUMNS when no column has a supported type; SOURCE_GLOBAL_TABLE when
            it is to tag global transactions and cannot.
    """
    kept = [(column, text) for column, text in columns if spark_type(text) is not None]
    refused = tuple((column, text) for column, text in columns if spark_type(text) is None)
    if not kept:
        raise FrescoError(
            "SOURCE_NO_COLUMNS",
            f"no column of {name} has a supported type",
            where=name,
            todo="leave the table out of the configuration or add a column of a supported type",
        )
    schema = tuple(Column(column, spark_type(text) or "") for column, text in kept)
    if name.endswith(f".{GLOBAL_TABLE}"):
        _check_tags(name, schema)
    positions = {column: position for position, (column, _) in enumerate(kept)}
    whole_key = all(column in positions for column in key)
    return CapturedRelation(
        relation=Relation(
            name, schema, tuple(positions[c] for c in key) if whole_key else (), refused
        ),
        topic=topic,
        source=name.partition(".")[0],
        source_types=tuple(text for _, text in kept),
        collection=collection,
        refused=refused,
        decimals=decimals,
        natives=tuple(known[column][0] for column, _ in kept) if known else (),
        identities=tuple(known[column][1] for column, _ in kept) if known else (),
    )


def _check_tags(name: str, schema: Schema) -> None:
    """Tags are compared over sources as text, so their type must have one text only."""
    types = {column.name: column.type for column in schema}
    wrong = [
        f"{column} is {types.get(column, 'not there')}"
        for column, fit in (("id", (*_WHOLE, "string")), ("parts", _WHOLE))
        if types.get(column) not in fit
    ]
    if wrong:
        raise FrescoError(
            "SOURCE_GLOBAL_TABLE",
            f"{name} cannot tag global transactions: {', '.join(wrong)}",
            where=name,
            todo=f"CREATE TABLE {GLOBAL_TABLE} (id varchar(200) PRIMARY KEY, parts int NOT NULL)",
        )


_CONNECT_NAMES = {
    "io.debezium.time.Date": "date",
    "org.apache.kafka.connect.data.Date": "date",
    "io.debezium.time.MicroTimestamp": "timestamp",
    "io.debezium.time.Timestamp": "timestamp(3)",
    "org.apache.kafka.connect.data.Timestamp": "timestamp(3)",
    "io.debezium.time.ZonedTimestamp": "timestamptz",
    "io.debezium.data.Uuid": "uuid",
    "io.debezium.data.Json": "jsonb",
    "io.debezium.data.VariableScaleDecimal": "numeric",
    "io.debezium.data.Enum": "text",
    "io.debezium.data.EnumSet": "text",
    "io.debezium.time.Year": "int4",
}
_CONNECT_TYPES = {
    "int16": "int2",
    "int32": "int4",
    "int64": "int8",
    "float": "float4",
    "float32": "float4",
    "double": "float8",
    "float64": "float8",
    "boolean": "bool",
    "string": "text",
    "bytes": "bytea",
}


def connect_type(field: Mapping[str, Any]) -> str:
    """The database type of a field of Kafka Connect's schema; one that is not known by its name."""
    name = field.get("name")
    if name == "org.apache.kafka.connect.data.Decimal":
        parameters = field.get("parameters") or {}
        precision = parameters.get("connect.decimal.precision", "38")
        return f"numeric({precision},{parameters.get('scale', '0')})"
    if name == "io.debezium.data.Bits":
        return f"bits({(field.get('parameters') or {}).get('length', '64')})"
    if name is not None:
        return _CONNECT_NAMES.get(name, str(name))
    return _CONNECT_TYPES.get(field["type"], str(field["type"]))


def schema_from_connect(
    schema_part: Any, name: str, topic: str, key_part: Any = None
) -> CapturedRelation:
    """A captured relation from the `schema` part of an event's value (and of its key).

    A NUMERIC sent in `string` mode is a string here; only the database's catalog can say more.

    Raises:
        FrescoError: SOURCE_SCHEMA_PART when it is not the schema of a change event.
    """
    try:
        fields = {field["field"]: field for field in schema_part["fields"]}
        row = fields.get("after") or fields["before"]
        columns = [(field["field"], connect_type(field)) for field in row["fields"]]
        key = [field["field"] for field in (key_part or {}).get("fields", ())]
    except (KeyError, TypeError, AttributeError):
        raise FrescoError(
            "SOURCE_SCHEMA_PART",
            "the schema part of the first event is not that of a Debezium change event",
            where=f"topic {topic}",
            todo="capture with Debezium's own envelope (no ExtractNewRecordState) and a converter"
            " that sends schemas, or list the table's columns in the configuration",
        ) from None
    return captured(name, topic, columns, key=key)
