"""Lists that cross a cut (DESIGN 5, Cuts): a view manager that lost the state at a cut says so.

No list crosses a cut, which is what bounds PA's closures, but for two that cannot help it: a truncate
that an answer saw too early takes the rows that the state at the cut needs, and a global transaction
whose parts are numbered apart may straddle it. Their lists say `across`. Such a list waits, and what
follows it in its column behind it, until REL has named its last number; then its rows are all in the
table, and PA's closure under `state` does the rest. It is as long as its manager makes it, so the bound
is the manager's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming.errors import ProtocolError
from streaming.merge import protocol
from streaming.merge.rows import WarehouseTransaction
from streaming.messages import ActionList, Suspend

if TYPE_CHECKING:
    from streaming.merge.machine import MergeMachine


def waits(machine: MergeMachine, message: ActionList | Suspend) -> bool:
    """Keeps a list across a cut that REL has not named whole, and all that follows it.

    Raises:
        ProtocolError: a list across a cut that is complete, or in a group under SPA.
    """
    crosses = isinstance(message, ActionList) and message.across
    if crosses and isinstance(message, ActionList):
        protocol.column_of(machine, message.view, message)
        if message.complete or machine.algorithm == "spa":
            rule = "only a strong list crosses a cut, and only PA takes it"
            raise ProtocolError("merge", message, rule)
    early = isinstance(message, ActionList) and message.last > machine.seen
    if message.view not in machine.crossing and not (crosses and early):
        return False
    machine.crossing.setdefault(message.view, []).append(message)
    return True


def receive_waiting(machine: MergeMachine) -> list[WarehouseTransaction]:
    """What no longer waits, now that REL has gone on.

    Raises:
        ProtocolError: a message that waited breaks a rule.
    """
    ready: list[WarehouseTransaction] = []
    for view, held in sorted(machine.crossing.items()):
        del machine.crossing[view]
        for message in held:
            ready += machine.receive(message)
    return ready
