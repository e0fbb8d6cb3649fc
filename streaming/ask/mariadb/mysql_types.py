"""MariaDB's and MySQL's column types by how their values are written: in the log, in JSON, in Spark.

A `Kind` is a type as far as its values differ. It comes from the catalog (`kind_of`) or from the log's
own description of a table (`capture.cells`), and names the database type that `captured.json_values`
decodes Debezium's JSON by (`Kind.captured`): where PostgreSQL has a type with the same JSON, that one's
name, so that a value is decoded in one way only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from streaming.captured.captured_schema import source_type

_INTEGERS = {
    "tinyint": ("smallint", "smallint"),
    "smallint": ("smallint", "integer"),
    "mediumint": ("integer", "integer"),
    "int": ("integer", "bigint"),
    "integer": ("integer", "bigint"),
    "bigint": ("bigint", "bigint unsigned"),
    "year": ("integer", "integer"),
}
"""Signed and unsigned; each is wide enough for its values."""
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_WORDS = ("enum", "set", "json")
_BYTES = ("varbinary", "tinyblob", "blob", "mediumblob", "longblob")


@dataclass(frozen=True)
class Kind:
    """How values of a column look.

    Attributes:
        name: int, bigint unsigned, decimal, float, double, date, datetime, timestamp, time, text,
            bytes, bits, flag (BIT(1)), or other.
        captured: the type's name for `schema.spark_type`; the type itself where there is none.
        size: decimals of a number, of a second, bits, or the length of BINARY(n) (0 elsewhere).
    """

    name: str
    captured: str
    size: int = 0


def kind_of(column_type: str) -> Kind:
    """The kind of a type as `information_schema.columns.column_type` writes it."""
    text = re.sub(r"'(?:[^']|'')*'", "''", column_type.strip().lower())
    base = re.split(r"[\s(]", text, maxsplit=1)[0]
    arguments = () if base in ("enum", "set") else source_type(text).arguments
    first = arguments[0] if arguments else 0
    if base in _INTEGERS and text != "year(2)":  # which a client is told two digits of
        return integer(base, "unsigned" in text)
    match base:
        case "decimal" | "numeric":
            scale = arguments[1] if len(arguments) > 1 else 0
            return Kind("decimal", f"numeric({first or 10},{scale})", scale)
        case "float":
            return Kind("float", "real")
        case "double" | "real":
            return Kind("double", "double precision")
        case "date":
            return Kind("date", "date")
        case "datetime":
            return datetimes(first)
        case "timestamp":
            return Kind("timestamp", "timestamptz", first)
        case "time":
            return Kind("time", "time", first)
        case "binary":
            return Kind("bytes", "bytea", first or 1)
        case "bit":
            return bits(first or 1)
    if base in _TEXTS or base in _WORDS:
        return Kind("text", "text")
    if base in _BYTES:
        return Kind("bytes", "bytea")
    return Kind("other", f"other {column_type}")


def integer(base: str, unsigned: bool) -> Kind:
    """An integer type's kind."""
    captured = _INTEGERS[base][unsigned]
    return Kind("bigint unsigned" if captured == "bigint unsigned" else "int", captured)


def datetimes(decimals: int) -> Kind:
    """DATETIME(n): Debezium writes milliseconds up to three decimals, microseconds beyond."""
    return Kind("datetime", "timestamp(3)" if decimals <= 3 else "timestamp", decimals)


def bits(size: int) -> Kind:
    """BIT(n): one is a boolean."""
    return Kind("flag", "boolean") if size == 1 else Kind("bits", f"bits({size})", size)
