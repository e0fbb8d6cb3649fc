"""A history over live databases, told to several view managers: a script says who hears what when.

Each transaction is committed once, and when a source evaluates, each manager's statement is evaluated
then, so that the managers differ in nothing but what they make of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from streaming.algebra.tree import Tree
from streaming.demo.anomalies.databases_played import Change, Databases
from streaming.demo.anomalies.player import Make, Player, operators
from streaming.demo.anomalies.shown import (
    Anomaly,
    AnomalyShown,
    Shown,
    Side,
    StoryLine,
    changes_only,
    row_text,
    shown_text,
)
from streaming.demo.embedded.slot_log import SlotTransaction
from streaming.engines.duck.signed import Signed
from streaming.messages import GlobalPart, RelRun, SourceLog, Updates
from streaming.scalars.types import delta_schema


class Play:
    """A history over live databases, and the managers that follow it.

    Attributes:
        views: name -> the view's tree, side by side.
        players: by name.
        truth: the views over the sources after each transaction that the script calls whole.
    """

    def __init__(self, databases: Databases, views: Mapping[str, str]) -> None:
        self.databases = databases
        self.views = {name: databases.view(text) for name, text in views.items()}
        self.players: dict[str, Player] = {}
        self.history: list[str] = []
        self.steps: list[tuple[str, list[list[Shown]], Shown, bool]] = []
        """What happened, what each side has shown since, the sources' state, and whether it is whole."""
        self.number = 0
        self.truth: list[Shown] = [self.state()]
        self._sides: tuple[Sequence[Shown], ...] = ()
        self._noted: list[int] = []
        self._whole = True
        self._undo = ExitStack()
        self._undo.callback(databases.close)
        self._operators = operators()
        self._transactions = dict.fromkeys(databases.names, 0)

    def state(self) -> Shown:
        """The views over the tables now."""
        return self.databases.state(self.views.values())

    def play(
        self, name: str, make: Make, view: str | Tree | None = None, *, exact: bool = False
    ) -> Player:
        """A manager joins, at number 0.

        Args:
            view: one of the views; the first where none is said.
            exact: it compensates exactly: its statements go through the FIFO adapter.
        """
        tree = next(iter(self.views.values())) if view is None else view
        tree = self.views[tree] if isinstance(tree, str) else tree
        player = Player(name, tree, make, self.databases, self.history, exact)
        self._undo.callback(player.close)
        self.players[name] = player
        player.deliver(self.message(self.databases.initial, 0, {}))
        player.lists.clear()
        return player

    def watch(self, *sides: Sequence[Shown]) -> None:
        """The growing lists of what is shown: the naive side's first, then the right one's."""
        self._sides, self._noted = sides, [0] * len(sides)
        self.step("at first")

    def told(self, text: str) -> None:
        """Note what a session has done that no log tells of."""
        self.history.append(text)
        self.step(text)

    def step(self, text: str) -> None:
        """Note what each side and the sources show now."""
        news = [list(side[at:]) for side, at in zip(self._sides, self._noted, strict=True)]
        shown = [found or [side[-1]] for found, side in zip(news, self._sides, strict=True)]
        self._noted = [len(side) for side in self._sides]
        self.steps.append((text, shown, self.state(), self._whole))

    # The sources ----------------------------------------------------------------------------------

    def commit(self, *changes: Change, whole: bool = True) -> list[tuple[str, SlotTransaction]]:
        """A transaction at each database that the changes touch, committed and not yet told of.

        Args:
            whole: nothing of a global transaction is left to come.
        """
        return self.committed(self.databases.commit(*changes), whole)

    def committed(
        self, found: list[tuple[str, SlotTransaction]], whole: bool = True
    ) -> list[tuple[str, SlotTransaction]]:
        """Note what sessions have committed."""
        for source, one in found:
            self._transactions[source] += 1
            text = " ".join(f"{'+' if s > 0 else '-'}{n}{row_text(r)}" for n, s, r in one.changes)
            self.history.append(f"{source}{self._transactions[source]}: {text}")
        self._whole = whole
        if whole:
            self.truth.append(self.state())
        self.step("; ".join(self.history[-len(found) :]))
        return found

    def evaluate(self, source: str) -> None:
        """The source evaluates a statement of each manager, at this moment."""
        for player in self.players.values():
            player.evaluate(source)
        self.step(f"{source} evaluates")

    def answer(self) -> None:
        """Each manager's oldest answer arrives."""
        for player in self.players.values():
            player.take_answer()
        self.step("the answer arrives")

    def settle(self) -> None:
        """All that is asked is answered, all that is answered arrives."""
        while any(one.statements or one.answers or one.held for one in self.players.values()):
            for source in self.databases.names:
                for player in self.players.values():
                    while player.evaluate(source):
                        pass
            for player in self.players.values():
                while player.take_answer():
                    pass
            for player in self.players.values():
                for source in player.held:
                    # Until something further is in the log, it may not have told all the answer saw.
                    player.sources[source].mark()
                    self.deliver(self.updates(*self.databases.read_log(source)))
        self.step("everything is answered")

    # Updates --------------------------------------------------------------------------------------

    def updates(
        self, *committed: tuple[str, SlotTransaction], part: tuple[str, int] | None = None
    ) -> Updates:
        """The transactions' parts under the next number.

        Args:
            part: the global transaction that this is a part of, and how many it has.
        """
        self.number += 1
        rows: dict[str, dict[Any, int]] = {}
        for _, one in committed:
            for name, sign, row in one.changes:
                found = rows.setdefault(name, {})
                found[row] = found.get(row, 0) + sign
        return self.message(rows, self.number, dict(committed), part)

    def apart(self, source: str, committed: SlotTransaction) -> Iterator[Updates]:
        """A transaction's changes as if each were one, under numbers of their own."""
        for name, sign, row in committed.changes:
            self.number += 1
            yield self.message({name: {row: sign}}, self.number, {source: committed})

    def message(
        self,
        rows: Mapping[str, Mapping[Any, int]],
        number: int,
        committed: Mapping[str, SlotTransaction],
        part: tuple[str, int] | None = None,
    ) -> Updates:
        """Rows of one number as the integrator tells of them."""
        packed = {}
        for name, found in rows.items():
            schema = delta_schema(self.databases.relations[name].schema)
            bag = {(number, row): n for row, n in found.items() if n}
            packed[name] = self._operators.pack(Signed(schema, bag=bag))
        logs = {
            source: SourceLog(numbers=(number,), transactions=(one.id,), positions=(one.position,))
            for source, one in committed.items()
        }
        return Updates(
            group="g",
            first=number,
            last=number,
            runs=(RelRun(first=number, last=number, views=tuple(sorted(self.players))),),
            relations=packed,
            logs=logs,
            delivered={source: log.position for source, log in self.databases.logs.items()},
            parts=() if part is None else (GlobalPart(number=number, id=part[0], parts=part[1]),),
        )

    def deliver(self, message: Updates, *names: str) -> None:
        """Updates reach some managers, or all of them."""
        told = names or tuple(self.players)
        self.history.append(f"U[{message.first}..{message.last}] -> {', '.join(told)}")
        for name in told:
            self.players[name].deliver(message)
        self.step(f"U{message.first} arrives" + (f" at {', '.join(names)}" if names else ""))

    def outcome(self, seed: int, sides: Sequence[Side], about: Anomaly) -> AnomalyShown:
        """What came of it for the naive side and the right one, and the end of everything."""
        naive, right = sides
        views = tuple(self.views)
        steps = tuple(
            StoryLine(
                text,
                _texts(before, views),
                _texts(after, views),
                shown_text(truth, views) if whole else f"half: {shown_text(truth, views)}",
            )
            for text, (before, after), truth, whole in self.steps
        )
        self.close()
        return AnomalyShown(
            anomaly=about,
            seed=seed,
            views=views,
            history=tuple(self.history),
            steps=steps,
            naive=naive,
            right=right,
            sources=tuple(self.truth),
        )

    def close(self) -> None:
        self._undo.close()


def _texts(states: Iterable[Shown], views: Sequence[str]) -> tuple[str, ...]:
    return tuple(shown_text(one, views) for one in changes_only(states))
