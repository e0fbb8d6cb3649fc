"""Shapes of records that betray a setting of the connector or its converter, where nobody may look at it.

Without `sources.S.connect` the settings of `connectsettings` are not seen, and some of them leave values
that can be read and mean something else: a moment in another unit, hexadecimal digits as base64. No value
shows that by itself, but the newest ones of a column together do: that all of them lie in the first weeks
of 1970 is no accident. One odd record is no habit: it is told when it is read. Events with a schema part
say what they mean themselves (`retyped`). What no record shows: events that do not come at all, NULL that
came as a DEFAULT, values cut short, a placeholder of another spelling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import CapturedRelation, CapturedSource, source_type
from streaming.captured.checked import Checked, Rule
from streaming.captured.json_values import INFINITE_DAYS, INFINITE_MICROS

BETRAYED = Rule(
    "SOURCE_RECORD_SHAPE",
    "wrong",
    "records whose newest values have a shape, of those below, that betrays a setting of the connector;"
    " looked at where nobody may look at the settings themselves",
)
RULES = (BETRAYED,)
NEWEST = 50
"""Records of each partition that are looked at."""
HABIT = 20
"""So many first records of a topic are judged while a pipeline runs."""
FEW = 3
"""So many values at least make a magnitude a habit."""
LONG = 32
"""So many characters at least that are all hexadecimal digits are no base64."""
_ISO = re.compile(r"[+-]?\d{4,}-\d\d-\d\d")
_DIGITS = re.compile(r"-?\d+")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_HEX = re.compile(r"[0-9a-f]*")
_FIRST, _LAST = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1974, 2130))
_WORDS = ("NaN", "Infinity", "-Infinity")
_UNITS = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}

Values = Sequence[Any]
Of = Callable[[CapturedRelation, int], bool]


@dataclass(frozen=True)
class RecordShape:
    """One shape.

    Attributes:
        of: whether it is looked for in the column of that position.
        betrays: whether a column's newest values, none of them NULL, have it.
        says: what the values look like.
        make: the setting to make; {decimals} is the source's.
    """

    says: str
    of: Of
    betrays: Callable[[Values], bool]
    make: str


def _type(*names: str) -> Of:
    return lambda captured, at: captured.relation.schema[at].type.partition("(")[0] in names


def _moments(unit: str) -> Of:
    """Columns whose moments come as numbers of that unit."""

    def of(captured: CapturedRelation, at: int) -> bool:
        if captured.relation.schema[at].type != "timestamp_ntz":
            return False
        decimals = source_type(captured.source_types[at]).arguments
        return (unit == "milliseconds") == bool(decimals and decimals[0] <= 3)

    return of


def _in_unit(unit: str) -> Callable[[Values], bool]:
    """All are moments of 1974 to 2129 in that unit; infinities, which are none, are not looked at."""

    def betrays(values: Values) -> bool:
        finite = [one for one in values if _is_int(one) and one not in INFINITE_MICROS.values()]
        each = _UNITS[unit]
        return (
            len(finite) >= FEW
            and len(finite) == sum(_is_int(one) for one in values)
            and all(_FIRST * each <= one < _LAST * each for one in finite)
        )

    return betrays


def _iso(values: Values) -> bool:
    texts = _texts(values)
    return len(texts) == len(values) > 0 and all(_ISO.match(one) for one in texts)


def _days_beyond(values: Values) -> bool:
    infinite = {*INFINITE_DAYS, *(form for forms in INFINITE_DAYS.values() for form in forms)}
    finite = [abs(one) for one in values if _is_int(one) and one not in infinite]
    return len(finite) >= FEW and min(finite) > 10_000_000


def _numbers(values: Values) -> bool:
    return len(values) > 0 and all(_is_int(one) or isinstance(one, float) for one in values)


def _base64(values: Values) -> bool:
    texts = _texts(values)
    letters = any(not _DIGITS.fullmatch(one) for one in texts)
    return bool(texts) and letters and all(_BASE64.fullmatch(one) for one in texts)


def _only_digits(values: Values) -> bool:
    """Digits that no base64 is, or too many of them for an accident."""
    texts = _texts(values)
    if not texts or not all(_DIGITS.fullmatch(one) for one in texts):
        return False
    odd = any(one.startswith("-") or len(one) % 4 for one in texts)
    return odd or sum(map(len, texts)) >= LONG


def _hexadecimal(values: Values) -> bool:
    texts = _texts(values)
    right = all(_HEX.fullmatch(one) and len(one) % 2 == 0 for one in texts)
    return right and sum(map(len, texts)) >= LONG


def _url_safe(values: Values) -> bool:
    texts = _texts(values)
    other = sum("-" in one or "_" in one for one in texts)
    return other >= FEW and not any("+" in one or "/" in one for one in texts)


def _masked(values: Values) -> bool:
    texts = [one for one in _texts(values) if one]
    return len(texts) >= FEW and all(set(one) == {"*"} for one in texts)


def _texts(values: Values) -> list[str]:
    return [one for one in values if isinstance(one, str) and one not in _WORDS]


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(captured: CapturedRelation, at: int) -> bool:
    """A NUMERIC(p,0) that comes as base64: only there digits and base64 can be taken for each other."""
    type_ = captured.relation.schema[at].type
    return type_.startswith("decimal") and type_.endswith(",0)") and _precise(captured, at)


def _precise(captured: CapturedRelation, at: int) -> bool:
    return captured.decimals == "precise" and not _unsigned(captured, at)


def _string(captured: CapturedRelation, at: int) -> bool:
    decimal = captured.relation.schema[at].type.startswith("decimal")
    return decimal and captured.decimals == "string" and not _unsigned(captured, at)


def _unsigned(captured: CapturedRelation, at: int) -> bool:
    return source_type(captured.source_types[at]).base == "bigint unsigned"


def _decimal(captured: CapturedRelation, at: int) -> bool:
    type_ = captured.relation.schema[at].type
    return type_.startswith("decimal") and not _unsigned(captured, at)


def _octets(captured: CapturedRelation, at: int) -> bool:
    return captured.relation.schema[at].type == "binary"


_TIME = "time.precision.mode=adaptive"
SHAPES: tuple[RecordShape, ...] = (
    *(
        RecordShape(f"moments that make sense in {unit}, where {wanted} are expected", _moments(wanted),
              _in_unit(unit), _TIME)
        for wanted in ("milliseconds", "microseconds") for unit in _UNITS if unit != wanted
    ),
    RecordShape("ISO texts, where a number of days, milliseconds or microseconds is expected",
          _type("timestamp_ntz", "date"), _iso, _TIME),
    RecordShape("days beyond the year 29,000", _type("date"), _days_beyond, _TIME),
    RecordShape("decimals as JSON numbers, which are rounded", _decimal, _numbers,
          "decimal.handling.mode={decimals} and value.converter.decimal.format=BASE64"),
    RecordShape("base64, where decimals are expected as digits", _string, _base64,
          "decimal.handling.mode={decimals}"),
    RecordShape("digits, where decimals are expected as base64", _whole, _only_digits,
          "decimal.handling.mode={decimals}"),
    RecordShape("texts, where a BIGINT UNSIGNED is expected as a number", _unsigned,
          lambda values: 0 < len(values) == len(_texts(values)), "bigint.unsigned.handling.mode=long"),
    RecordShape("hexadecimal digits, where octets are expected as base64", _octets, _hexadecimal,
          "binary.handling.mode=bytes"),
    RecordShape("`-` or `_` in octets, which are expected as base64", _octets, _url_safe,
          "binary.handling.mode=bytes"),
    RecordShape("nothing but asterisks", _type("string"), _masked,
          "no column.mask.with.N.chars for the column"),
)  # fmt: skip
"""Of columns."""
EVENTS: Mapping[str, str] = {
    "not JSON": "value.converter=org.apache.kafka.connect.json.JsonConverter",
    "a row's columns and no envelope": "no transforms that flatten events (ExtractNewRecordState)",
    "no transaction": "provide.transaction.metadata=true",
    "changes without the old row": "REPLICA IDENTITY FULL of the table, or binlog_row_image=FULL",
}
"""Of whole records: what they are -> the setting to make."""


def check_shapes(
    captured: CapturedRelation, source: CapturedSource, records: Sequence[bytes]
) -> Iterator[Checked]:
    """What the newest records of a topic betray.

    Args:
        records: their values, tombstones left out.
    """
    check = f"records of {captured.relation.name}"
    events = [_json(one) for one in records]
    if any("schema" in one and "payload" in one for one in events if one is not None):
        return
    whole = [one for one in events if one is not None and "op" in one and one["op"] != "m"]
    for what in _of_events(captured, source, events, whole):
        yield _found(check, f"are or have {what}", EVENTS[what])
    columns = captured.relation.schema
    for at, column in enumerate(columns):
        images = [one.get(side) for one in whole for side in ("before", "after")]
        rows = [one for one in images if isinstance(one, dict)]
        values = [one[column.name] for one in rows if one.get(column.name) is not None]
        for shape in SHAPES:
            if shape.betrays is _numbers and source.transactions == "per-event":
                continue  # no connector's, and as exact as it is written
            if shape.of(captured, at) and shape.betrays(values):
                yield _found(
                    check,
                    f"have in {column.name} {shape.says}",
                    shape.make.format(decimals=captured.decimals),
                )
                break


class FirstRecords:
    """The first records of topics that come while a pipeline runs, judged once for each topic.

    A connector may begin after the service: then there was nothing to look at when that started. What
    is found is said, not refused: the next start refuses it.

    Args:
        captured: those whose connectors' settings nobody may look at, each with its source.
    """

    def __init__(self, captured: Sequence[tuple[CapturedRelation, CapturedSource]]) -> None:
        self._left = {one.topic: (one, source) for one, source in captured}
        self._kept: dict[str, list[bytes]] = {}

    def look(self, records: pa.Table) -> list[Checked]:
        """What is wrong of the topics of which enough has come now; keeps nothing of the others."""
        found: list[Checked] = []
        if not self._left or not records.num_rows:
            return found
        topics = records["topic"]
        for topic in self._left.keys() & set(pc.unique(topics).to_pylist()):
            mine = pc.indices_nonzero(pc.equal(topics.cast(pa.string()), topic)).slice(0, NEWEST)
            values = records["value"].take(mine).drop_null().to_pylist()
            kept = self._kept.setdefault(topic, [])
            kept += [one.encode() if isinstance(one, str) else one for one in values]
            if len(kept) >= HABIT:
                found += check_shapes(*self._left.pop(topic), self._kept.pop(topic))
        return found


def _of_events(
    captured: CapturedRelation,
    source: CapturedSource,
    events: Sequence[dict[str, Any] | None],
    whole: Sequence[dict[str, Any]],
) -> Iterator[str]:
    names = {column.name for column in captured.relation.schema}
    streamed = [one for one in whole if one["op"] in ("c", "u", "d")]
    changed = [one for one in streamed if one["op"] != "c"]
    metadata = source.transactions == "metadata"
    has: Mapping[str, list[bool]] = {
        "not JSON": [one is None for one in events],
        "a row's columns and no envelope": [
            one is not None and "op" not in one and bool(names & set(one)) for one in events
        ],
        "no transaction": [metadata and not one.get("transaction") for one in streamed],
        "changes without the old row": [not one.get("before") for one in changed],
    }
    for what, each in has.items():
        if len(each) >= FEW and all(each):
            yield what


def _json(value: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):  # the latter of thousands of brackets inside each other
        return None
    return found if isinstance(found, dict) else None


def _found(check: str, says: str, make: str) -> Checked:
    return BETRAYED.found(
        check,
        f"{says}, which a setting of its connector makes of them",
        f"see to {make} in the connector's configuration; what has been sent so far stays as it is, so"
        " take a new snapshot. Where the values are right, set sources.S.connect: then the settings are"
        " read and no shape is looked at",
    )


def shapes_table() -> str:
    """The list as docs/doctor.md shows it."""
    lines = ["| in records | setting to make |", "|---|---|"]
    every = [*EVENTS.items(), *((one.says, one.make) for one in SHAPES)]
    lines += [f"| {what} | {make.replace('{decimals}', 'S.decimals')} |" for what, make in every]
    return "\n".join(lines) + "\n"
