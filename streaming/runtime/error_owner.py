"""Whose trouble an error of a step is (DESIGN 11).

What a view's own stage raises while it works at the view is that view's: its data, its SQL, its files, or
a defect that shows with them. It is suspended, with what was raised as the reason, and the others go on.
Two kinds are not: what a person must see to first, whichever view met it (the topics of the pipeline are
damaged, another start holds it), and what its surroundings do to all stages alike (no space, no memory,
a connection): that is tried again, and is the view's only where nobody else has it: when the view's own
work raises it twice at one step (`again_at_work`), so that its group does not wait any longer, and after
many tries where it comes from elsewhere.
"""

from __future__ import annotations

import errno

import duckdb
import pyarrow as pa

from streaming.engines.evaluator import ViewError
from streaming.errors import FrescoError
from streaming.runtime.restarts import first_line

EVERYWHERE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO),
    *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
)
"""What a machine has for all stages or for none."""
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
    return _failed(error, view) if isinstance(error, AT_WORK) else None


def again_at_work(error: BaseException, view: str) -> ViewError | None:
    """The same of an error that a view's own work has raised twice at one step, and no other stage.

    What the disk and the network do may pass, or come to the others later: it stays nobody's.
    """
    passing = isinstance(error, ConnectionError | TimeoutError | duckdb.IOException)
    if passing or (isinstance(error, OSError) and error.errno in EVERYWHERE):
        return None
    return _failed(error, view)


def _failed(error: BaseException, view: str) -> ViewError:
    return ViewError(
        "VIEW_FAILED",
        f"the view cannot be maintained: {type(error).__name__}: {first_line(error)}",
        where=f"view {view}",
        todo="see the service's log, and report it with the view's SQL; `fresco view resume NAME` tries "
        "again",
    )
