"""Days that Debezium's snapshots tell as other days, looked for when one is to be trusted.

In a snapshot Debezium (seen with 3.6.1) reads a PostgreSQL `date` through Java's old calendar: a day
before the year 1 comes as that of the same number after it, and one from 1582-10-05 to 1582-10-14, which
that calendar has not, ten days later. The events do not show it. The log tells all days right, so only
what stood in the table before the snapshot matters; what was deleted since is told of by its retraction,
which finds no row. A start looks through the tables before the pipeline has begun; the service does when
a snapshot's rows take effect, later ones among them, and taints the columns that hold such days. So it
does with numbers that come as NULL under `decimals: precise`: NaN and the infinities (in a column that is
NOT NULL they end the connector instead).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from streaming.captured.captured_schema import CapturedRelation
from streaming.captured.checked import Rule
from streaming.errors import FrescoError
from streaming.messages import Control
from streaming.scalars.types import is_decimal

OLD = "({0} < '0001-01-01' AND {0} > '-infinity' OR {0} BETWEEN '1582-10-05' AND '1582-10-14') IS TRUE"


OLD_DATES = Rule(
    "SOURCE_OLD_DATES",
    "either",
    "days before the year 1, or from 1582-10-05 to 1582-10-14, which a snapshot tells as others; looked"
    " for until the pipeline has begun, and when a later snapshot changes what is known",
)
NOT_LOOKED = Rule(
    "SOURCE_OLD_DATES_UNKNOWN", "warning", "a table could not be looked through for such days"
)
RULES = (OLD_DATES, NOT_LOOKED)
NAN = "({0}::text IN ('NaN', 'Infinity', '-Infinity')) IS TRUE"
_SAID = {
    OLD: "days before the year 1 or from 1582-10-05 to 1582-10-14, which a snapshot tells as others",
    NAN: "NaN or infinities, which a snapshot tells as NULL",
}
Look = Callable[[CapturedRelation, Mapping[str, str]], Sequence[str]]
"""Which of these columns of a relation hold now what their test finds; raises FrescoError where nobody
can say."""


def told_as_others(
    captured: CapturedRelation, number: int, look: Look
) -> tuple[tuple[Control, ...], str]:
    """The taints of the columns that a snapshot may not have told right, and what to say of it.

    Args:
        number: under which the snapshot's rows take effect.
    """
    schema, name = captured.relation.schema, captured.relation.name
    places = {schema[at].name: at for at in captured.comes if not schema[at].hidden}
    tests = {
        column: OLD if schema[at].type == "date" else NAN
        for column, at in places.items()
        if schema[at].type == "date"
        or (is_decimal(schema[at].type) and captured.decimals == "precise")
    }
    if not tests:
        return (), ""
    try:
        found = look(captured, tests)
    except FrescoError as error:
        return (), (
            f"{NOT_LOOKED.code}: {name} could not be looked through for days and numbers that a "
            f"snapshot tells as others, and has one under number {number}: {error.what} -> compare with "
            "`fresco verify --source`"
        )
    if not found:
        return (), ""
    where = f"topic {captured.topic}, the snapshot under number {number}"
    controls = [
        Control(
            number=number, relation=name, kind="tainted", columns=(places[column],), where=where,
            what=f"column {column} of {name} has {_SAID[tests[column]]}",
        )
        for column in found
    ]  # fmt: skip
    return tuple(controls), (
        f"{OLD_DATES.code}: {'; '.join(one.what for one in controls)}: views that read the column stop "
        f"before number {number} [topic {captured.topic}] -> `fresco view resume NAME` begins with what "
        "the source has"
    )
