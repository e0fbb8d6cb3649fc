"""How a connector's events say where they stand in their database's log, and in which transaction.

Debezium's connectors differ in nothing else that is read here. PostgreSQL's is the usual one; a kind of
source with another log says so (`ask.source_kind`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LogFormat:
    """What is SQL here is DuckDB's, over `e`, an event or a record of the transaction topic.

    Attributes:
        place: fields of an event's `source` that say its place, each with its DuckDB type.
        position: SQL of an event's position: a bigint that grows along the log.
        transaction: SQL of a transaction's key; `{id}` is the id that events and BEGIN and END have.
        end: further fields of the transaction topic's records, as DuckDB's JSON structure.
        end_position: SQL of a transaction's position, from its BEGIN or END.
        whole_rows: the statement that makes the log hold whole old rows; `{table}` is the table.
        marks_unchanged: whether the connector writes a placeholder for what an update left as it was.
    """

    place: Mapping[str, str]
    position: str
    transaction: str
    end_position: str
    whole_rows: str
    marks_unchanged: bool
    end: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


POSTGRES_LOG = LogFormat(
    place={"lsn": "VARCHAR"},
    position="TRY_CAST(e.source.lsn AS BIGINT)",
    transaction="split_part({id}, ':', 1)",
    end_position="TRY_CAST(split_part(e.id, ':', 2) AS BIGINT)",
    whole_rows="ALTER TABLE {table} REPLICA IDENTITY FULL",
    marks_unchanged=True,
)
"""An id is `<transaction>:<position>`; a position is an LSN."""
