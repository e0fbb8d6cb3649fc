"""Values out of PostgreSQL and back into it, the same that `captured.json_values` reads from the log.

Rows come as COPY's CSV, which Arrow parses column by column. PostgreSQL writes days and microseconds as
integers, so that infinities get the values they have in the log. A number that the column's decimal does
not hold (NaN, too many digits) is refused by its column's name: the log has NULL in its place, and a
view that reads the column stops there too.

Keys, the known values a relation is restricted to, go as one array per column inside the statement.
They have the column's own type, so that its index serves; where PostgreSQL's equality is coarser
(char(n) without its blanks) more rows come than needed, never fewer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation

import pyarrow as pa
import pyarrow.csv as pa_csv

from streaming.captured.captured_schema import CapturedRelation, source_type
from streaming.captured.json_values import DAYS, INFINITE_MICROS, MICROS
from streaming.errors import FrescoError
from streaming.scalars.types import arrow_type, decimal_parts

_FAR = 2147483647
"""The day that stands for a date's infinity, and its negative (`values.INFINITE_DAYS`)."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BACKSLASH = str.maketrans({"\\": "\\\\", '"': '\\"'})
_EXACT = Context(prec=80, traps=[Inexact, InvalidOperation])

Texts = Callable[[pa.Array], list[str | None]]


