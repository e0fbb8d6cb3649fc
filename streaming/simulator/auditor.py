"""The auditor: which level of consistency a sequence of visible states has.

Given are the visible states ws_0, ws_1, ..., ws_f of one view, or of several as one vector, from the
first that shows the initial source state on, and the lattice of true source states ss. Neighbours that
are equal count as one: a transaction that changes no view, and a warehouse transaction without rows,
are not seen by anyone. So the definitions (strobe-family 4.2; painting-mvc 2.2, and 2.3 for vectors,
where V(ss) is every view over one and the same source state) become:

* convergent: ws_f = V(ss_q), ss_q being the state after all transactions.
* weak: convergent, and each ws_i is V over some vector with a valid state of each source: an ideal of
  the *local* transactions. Sources need not fit together, nor ws_i follow ws_{i-1}.
* strong: convergent, and there is one serial schedule R, equivalent to what the sources did, with a
  mapping m of visible states to states of R, V(m(ws_i)) = ws_i, that keeps the order. (As equal
  neighbours are one, m <= and m < say the same.)
* complete: strong, and every state of R is mapped to: no visible state is missing between two.
* complete-N: strong, and every Nth state of R is (painting-mvc 6.3: "consistently after every N
  updates"); transactions are counted that touch a relation of the views. Complete-1 is complete.

Where views join and leave, a visible state lacks the views that are not in the group: it shows V(ss) when
the views that it has do. Neighbours then differ also by who is there, so several may be mapped to one
state of R, and what must be visible of a state of R is what the group has at the time.

R is searched among the chains of the lattice by dynamic programming over (ideal, how many visible
states are mapped). The order in which the integrator numbered the transactions is tried first, since
an algorithm that works follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from streaming.algebra.tree import Tree
from streaming.simulator.case import Scenario
from streaming.simulator.lattice import Grain, Lattice, Place, Shown, Values, lattice_of
from streaming.simulator.workload import World
from streaming.viewmanagers.levels import Level

GRAINS: dict[Scenario, Grain] = {"single": "event", "local": "local", "global": "global"}


@dataclass(frozen=True)
class AuditWitness:
    """Why a level is not reached.

    Attributes:
        place: of the visible state that cannot stand; None when one is missing.
        shown: that state.
        expected: what could have stood there instead, at most `MOST` of them.
    """

    level: Level
    place: int | None
    shown: Shown | None
    expected: tuple[Values, ...]


MOST = 4


class Auditor:
    """Judges one view, or several together.

    Args:
        world: what the sources did.
        scenario: what counts as a transaction.
        trees: of the views.
        order: the row changes as the integrator numbered them, () when there is no such order.
        every: N of complete-N.
    """

    def __init__(
        self,
        world: World,
        scenario: Scenario,
        trees: Sequence[Tree],
        order: Sequence[Place] = (),
        every: int = 1,
    ) -> None:
        self.world = world
        self.scenario = scenario
        self.every = every
        self.lattice = lattice_of(world, GRAINS[scenario], tuple(trees))
        self._chain = self.lattice.chain(order) if order else None
        self._local: Lattice | None = None

    # Levels ---------------------------------------------------------------------------------------

    def level(self, visible: Sequence[Shown]) -> Level:
        """The highest level that the states have."""
        states = collapsed(visible)
        for level in sorted(Level, reverse=True):
            if self._holds(states, level):
                return level
        return Level.NONE

    def holds(self, visible: Sequence[Shown], level: Level) -> bool:
        """Whether the states have the level."""
        return self._holds(collapsed(visible), level)

    def _holds(self, states: list[Shown], level: Level) -> bool:
        if level is Level.NONE:
            return True
        if not states or not fits(states[-1], self.lattice.values(self.lattice.full)):
            return False
        if level is Level.CONVERGENT or self._follows_numbers(states, level):
            return True
        if level is Level.WEAK:
            return not self._impossible(states)
        every = {Level.STRONG: None, Level.COMPLETE_N: self.every, Level.COMPLETE: 1}[level]
        return self._mapped(states, every).found

    def _follows_numbers(self, states: list[Shown], level: Level) -> bool:
        """Whether the integrator's own order serves; a No says nothing."""
        if self._chain is None:
            return False
        truth: Sequence[Shown] = [self.lattice.values(ideal) for ideal in self._chain]
        truth = collapsed(truth)
        if level >= Level.COMPLETE_N:
            return truth == states
        at = iter(truth)
        return all(any(each == state for each in at) for state in states)

    def _impossible(self, states: list[Shown]) -> list[int]:
        """Places of the states that no vector of local states gives."""
        if self._local is None:
            grain: Grain = "event" if self.scenario == "single" else "local"
            self._local = lattice_of(self.world, grain, self.lattice.trees)
        left = list(range(len(states)))
        for ideal in self._local.ideals():
            value = self._local.values(ideal)
            left = [place for place in left if not fits(states[place], value)]
            if not left:
                break
        return left

    def _mapped(self, states: list[Shown], every: int | None) -> _Search:
        search = _Search(self.lattice, states, every)
        search.run()
        return search

    # Witnesses ------------------------------------------------------------------------------------

    def witness(self, visible: Sequence[Shown], level: Level) -> AuditWitness | None:
        """Why the states have not the level; None when they have."""
        states = collapsed(visible)
        if self._holds(states, level):
            return None
        final = self.lattice.values(self.lattice.full)
        if not states or not fits(states[-1], final):
            shown = states[-1] if states else None
            return AuditWitness(level, len(states) - 1, shown, (final,))
        if level is Level.WEAK:
            place = self._impossible(states)[0]
            assert self._local is not None
            possible = distinct(self._local.values(ideal) for ideal in self._local.ideals())
            return AuditWitness(level, place, states[place], possible)
        every = {Level.STRONG: None, Level.COMPLETE_N: self.every, Level.COMPLETE: 1}[level]
        search = self._mapped(states, every)
        if search.missing is not None:
            return AuditWitness(level, None, None, (search.missing,))
        place = search.furthest + 1
        shown = states[place] if place < len(states) else None
        return AuditWitness(level, place, shown, search.expected())


