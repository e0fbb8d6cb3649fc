"""WQ, the part of a query not yet evaluated, and next_source, which decides where it goes next.

strobe-family 5: next_source(Q) returns the source to contact next and the portion of Q that can be
evaluated there; it always chooses a source with a relation that can be joined with the known part,
"rather than requiring the source to ship the entire base relation", and where there is more than one it
may use statistics. Here one working query is what is left of one term. Its known rows are *pieces*:
partials that have not been joined with each other because nothing connects them yet. An answer joins
the pieces it was made from; pieces that have become neighbours are joined at the warehouse.

Why this evaluates the term: pieces and asked places are disjoint and together always cover the term's
places, each step replaces some of them by their join, and joining is associative (`psj.joined` applies
every condition at the first join that has its columns). Nothing is ever multiplied out at a source: a
place without a known neighbour becomes a piece of its own, and unconnected pieces meet only at the end.
A piece without rows ends the term, for the join with it is empty at any state of the other sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

from streaming.algebra.join_graph import adjacent, join_graph
from streaming.algebra.operators import Operators
from streaming.algebra.psj import LEFT, RIGHT, Places, Psj, joined, partial_schema, source_of
from streaming.algebra.source_queries import Known, QueryPart
from streaming.algebra.tree import Join, Project, Scan, Tree

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Working(Generic[V]):
    """What is left of a term: known pieces, ordered by their places, and the places still to ask."""

    sign: int
    pieces: tuple[Known[V], ...]
    asked: Places


@dataclass(frozen=True, slots=True)
class Portion:
    """Q^i, or one of its unconnected parts: these pieces joined with the relations at `asked`."""

    pieces: tuple[Places, ...]
    asked: Places

    @property
    def places(self) -> Places:
        """The places of the answer, ascending."""
        return tuple(sorted([*self.asked, *[p for piece in self.pieces for p in piece]]))


def known_name(index: int) -> str:
    """The scan name of a portion's piece; the first one's is that of a join's known side."""
    return LEFT if index == 0 else f"{LEFT}{index}"