@dataclass(frozen=True)
class PgColumn:
    """A column at the source.

    Attributes:
        relation, name: for messages.
        spark: its type here.
        base: its type there, without arguments ("timestamp with time zone").
        bounded: whether its type says how many digits a number has.
    """

    relation: str
    name: str
    spark: str
    base: str
    bounded: bool = True

    def selected(self, ref: str) -> str:
        """SQL of the value as it is to be written."""
        if self.spark == "date":
            days = f"({ref} - DATE '1970-01-01')"
            return _finite(ref, days, f"{ref} > DATE '1970-01-01'", _FAR, -_FAR)
        if self.spark in ("timestamp", "timestamp_ntz"):
            micros = f"extract(epoch FROM {ref}) * 1000000"
            # The last years that PostgreSQL has are beyond 64 bits, and are refused as they are read.
            held = f"CASE WHEN {micros} <= {MICROS[1]} THEN ({micros})::int8::text ELSE {ref}::text END"
            infinite = (f"'{INFINITE_MICROS[word]}'" for word in ("infinity", "-infinity"))
            return _finite(ref, held, f"{ref} > 'epoch'", *infinite)
        return ref

    def as_text(self, ref: str) -> str:
        """SQL of the value as the client is to get it, a text.

        A char(n) would lose its blanks by a cast.
        """
        plain = self.spark == "string" and self.base not in ("uuid", "json", "jsonb")
        return ref if plain else f"({self.selected(ref)})::text"

    @property
    def quoted(self) -> bool:
        """Whether every value is written in quotes, so that NULL differs from its text."""
        return self.spark in ("string", "binary")

    @property
    def written(self) -> pa.DataType:
        """What Arrow parses."""
        match self.spark:
            case "date":
                return pa.int32()
            case "timestamp" | "timestamp_ntz":
                return pa.int64()
            case "binary":
                return pa.string()
            case "decimal(38,18)" if not self.bounded:
                return pa.string()  # Arrow's parser takes too many digits without a word
            case _:
                return arrow_type(self.spark)

    @property
    def may_not_fit(self) -> bool:
        """Whether the source has values that its type here does not hold."""
        wanted = arrow_type(self.spark)
        return bool(pa.types.is_decimal(wanted) or pa.types.is_timestamp(wanted))

    def read(self, array: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
        """The parsed column in its type."""
        wanted = arrow_type(self.spark)
        if array.type == wanted:
            return array
        if self.spark == "binary":
            values = [None if v is None else bytes.fromhex(v[2:]) for v in array.to_pylist()]
            return pa.array(values, wanted)
        if pa.types.is_timestamp(wanted) and pa.types.is_string(array.type):
            units = pa.array([self._micros(v) for v in array.to_pylist()], pa.int64())
            return units.view(wanted)
        if pa.types.is_string(array.type):
            return pa.array([self._decimal(v) for v in array.to_pylist()], wanted)
        return pa.chunked_array([chunk.view(wanted) for chunk in array.chunks], wanted)

    def _decimal(self, text: str | None) -> Decimal | None:
        """A number, to the last digit."""
        precision, scale = decimal_parts(self.spark) or (38, 18)
        if text is None:
            return None
        try:
            value = _EXACT.quantize(Decimal(text), Decimal(1).scaleb(-scale))
            if value.is_finite() and len(value.as_tuple().digits) <= precision:
                return value
        except (Inexact, InvalidOperation):
            pass
        raise self._unfit(text)

    def _micros(self, text: str | None) -> int | None:
        """A moment, where 64 bits hold it."""
        try:
            return None if text is None else int(text)
        except ValueError:
            raise self._unfit(text or "") from None

    def _unfit(self, text: str) -> FrescoError:
        return FrescoError(
            "SOURCE_VALUE_UNFIT",
            f"{self.relation} has a value of {self.name} that does not fit {self.spark} exactly:"
            f" {text[:60]}",
            where=self.relation,
            todo="correct the row at the source; views that read the column wait, the others go on",
        )

    # Keys -----------------------------------------------------------------------------------------

    @property
    def key(self) -> tuple[str, str, Texts] | None:
        """(array's element type, SQL of the value from the element `{}`, texts); None: no key."""
        if self.base in ("json", "jsonb"):
            return None
        match self.spark:
            case "tinyint" | "smallint" | "int" | "bigint":
                return "int8", "{}", _plain
            case "float":
                return "float4", "{}", _plain
            case "double":
                return "float8", "{}", _plain
            case "boolean":
                return "bool", "{}", _plain
            case "binary":
                return "bytea", "{}", _octets
            case "date":
                return "int4", _INFINITE_DATE, _days
            case "timestamp" | "timestamp_ntz":
                return "int8", _moment(self.spark), _micros
            case "string" if self.base == "uuid":
                return "uuid", "{}", _uuids
            case "string":
                return ("bpchar" if self.base in _PADDED else "text"), "{}", _strings
            case _:
                return "numeric", "{}", _plain


_PADDED = ("character", "char", "bpchar")


def _finite(ref: str, value: str, later: str, above: object, below: object) -> str:
    return (
        f"CASE WHEN {ref} IS NULL THEN NULL WHEN isfinite({ref}) THEN {value}"
        f" WHEN {later} THEN {above} ELSE {below} END"
    )


_INFINITE_DATE = (
    f"CASE {{0}} WHEN {_FAR} THEN DATE 'infinity' WHEN {-_FAR} THEN DATE '-infinity'"
    " ELSE DATE '1970-01-01' + {0} END"
)


def _moment(spark: str) -> str:
    kind = "TIMESTAMPTZ" if spark == "timestamp" else "TIMESTAMP"
    cases = " ".join(f"WHEN {at} THEN {kind} '{word}'" for word, at in INFINITE_MICROS.items())
    # Whole days and the rest apart: an interval's factor is a double.
    return (
        f"CASE {{0}} {cases} ELSE {kind} 'epoch' + ({{0}} / 86400000000) * INTERVAL '1 day'"
        " + ({0} % 86400000000) * INTERVAL '1 microsecond' END"
    )


def _plain(array: pa.Array) -> list[str | None]:
    return [str(value) for value in array.to_pylist()]


def _within(values: list[int], least: int, most: int, others: tuple[int, ...]) -> list[str | None]:
    return [str(v) if least <= v <= most or v in others else None for v in values]


def _days(array: pa.Array) -> list[str | None]:
    return _within(array.view(pa.int32()).to_pylist(), *DAYS, (_FAR, -_FAR))


def _micros(array: pa.Array) -> list[str | None]:
    infinite = tuple(INFINITE_MICROS.values())
    return _within(array.view(pa.int64()).to_pylist(), *MICROS, infinite)


def _strings(array: pa.Array) -> list[str | None]:
    return [
        None if "\0" in text else f'"{text.translate(_BACKSLASH)}"' for text in array.to_pylist()
    ]


def _uuids(array: pa.Array) -> list[str | None]:
    return [text if _UUID.fullmatch(text) else None for text in array.to_pylist()]


def _octets(array: pa.Array) -> list[str | None]:
    return [f'"\\\\x{octets.hex()}"' for octets in array.to_pylist()]


def columns_of(captured: CapturedRelation) -> tuple[PgColumn, ...]:
    """The columns of a captured table, by position."""
    name = captured.relation.name
    pairs = zip(captured.relation.schema, captured.source_types, strict=True)
    types = [(column, source_type(text)) for column, text in pairs]
    return tuple(PgColumn(name, c.name, c.type, t.base, bool(t.arguments)) for c, t in types)


def parsed(content: bytes, columns: Sequence[PgColumn]) -> list[pa.ChunkedArray | pa.Array]:
    """COPY's CSV of these columns.

    Raises:
        FrescoError: SOURCE_VALUE_UNFIT.
    """
    if not content:
        return [pa.chunked_array([], arrow_type(column.spark)) for column in columns]
    types = [column.written for column in columns]
    try:
        table = _csv(content, types)
    except pa.ArrowInvalid:
        # Some number or moment does not fit: each is looked at.
        pairs = zip(columns, types, strict=True)
        table = _csv(content, [pa.string() if one.may_not_fit else t for one, t in pairs])
    return [column.read(array) for column, array in zip(columns, table.columns, strict=True)]


def converted(
    rows: Sequence[Sequence[str | None]], columns: Sequence[PgColumn]
) -> list[pa.ChunkedArray | pa.Array]:
    """A few rows of these columns `as_text`.

    Raises:
        FrescoError: SOURCE_VALUE_UNFIT.
    """
    texts = zip(*rows, strict=True) if rows else [()] * len(columns)
    arrays = []
    for column, values in zip(columns, texts, strict=True):
        array = pa.chunked_array([pa.array(values, pa.string())])
        try:
            written = array.cast(column.written)
        except pa.ArrowInvalid:
            written = array
        arrays.append(column.read(written))
    return arrays


def _csv(content: bytes, types: list[pa.DataType]) -> pa.Table:
    names = [f"c{i}" for i in range(len(types))]
    return pa_csv.read_csv(
        pa.BufferReader(content),
        read_options=pa_csv.ReadOptions(column_names=names, use_threads=len(content) > 1 << 20),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)),
            null_values=["\\N"],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