class _Search:
    """Chains of ideals along which the visible states lie in order.

    A node is (ideal, i): the visible states up to i are mapped, the last of them at or below the ideal.
    """

    def __init__(self, lattice: Lattice, states: list[Shown], every: int | None) -> None:
        self.lattice, self.states, self.every = lattice, states, every
        self.changing = any(None in state for state in states)
        self.furthest = -1
        self.frontier: list[int] = []
        """Ideals at which the search had mapped `furthest` states."""
        self.missing: Values | None = None
        """A true state that had to be visible where no other reason was found."""
        self.found = False

    def run(self) -> None:
        layer: dict[int, set[int]] = {}
        self._enter(layer, 0, -1)
        while layer:
            following: dict[int, set[int]] = {}
            for ideal, reached in layer.items():
                for after in self.lattice.following(ideal):
                    for i in reached:
                        self._enter(following, after, i)
            if self.lattice.full in layer:
                self.found = len(self.states) - 1 in layer[self.lattice.full]
            layer = following

    def _enter(self, layer: dict[int, set[int]], ideal: int, i: int) -> None:
        value, states = self.lattice.values(ideal), self.states
        required = self._required(ideal)
        if i + 1 < len(states) and fits(states[i + 1], value):
            self._mapped_here(layer, ideal, i + 1, value)
            if not self.changing and (self.every in (None, 1) or required):
                return  # a chain that leaves the state for later loses nothing by mapping it here
        if required and (i < 0 or not fits(states[i], value)):
            if i == len(states) - 1:
                self.missing = value
            return
        self._reached(layer, ideal, i)

    def _mapped_here(self, layer: dict[int, set[int]], ideal: int, i: int, value: Values) -> None:
        """The state at i is mapped to the ideal, and maybe the next ones that show it too."""
        self._reached(layer, ideal, i)
        while self.changing and i + 1 < len(self.states) and fits(self.states[i + 1], value):
            i += 1
            self._reached(layer, ideal, i)

    def _reached(self, layer: dict[int, set[int]], ideal: int, i: int) -> None:
        layer.setdefault(ideal, set()).add(i)
        if i > self.furthest:
            self.furthest, self.frontier = i, []
        if i == self.furthest:
            self.frontier.append(ideal)

    def _required(self, ideal: int) -> bool:
        """Whether the state at the ideal must be visible."""
        if self.every is None:
            return False
        count = (ideal & self.lattice.relevant).bit_count()
        return count % self.every == 0 or ideal == self.lattice.full

    def expected(self) -> tuple[Values, ...]:
        """What could have followed the last state that was mapped."""
        current = self.states[self.furthest] if self.furthest >= 0 else None
        nexts: list[Values] = []
        layer = self.frontier or [0]
        while layer:
            steps = [after for ideal in layer for after in self.lattice.following(ideal)]
            values = [(after, self.lattice.values(after)) for after in steps]
            same = [current is not None and fits(current, value) for _, value in values]
            nexts += [value for (_, value), equal in zip(values, same, strict=True) if not equal]
            layer = list(
                dict.fromkeys(a for (a, _), equal in zip(values, same, strict=True) if equal)
            )
        return distinct(nexts)


def fits(shown: Shown, true: Values) -> bool:
    """Whether the views that a visible state has are as they truly are."""
    if shown == true:
        return True
    return None in shown and all(
        one is None or one == other for one, other in zip(shown, true, strict=True)
    )


def collapsed(states: Sequence[Shown]) -> list[Shown]:
    """The states with equal neighbours as one."""
    result: list[Shown] = []
    for state in states:
        if not result or state != result[-1]:
            result.append(state)
    return result


def distinct(values: Iterable[Values]) -> tuple[Values, ...]:
    """Different ones, the first `MOST`."""
    result: list[Values] = []
    for value in values:
        if value not in result:
            result.append(value)
        if len(result) == MOST:
            break
    return tuple(result)