class Route:
    """next_source for the terms of one view.

    Args:
        statistics: rows per relation; a relation without a number counts as the largest.
        once: whether a source that is visited must give all that is asked of it, at the price of
            shipping relations that nothing known connects; else it is visited again when more of
            its places have become neighbours of something known.
    """

    def __init__(self, psj: Psj, statistics: Mapping[str, int], once: bool) -> None:
        self.psj = psj
        self.graph = join_graph(psj)
        self._once = once
        rows = statistics
        self._rank = {p: (rows.get(name, 1 << 62), p) for p, name in enumerate(psj.relations)}
        self._sources = tuple(source_of(name) for name in psj.relations)
        self._trees: dict[Portion, Tree] = {}
        self._choices: dict[tuple[tuple[Places, ...], Places], str] = {}
        self._portions: dict[tuple[tuple[Places, ...], Places, str], tuple[Portion, ...]] = {}

    def next_source(self, working: Working[V]) -> tuple[str, tuple[Portion, ...]] | None:
        """The source to contact next and what it evaluates; None (nil) when nothing is left to ask.

        Places next to something known come first, then small relations, then the order of places.
        """
        if not working.asked:
            return None
        pieces = tuple([piece.places for piece in working.pieces])
        source = self._choices.get((pieces, working.asked))
        if source is None:
            known = [p for places in pieces for p in places]
            near = [p for p in working.asked if adjacent(self.graph, (p,), known)]
            source = self._sources[min(near or working.asked, key=self._rank.__getitem__)]
            self._choices[pieces, working.asked] = source
        return source, self.portions(working, source)

    def portions(self, working: Working[V], source: str) -> tuple[Portion, ...]:
        """What a source evaluates of a working query when it is contacted now."""
        pieces = tuple([piece.places for piece in working.pieces])
        found = self._portions.get((pieces, working.asked, source))
        if found is None:
            here = [p for p in working.asked if self._sources[p] == source]
            if not self._once and len(here) < len(working.asked):
                here = self._reached(pieces, here)
            found = self._portions[pieces, working.asked, source] = self._connected(pieces, here)
        return found

    def _reached(self, pieces: Iterable[Places], here: list[int]) -> list[int]:
        """The places of one source that its own joins connect with something known.

        When there is none, what the smallest relation is connected with.
        """
        reached = {p for places in pieces for p in places}
        if not adjacent(self.graph, here, reached):
            reached = {min(here, key=self._rank.__getitem__)}
        while more := {p for p in here if p not in reached and self.graph[p] & reached}:
            reached |= more
        return [p for p in here if p in reached]

    def _connected(self, pieces: Iterable[Places], here: list[int]) -> tuple[Portion, ...]:
        """The places of `here`, with all pieces that are their neighbours, by connection."""
        single = [Portion((), (place,)) for place in here]
        single += [Portion((piece,), ()) for piece in pieces]
        return tuple(portion for portion in self._merged(single) if portion.asked)

    def _merged(self, portions: list[Portion]) -> list[Portion]:
        """Portions that are neighbours made one."""
        for i, one in enumerate(portions):
            for j in range(i + 1, len(portions)):
                other = portions[j]
                if adjacent(self.graph, one.places, other.places):
                    both = Portion(
                        tuple(sorted(one.pieces + other.pieces)),
                        tuple(sorted(one.asked + other.asked)),
                    )
                    rest = [p for k, p in enumerate(portions) if k not in (i, j)]
                    return self._merged([both, *rest])
        return sorted(portions, key=lambda portion: portion.places)

    # Expressions ----------------------------------------------------------------------------------

    def part(self, portion: Portion, working: Working[V]) -> QueryPart[V]:
        """A portion as an expression for its source."""
        rows = {piece.places: piece.rows for piece in working.pieces}
        inputs = {known_name(i): rows[places] for i, places in enumerate(portion.pieces)}
        return QueryPart(self.tree(portion), inputs)

    def tree(self, portion: Portion) -> Tree:
        """The portion's pieces and relations joined, neighbours one after the other."""
        tree = self._trees.get(portion)
        if tree is None:
            tree = self._trees[portion] = self._joined(portion)
        return tree

    def _joined(self, portion: Portion) -> Tree:
        psj = self.psj
        rest: list[tuple[Places, str | None]] = [
            (places, known_name(i)) for i, places in enumerate(portion.pieces)
        ]
        rest += [((p,), None) for p in sorted(portion.asked, key=self._rank.__getitem__)]
        have, name = rest.pop(0)
        tree = psj.leaves[have[0]] if name is None else Scan(name, partial_schema(psj, have))
        while rest:
            near = [one for one in rest if adjacent(self.graph, have, one[0])]
            places, name = (near or rest)[0]
            rest.remove((places, name))
            step = joined(psj, have, places, base=name is None)
            right = None if name is None else Scan(name, partial_schema(psj, places))
            tree = _over(step, tree, right)
            have = tuple(sorted(have + places))
        return tree

    def answered(
        self, working: Working[V], portions: tuple[Portion, ...], rows: tuple[V, ...]
    ) -> Working[V]:
        """WQ<A^i>: the working query after the answers to its portions have come."""
        used = {places for portion in portions for places in portion.pieces}
        asked = {p for portion in portions for p in portion.asked}
        pieces = [piece for piece in working.pieces if piece.places not in used]
        pieces += [
            Known(portion.places, value) for portion, value in zip(portions, rows, strict=True)
        ]
        left = tuple([p for p in working.asked if p not in asked])
        return Working(working.sign, tuple(pieces), left)

    def settled(self, operators: Operators[V], working: Working[V]) -> Working[V]:
        """The working query with its neighbouring pieces joined.

        When nothing is left to ask all are joined; when one is empty the whole term is, and nothing
        is left to ask.
        """
        if len(working.pieces) == 1 and operators.size(working.pieces[0].rows):
            return working
        pieces = sorted(working.pieces, key=lambda piece: piece.places)
        while True:
            if any([not operators.size(piece.rows) for piece in pieces]):
                places = sorted((*working.asked, *(p for k in pieces for p in k.places)))
                empty = operators.empty(partial_schema(self.psj, tuple(places)))
                return Working(working.sign, (Known(tuple(places), empty),), ())
            pair = self._pair(pieces, anyhow=not working.asked) if len(pieces) > 1 else None
            if pair is None:
                return Working(working.sign, tuple(pieces), working.asked)
            one, other = pair
            tree = joined(self.psj, one.places, other.places, base=False)
            both = Known(
                tuple(sorted(one.places + other.places)),
                operators.evaluate(tree, {LEFT: one.rows, RIGHT: other.rows}),
            )
            rest = [k for k in pieces if k is not one and k is not other]
            pieces = sorted([*rest, both], key=lambda piece: piece.places)

    def _pair(self, pieces: list[Known[V]], anyhow: bool) -> tuple[Known[V], Known[V]] | None:
        """Two pieces to join: neighbours, or any two when they have to be joined anyhow."""
        for i, one in enumerate(pieces):
            for other in pieces[i + 1 :]:
                if adjacent(self.graph, one.places, other.places):
                    return one, other
        return (pieces[0], pieces[1]) if anyhow and len(pieces) > 1 else None


@lru_cache(maxsize=256)
def route_of(psj: Psj, statistics: tuple[tuple[str, int], ...], once: bool) -> Route:
    """The route of a view; what has been worked out once serves all who ask for the same."""
    return Route(psj, dict(statistics), once)


def _over(step: Tree, left: Tree, right: Tree | None) -> Tree:
    """A tree of `psj.joined` with its sides in place of its scans."""
    match step:
        case Project():
            return Project(_over(step.child, left, right), step.expressions, step.schema)
        case Join():
            return Join(left, right or step.right, step.on, step.condition)
        case _:
            raise AssertionError(f"psj.joined makes joins, not {type(step).__name__}")
