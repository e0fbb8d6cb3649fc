"""Whose trouble an error of a step is (DESIGN 11).

What a view's own stage raises while it works at the view is that view's: its data, its SQL, its files, or
a defect that shows with them. It is suspended, with what was raised as the reason, and the others go on.
Two kinds are not: what a person must see to first, whichever view met it (the topics of the pipeline are
damaged, another start holds it), and what its surroundings do to all stages alike (no space, no memory,
a connection): that is tried again, and is the view's only where nobody else has it, after many tries.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from streaming.engines.evaluator import ViewError
from streaming.errors import FrescoError
from streaming.runtime.restarts import first_line

EVERYBODYS = ("KAFKA_", "SERVICE_")
"""What the codes begin with of errors that no view is to blame for."""
AT_WORK = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    pa.ArrowCapacityError,
    duckdb.DataError,
    duckdb.ProgrammingError,
    duckdb.NotSupportedError,
    duckdb.InternalError,
    ArithmeticError,
    LookupError,
    ValueError,
    NotImplementedError,
    RecursionError,
)
"""What evaluating, packing and taking messages raise, and would again. Not `TypeError`, `AttributeError`
and `AssertionError`: where the JVM ends, py4j raises these, too."""


def of_its_view(error: BaseException, view: str) -> ViewError | None:
    """The error that suspends the view whose stage raised it; None where it is no view's."""
    if isinstance(error, ViewError):
        return error
    if isinstance(error, FrescoError):
        if error.code.startswith(EVERYBODYS):
            return None
        return ViewError(error.code, error.what, where=error.where, todo=error.todo)
    if not isinstance(error, AT_WORK):
        return None
    return ViewError(
        "VIEW_FAILED",
        f"the view cannot be maintained: {type(error).__name__}: {first_line(error)}",
        where=f"view {view}",
        todo="see the service's log, and report it with the view's SQL; `fresco view resume NAME` tries "
        "again",
    )
