"""Values out of MariaDB and back into it, the same values that `captured.json_values` reads from the log.

Rows come over the client protocol as texts, one column after the other cast by Arrow; dates and moments
are counted here as they are of the log (`mysqldates`). What has no value there (a date of zeros) has none
here.

Keys, the known values a relation is restricted to, go as constants of an IN list, so that an index on
the column serves; where MariaDB's equality is coarser than ours (letter case, trailing blanks) more rows
come than needed, never fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streaming.ask.mariadb.mysql_dates import date_text, moment_text, numbers_of
from streaming.captured.captured_schema import CapturedRelation
from streaming.errors import FrescoError
from streaming.scalars.types import arrow_type, is_decimal

Literals = Callable[[pa.Array], list[str | None]]
"""Constants in MariaDB's SQL; None for a value the column cannot have."""


@dataclass(frozen=True)
class MysqlColumn:
    """A column at the source.

    Attributes:
        relation, name: for messages.
        spark: its type here.
        captured: its database type (`schema.CapturedRelation.source_types`).
    """

    relation: str
    name: str
    spark: str
    captured: str = ""

    def selected(self, ref: str) -> str:
        """SQL of the value as the client is to get it."""
        match self.spark:
            case "float" | "double":
                return f"{ref} * 1e0"  # alone it would be written with the digits that it shows
            case "boolean":
                return f"{ref} + 0"
        return ref

    def read(self, values: Sequence[str | bytes | None]) -> pa.Array:
        """The column of these values, as the server wrote them.

        Raises:
            FrescoError: SOURCE_VALUE_UNFIT.
        """
        wanted = arrow_type(self.spark)
        try:
            return self._cast(values, wanted)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise FrescoError(
                "SOURCE_VALUE_UNFIT",
                f"{self.relation} has a value of {self.name} that does not fit {self.spark} exactly:"
                f" {str(error).splitlines()[0][:80]}",
                where=self.relation,
                todo="correct the row at the source; views that read the column wait, the others go"
                " on",
            ) from None

    def _cast(self, values: Sequence[str | bytes | None], wanted: pa.DataType) -> pa.Array:
        if pa.types.is_binary(wanted):
            return pa.array(values, wanted)
        texts = pa.array(values, pa.string())
        match self.spark:
            case "string":
                return texts
            case "date":
                numbers, nothing = numbers_of(texts.to_pylist(), moments=False)
                return pa.array(numbers.astype("int32"), mask=nothing).view(wanted)
            case "timestamp" | "timestamp_ntz":
                numbers, nothing = numbers_of(texts.to_pylist(), moments=True)
                return pa.array(numbers, mask=nothing).view(wanted)
            case "float" | "double":
                return pc.add(texts.cast(pa.float64()), 0.0).cast(wanted)  # zeros have no sign
            case "boolean":
                return pc.not_equal(texts.cast(pa.int64()), 0)
        return texts.cast(wanted)

    @property
    def key(self) -> Literals | None:
        """How values become constants; None: the column is no key."""
        match self.spark:
            case "float" | "double":
                return None  # equality of what is written need not be that of what is stored
            case "boolean":
                return _flags
            case "string":
                return _strings
            case "binary":
                return _bits if self.captured.startswith("bits(") else _octets
            case "date":
                return _days
            case "timestamp" | "timestamp_ntz":
                return _moments
        return _numbers


def columns_of(captured: CapturedRelation) -> tuple[MysqlColumn, ...]:
    """The columns of a captured table, by position."""
    name = captured.relation.name
    columns = zip(captured.relation.schema, captured.source_types, strict=True)
    return tuple(MysqlColumn(name, one.name, one.type, type_) for one, type_ in columns)


def is_exact(spark: str) -> bool:
    """Whether values of a type compare alike in both engines, written as a constant."""
    return is_decimal(spark) or spark in (
        "tinyint", "smallint", "int", "bigint", "double", "boolean", "date",
    )  # fmt: skip


def text_literal(text: str) -> str:
    """A text as a constant; sql_mode is set, so a backslash escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0")
    return f"'{escaped}'"


def _numbers(array: pa.Array) -> list[str | None]:
    return [str(value) if isinstance(value, int) else f"{value:f}" for value in array.to_pylist()]


def _flags(array: pa.Array) -> list[str | None]:
    return ["b'1'" if value else "b'0'" for value in array.to_pylist()]


def _strings(array: pa.Array) -> list[str | None]:
    return [text_literal(value) for value in array.to_pylist()]


def _octets(array: pa.Array) -> list[str | None]:
    return [f"x'{value.hex()}'" for value in array.to_pylist()]


def _days(array: pa.Array) -> list[str | None]:
    texts = map(date_text, array.view(pa.int32()).to_pylist())
    return [None if text is None else f"DATE'{text}'" for text in texts]


def _moments(array: pa.Array) -> list[str | None]:
    texts = map(moment_text, array.view(pa.int64()).to_pylist())
    return [None if text is None else f"TIMESTAMP'{text}'" for text in texts]


def _bits(array: pa.Array) -> list[str | None]:
    """A BIT compares with no octets, but with the number that it is."""
    return [str(int.from_bytes(value, "big")) for value in array.to_pylist()]
