"""Histories in short notation, after Elle's: one event a line, read from top to bottom.

    x1: +x.r1[1,2]              source x commits its first transaction
    U[1..1]={x1} -> v           the manager of v gets the updates numbered 1 to 1
    Q v1.2 -> y {[2,3]}         its query 1 travels to y under step 2 with what it knows; y answers
    A v1.2 @y3-{y2} {[2,3,4]}   the answer, which saw y's transactions up to the 3rd but y2, is there
    AL v[1..1] {+[1,2,3] -[1,2,2]}   an action list; `AL v[1..3]~` is one that covers its numbers as one
    REL[1..2] 1:{v,w} 2:{w,(v)}      the merge hears REL; a view in brackets has no work
    JOIN w@4 -> merge           w joins the group at the cut 4; LEAVE w@6 -> merge is its end
    BWT1 [1..2] v={[1,2,3]} w=-      a warehouse transaction and what is visible after it; w is not there
    MV v={[1,2,3]}              what the view is when its lists are applied alone

A verdict ends the history: `v is weak, not strong: MV={...} expected one of {...} | {...}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streaming.algebra.bag import Numbered, flat
from streaming.algebra.numbered import NumberedBags
from streaming.algebra.source_queries import Seen, SourceAnswer, SourceQuery
from streaming.merge.batching import BatchedTransaction
from streaming.messages import ActionList, Rel, RelRun, Updates, ViewChange
from streaming.simulator.auditor import AuditWitness
from streaming.simulator.lattice import Shown
from streaming.simulator.network import MERGE
from streaming.simulator.nodes import MergeNode
from streaming.simulator.workload import Transaction, row_text
from streaming.simulator.world import SimulatedPipeline
from streaming.viewmanagers.levels import Level


def bag_text(bag: Mapping[Any, int] | None) -> str:
    """{[1,2], 2[3,4]}: rows with how often they stand, where that is not once; - for no view."""
    if bag is None:
        return "-"
    rows = [f"{'' if n == 1 else n}{row_text(row)}" for row, n in sorted(bag.items())]
    return f"{{{', '.join(rows)}}}"


def values_text(values: Shown, names: tuple[str, ...]) -> str:
    """MV={...} of one view, or v1={...} v2={...} of several."""
    if len(values) == 1:
        return bag_text(values[0])
    pairs = zip(names, values, strict=True)
    return " ".join(f"{name}={bag_text(bag)}" for name, bag in pairs)


def delta_text(sent: ActionList, operators: NumberedBags) -> str:
    """{+[1,2] -2[3,4]}, with the number before each row where there are several."""
    if sent.delta is None:
        return "{}"
    delta = operators.open(sent.delta)
    several = sent.complete and sent.first < sent.last
    rows = []
    for (number, row), count in sorted(delta.items()):
        times = "" if abs(count) == 1 else str(abs(count))
        at = f"{number}:" if several else ""
        rows.append(f"{at}{'+' if count > 0 else '-'}{times}{row_text(row)}")
    return f"{{{' '.join(rows)}}}"


def run_text(run: RelRun) -> str:
    names = ",".join(f"({view})" if view in run.idle else view for view in run.views)
    return f"{_numbers(run.first, run.last)}:{{{names}}}"


def told_text(told: Rel | ViewChange) -> str:
    """REL[1..2] 1:{v} 2:{v,(w)}, JOIN v@4 or LEAVE v@4."""
    if isinstance(told, ViewChange):
        return f"{'JOIN' if told.change == 'add' else 'LEAVE'} {told.view}@{told.number}"
    runs = " ".join(run_text(run) for run in told.runs)
    return f"REL[{told.first}..{told.last}] {runs}"


def state_text(answer: SourceAnswer[Any]) -> str:
    """@y3 or @y3-{y2}."""
    state = answer.state
    missing = sorted(state.missing) if isinstance(state, Seen) else []
    return f"@{answer.source}{state.upto}" + (f"-{{{','.join(missing)}}}" if missing else "")


class Historian:
    """Writes a pipeline's history down; give its `watch` to the pipeline.

    Args:
        table: also the merge's VUT, painted after each of its steps.
    """

    def __init__(self, table: bool = False) -> None:
        self.lines: list[str] = []
        self.pipeline: SimulatedPipeline | None = None
        self._table = table
        self._last = ""

    def watch(self, sender: str, receiver: str, message: Any) -> None:
        """One message, its effects done."""
        assert self.pipeline is not None
        line = self._line(sender, receiver, message)
        if line:
            self.lines.append(line)
        if isinstance(message, ActionList) and receiver == MERGE and not self.pipeline.merging:
            states = self.pipeline.run_.by_view[message.view]
            self.lines.append(f"MV {message.view}={bag_text(states[-1][0])}")
        if receiver == MERGE and self._table:
            self._paint()

    def _line(self, sender: str, receiver: str, message: Any) -> str:
        match message:
            case Transaction():
                return message.text if receiver == message.source else ""
            case Updates():
                names = [name for log in message.logs.values() for name in log.transactions]
                body = ",".join(names) if message.first else "initial state"
                return f"U[{message.first}..{message.last}]={{{body}}} -> {receiver}"
            case SourceQuery():
                known = [rows for part in message.parts for rows in part.inputs.values()]
                name = f"{message.view}{message.id}.{message.step}"
                return f"Q {name} -> {message.source} {_rows_text(known)}".rstrip()
            case SourceAnswer():
                name = f"{message.view}{message.id}.{message.step}"
                return f"A {name} {state_text(message)} {_rows_text(message.rows)}".rstrip()
            case ActionList():
                assert self.pipeline is not None
                one = "" if message.complete else "~"
                name = f"AL {message.view}[{message.first}..{message.last}]{one}"
                riding = "".join(f" with {told_text(each)}" for each in message.rel)
                to = "" if receiver == MERGE else f" -> {receiver}"
                return f"{name} {delta_text(message, self.pipeline.operators)}{riding}{to}"
            case Rel():
                return told_text(message)
            case ViewChange():
                return f"{told_text(message)} -> {receiver}"
            case BatchedTransaction():
                assert self.pipeline is not None
                warehouse = self.pipeline.warehouse
                ranges = ",".join(_numbers(first, last) for first, last in message.ranges)
                if not warehouse.states:
                    return f"BWT{message.sequence} [{ranges}]"
                shown = zip(warehouse.views, warehouse.states[-1], strict=True)
                after = " ".join(f"{view}={bag_text(bag)}" for view, bag in shown)
                return f"BWT{message.sequence} [{ranges}] {after}"
        return ""

    def _paint(self) -> None:
        assert self.pipeline is not None
        node = self.pipeline.nodes[MERGE]
        assert isinstance(node, MergeNode)
        table = node.machine.painted()
        if table != self._last:
            self.lines += [f"    {line}" for line in table.splitlines()]
        self._last = table


def witness_text(names: tuple[str, ...], found: Level, witness: AuditWitness) -> str:
    """Why a level is not reached, in one line."""
    who = ", ".join(names)
    verdict = f"{who} is {found.text}, not {witness.level.text}:"
    expected = " | ".join(values_text(values, names) for values in witness.expected)
    if witness.place is None:
        return f"{verdict} never shows {expected}"
    shown = "nothing" if witness.shown is None else values_text(witness.shown, names)
    if not expected:
        return f"{verdict} MV {shown} follows no earlier state"
    return f"{verdict} MV {shown} expected one of {expected}"


def _rows_text(values: Iterable[Numbered]) -> str:
    return " ".join(bag_text(flat(value)) for value in values)


def _numbers(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"
