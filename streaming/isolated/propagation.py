"""How ADD(Q) and DEL(Q) of a view over several sources are evaluated (moro-sartori 5.4, figure 2).

The figure labels each operator with the source at which it is performed: ADD(E) travels to F's source
and is joined there with F in its state, so only changes travel and no table does. A *walk* is one term
of the join's rule (`adddel.terms`): it begins with the change at one place, at that place's source, and
goes on to the others, each joined at its own source in the state that the term names. Neighbouring
places of one source are joined in one statement.

Each state is exact wherever and whenever it is asked for, so nothing has to be compensated and the
statements of a walk may be any time apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar

from streaming.algebra.compensate import next_place
from streaming.algebra.join_graph import adjacent, join_graph
from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, Places, Psj, finished, joined, partial_schema, source_of
from streaming.algebra.tree import Scan, Tree
from streaming.isolated.add_del import State, named, replaced, terms
from streaming.messages import Rows

V = TypeVar("V")


@dataclass(frozen=True)
class Walk(Generic[V]):
    """One term of ADD(Q) or DEL(Q).

    Attributes:
        sign: +1 of ADD, -1 of DEL.
        start: the place it begins with.
        states: of each place.
        have: the places joined so far.
        rows: the partial over them, None at the beginning; over all places the view's outputs.
    """

    view: str
    sign: int
    start: int
    states: tuple[State, ...]
    have: Places = ()
    rows: V | None = None


def walks(view: str, psj: Psj, changed: Collection[str]) -> list[Walk[Any]]:
    """The terms of ADD(Q) and DEL(Q) that can have rows: those that begin at a changed source."""
    count = len(psj.places)
    signed = [(1, terms(count, "ADD")), (-1, terms(count, "DEL"))]
    return [
        Walk(view, sign, place, states)
        for sign, found in signed
        for place, states in enumerate(found)
        if source_of(psj.relations[place]) in changed
    ]


def whole(view: str, psj: Psj) -> Walk[Any]:
    """Q itself in the state old: ADD(Q) where the past is nothing."""
    old: State = "old"
    return Walk(view, 1, 0, tuple(old for _ in psj.places))


def next_places(psj: Psj, walk: Walk[V]) -> Places:
    """Where the walk goes next: a place and its neighbours of the same source, in order."""
    return _next_places(psj, walk.have, walk.start)


@lru_cache(maxsize=4096)
def _next_places(psj: Psj, have: Places, start: int) -> Places:
    rest = [place for place in psj.places if place not in have]
    first = next_place(psj, have, tuple(rest)) if have else start
    source, graph, run = source_of(psj.relations[first]), join_graph(psj), [first]
    rest.remove(first)
    while True:
        near = (
            place
            for place in rest
            if source_of(psj.relations[place]) == source and adjacent(graph, (place,), run)
        )
        found = next(near, None)
        if found is None:
            return tuple(run)
        run.append(found)
        rest.remove(found)


def statement(psj: Psj, walk: Walk[V], run: Places) -> Tree:
    """What the source of the places in `run` evaluates; the walk's rows are its `Scan(LEFT)`.

    Relations are named with their states; how a state is made is the source's own (`adddel.at_source`).
    """
    return _statement(psj, walk.have, run, walk.states)


@lru_cache(maxsize=4096)
def _statement(psj: Psj, have: Places, run: Places, states: tuple[State, ...]) -> Tree:
    rest = run
    tree: Tree = Scan(LEFT, partial_schema(psj, have))
    if not have:
        have, rest = run[:1], run[1:]
        tree = named(psj.leaves[run[0]], states[run[0]])
    for place in rest:
        tree = _joined(psj, have, place, tree, states[place])
        have = tuple(sorted((*have, place)))
    if have == psj.places:
        done = tree
        tree = replaced(finished(psj), lambda scan: done)
    return tree


def _joined(psj: Psj, have: Places, place: int, left: Tree, state: State) -> Tree:
    def of(scan: Scan) -> Tree:
        return left if scan.relation == LEFT else named(scan, state)

    return replaced(joined(psj, have, (place,), base=True), of)


def advanced(walk: Walk[V], run: Places, rows: V) -> Walk[V]:
    """The walk with a statement's rows."""
    return replace(walk, have=tuple(sorted((*walk.have, *run))), rows=rows)


def walk_note(operators: Operators[V], walk: Walk[V]) -> dict[str, Any]:
    """A walk as JSON values; its rows by reference."""
    rows = None if walk.rows is None else operators.pack(walk.rows)
    return {
        "view": walk.view,
        "sign": walk.sign,
        "start": walk.start,
        "states": list(walk.states),
        "have": list(walk.have),
        "rows": rows,
    }


def walk_back(operators: Operators[V], note: Mapping[str, Any]) -> Walk[V]:
    """The walk that `walk_note` described."""
    packed = note["rows"]
    rows = None if packed is None else operators.open(Rows.model_validate(packed))
    return Walk(
        note["view"],
        note["sign"],
        note["start"],
        tuple(note["states"]),
        tuple(note["have"]),
        rows,
    )
