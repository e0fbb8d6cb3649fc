"""Where a view must stop because of its input: the first taint of something it reads (DESIGN 11).

A taint of a whole relation says that rows of it are lacking, and concerns every view that scans it.
A taint of columns says that they are NULL from its number on, whatever they are at the source; it
concerns the views that read one of them, because all others see the same rows as ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from streaming.engines.evaluator import ViewError
from streaming.messages import Control, Updates


def refuse_tainted(reads: Mapping[str, frozenset[int]], messages: Iterable[Updates]) -> None:
    """Raise at the first number that is tainted in what a view reads.

    Args:
        reads: the view's relations and the columns it reads of each (`scans.columns_read`).

    Raises:
        ViewError: VIEW_INPUT_DAMAGED, VIEW_COLUMN_CHANGED, VIEW_VALUE_UNFIT.
    """
    refuse_controls(reads, (one for updates in messages for one in updates.controls))


def refuse_controls(reads: Mapping[str, frozenset[int]], controls: Iterable[Control]) -> None:
    """The same of controls that came by themselves.

    Raises:
        ViewError: as above.
    """
    found = [one for one in controls if one.kind == "tainted" and _concerns(one, reads)]
    if found:
        number = min(control.number for control in found)
        raise _error(number, [control for control in found if control.number == number])


def _concerns(control: Control, reads: Mapping[str, frozenset[int]]) -> bool:
    read = reads.get(control.relation)
    return read is not None and (not control.columns or not read.isdisjoint(control.columns))


def _error(number: int, controls: list[Control]) -> ViewError:
    """The error of all taints under one number; that of a whole relation says the most."""
    whole = [control for control in controls if not control.columns]
    if whole:
        relation = whole[0].relation
        return ViewError(
            "VIEW_INPUT_DAMAGED",
            f"transaction {number} has records of {relation} that cannot be decoded",
            where=f"{relation}, number {number}",
            todo="see `fresco status` for topic, partition and offset of each; where nothing is lost by "
            "one, `fresco skip TOPIC PARTITION OFFSET --reason WHY` says so, and the view comes back",
            number=number,
        )
    places = dict.fromkeys(control.where for control in controls)
    what = "; ".join(control.what for control in controls)
    where = f"{controls[0].relation}, number {number}; {'; '.join(places)}"
    if all(control.adds is not None for control in controls):
        return ViewError(
            "VIEW_VALUE_UNFIT",
            what,
            where=where,
            todo="correct or delete the rows at the source; then the view comes back by itself, or "
            "at once by `fresco view resume NAME`; where the column's type was changed, write the view's "
            "SQL for the table as it is now, then `fresco view drop NAME` and `fresco view add FILE`",
            number=number,
        )
    return ViewError(
        "VIEW_COLUMN_CHANGED",
        what,
        where=where,
        todo="where a column was dropped, renamed or retyped, write the view's SQL for the table as it "
        "is now, then `fresco view drop NAME` and `fresco view add FILE`; else `fresco view resume NAME` "
        "begins with what the source has; views that do not read the column go on",
        number=number,
    )
