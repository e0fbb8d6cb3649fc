"""What managers that ask are told beside rows: the source transactions behind the numbers (DESIGN 7).

An answer says which of a source's transactions it has seen. To compare that with what has been delivered,
a message of updates names the transactions it holds, and per source the commit position up to which
every transaction has a number at or below its last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from streaming.ask.splitting import split
from streaming.cdc.intake_result import IntakeResult
from streaming.messages import Rows, SourceLog, Updates
from streaming.scalars.expression import NUMBER


def with_logs(
    updates: Updates,
    result: IntakeResult,
    sources: Iterable[str],
    pack: Callable[[pa.Table], Rows],
) -> tuple[Updates, ...]:
    """The message with its logs; in two where it begins with the initial state, which comes alone.

    Without `sources` nobody asks, and it stays as it is.
    """
    wanted = sorted(sources)
    if not wanted:
        return (updates,)
    told = updates.model_copy(
        update={
            "logs": {name: source_log(result.transactions, name) for name in wanted},
            "delivered": {n: result.delivered[n] for n in wanted if n in result.delivered},
        }
    )
    if not told.first == 0 < told.last:
        return (told,)
    # Each part has its own rows: a replica manager takes both in one pass, and would count rows twice.
    parts = []
    for part in split(told, 0):
        rows = {
            name: table.filter(pc.equal(pc.equal(table[NUMBER], 0), part.first == 0))
            for name, table in result.updates.items()
            if name in updates.relations
        }
        relations = {name: pack(table) for name, table in rows.items() if table.num_rows}
        parts.append(part.model_copy(update={"relations": relations}))
    return tuple(parts)


def source_log(transactions: pa.Table, source: str) -> SourceLog:
    """A source's transactions among those of a step, in its own order."""
    own = transactions.filter(pc.equal(transactions["source"], source)).sort_by("position")
    return SourceLog(
        numbers=tuple(own["number"].to_pylist()),
        transactions=tuple(own["transaction"].to_pylist()),
        positions=tuple(own["position"].to_pylist()),
    )
