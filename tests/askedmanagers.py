"""The managers that ask and need no keys, played by hand (`strobeworld.Played`) over two relations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streaming.algebra.numbered import NumberedBags
from streaming.ask.processor import QueryProcessor
from streaming.durable import as_json
from streaming.messages import SourceLog, Updates
from streaming.viewmanagers.asking.compensating import CompensatingManager
from streaming.viewmanagers.asking.eca import EcaManager
from streaming.viewmanagers.asking.naive import NaiveManager
from streaming.viewmanagers.asking.recompute import RecomputeManager
from tests.askedsources import tables, view
from tests.strobeworld import Played, one_message

Make = Callable[..., Any]
MAKES: dict[str, Make] = {
    "naive": NaiveManager,
    "eca": EcaManager,
    "recompute": RecomputeManager,
    "compensating": CompensatingManager,
}
ONE = tables(s__r="a b", s__t="b c")
TWO = tables(x__r="a b", y__t="b c")


def pair(relations: Mapping[str, Any]) -> Any:
    """V = pi_a,c(r join t)."""
    r, t = relations
    return view(f"SELECT r.a, t.c FROM {r} r JOIN {t} t ON r.b = t.b", relations)


def played(
    make: Make,
    relations: Mapping[str, Any] = ONE,
    tree: Any = None,
    restarts: bool = False,
    initial: Mapping[str, Any] | None = None,
    **how: Any,
) -> Played:
    """A manager over r and t, by default r = {[1,2]} and t = {[2,3]}."""
    rows = initial or dict(zip(relations, ([(1, 2)], [(2, 3)]), strict=False))
    one = Played(
        lambda spec, ops, keys: make(spec, ops, **how),
        tree or pair(relations),
        relations,
        rows,
        restarts,
    )
    exact = make in (CompensatingManager, RecomputeManager)
    one.processor = QueryProcessor(one.manager.psj, one.operators, exact=exact)
    return one


def message(one: Played, *messages: Updates) -> Updates:
    """Following messages as one, logs included."""
    logs: dict[str, SourceLog] = {}
    for each in messages:
        for source, log in each.logs.items():
            known = logs.get(source, SourceLog(numbers=(), transactions=(), positions=()))
            logs[source] = SourceLog(
                numbers=known.numbers + log.numbers,
                transactions=known.transactions + log.transactions,
                positions=known.positions + log.positions,
            )
    return one_message(one.operators, *messages).model_copy(update={"logs": logs})


def state(manager: Any, operators: NumberedBags) -> Any:
    """A machine's snapshot with the rows themselves instead of their references."""

    def opened(note: Any) -> Any:
        if isinstance(note, dict) and note.keys() == {"rows", "ipc", "path", "sha256"}:
            return operators.packed[int(note["path"])]
        if isinstance(note, dict):
            return {key: opened(value) for key, value in note.items()}
        if isinstance(note, list | tuple):
            return [opened(value) for value in note]
        return note

    return opened(as_json(manager.snapshot()))
