"""A view manager that asks, with its query processor, its FIFO adapter and its sources, in one thread.

    updates -> adapter -> manager -> query -> processor -> statement -> adapter -> source
                             ^                   |  ^                                 |
                             '----- answer ------'  '---- adapter <- source's answer -'

Everything that follows from one message of updates is done before the next: statements are answered by
the sources at once, and only an answer whose state is ahead of what has been delivered stays behind, in
the adapter's state. An answer to a query goes to the manager before the updates that stand after it, as
over a FIFO channel.

Statements are answered at pinned states where that helps (DESIGN 7; `Session.pin`): the state is taken
when nothing is asked, and by the time updates come the log has mostly got past it, so that their queries
need not wait for more of the log. A state is kept until the log has passed it; then comes the next one.
`compensating` takes messages whole, whatever the state has seen. A FIFO mode is given a message as far as
the states of its sources have seen it and the rest with the next states (`splitting.paced`): otherwise
every statement would wait for a message of its own. What waits so is the *backlog*.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from streaming.algebra.psj import psj_of
from streaming.algebra.source_queries import Answer, Query, SourceAnswer, SourceQuery, SourceState
from streaming.ask.asked import AskedSource
from streaming.ask.fifo import FifoAdapter
from streaming.ask.processor import QueryProcessor
from streaming.ask.source_kinds import StatesCodec
from streaming.ask.splitting import paced
from streaming.engines.duck.duck_mirror import DuckMirror
from streaming.engines.duck.duck_operators import DuckOperators, Pack
from streaming.engines.duck.signed import Signed
from streaming.engines.evaluator import ViewError
from streaming.errors import FrescoError
from streaming.messages import ActionList, Updates
from streaming.pipeline.choosing import Choice
from streaming.viewmanagers.base import ManagedView

log = logging.getLogger("fresco")

COUNTED = ("updates", "queries", "statements", "held", "again", "compensations")
"""What is counted: numbers that asked for work, queries of the manager, statements to sources, answers
that were held until the log had what they saw, that were asked again, and that were compensated."""
PER_PIN = 1000
"""Statements of a mode that takes messages whole at one pinned state; one that parts transactions of
one number never will do, and the manager would ask for ever."""
PIN_SECONDS = 5.0
"""How long a state is kept open while nothing comes: the source keeps old rows for it."""

Answering = Callable[[AskedSource, SourceQuery[Signed]], SourceAnswer[Signed]]


def is_trouble(error: FrescoError) -> bool:
    """Whether an error is the source's, which may pass, and not the view's data's, which does not."""
    return error.code.startswith("SOURCE_") and not isinstance(error, ViewError)


class Dialogue:
    """One view's.

    Args:
        sources: those that the view asks, by name.
        keep: packs a piece of the view's rows so that it stays out of messages.
        ask: puts a statement to its source and waits until there is an answer.
        paced: whether answers are given at pinned states; else all are given at those of the moment.
    """

    def __init__(
        self,
        spec: ManagedView,
        choice: Choice,
        operators: DuckOperators,
        sources: Mapping[str, AskedSource],
        keep: Pack,
        ask: Answering,
        *,
        paced: bool = True,
    ) -> None:
        info, codec, psj = choice.info, StatesCodec(), psj_of(spec.tree)
        mirror = DuckMirror(operators, psj.schema, keep=keep)
        self.manager: Any = info.make(spec, operators, choice.options, mirror)
        self.processor: QueryProcessor[Signed] = QueryProcessor(
            psj, operators, exact=info.exact, states=codec
        )
        self.adapter: FifoAdapter[Signed] = FifoAdapter(
            spec.view,
            psj,
            operators,
            exact=info.exact,
            states=codec,
        )
        self.counts = dict.fromkeys(COUNTED, 0)
        """How often each has happened since the last `counted`."""
        self.backlog: list[Updates] = []
        self._start = spec.start
        self._sources, self._ask = sources, ask
        self._paced = paced and info.paced and not info.exact
        self._pins: dict[str, SourceState | None] = {}
        self._pinned_at: dict[str, float] = {}
        self._asked_at_pin: dict[str, int] = {}
        self._quiet = False
        if paced and info.paced:
            self._pins = dict.fromkeys(sources)

    # Messages -------------------------------------------------------------------------------------

    def deliver(self, updates: Updates) -> Iterator[ActionList]:
        """One message, and all that follows from it.

        Raises:
            ViewError: the view's data; the machines are of no use after it.
        """
        self._quiet = False
        if not self._paced or updates.first <= self._start:
            yield from self._deliver(updates)
            self._pin_passed()
            return
        messages, self.backlog = [*self.backlog, updates], []
        for one in messages:
            if self.backlog:
                self.backlog.append(one)
                continue
            # One that does not reach a state is whole too: answers are held until a further one.
            states = {
                name: state
                for name, state in self._pins.items()
                if state is not None and one.delivered.get(name, -1) >= state.upto
            }
            pieces, later = paced(one, states)
            for piece in pieces:
                yield from self._deliver(piece)
            if later is not None:
                self.backlog.append(later)
        if self.backlog:
            self._pins = dict.fromkeys(self._pins)
        self._pin_passed()

    def flush(self) -> Iterator[ActionList]:
        """The backlog, with answers at states of the moment."""
        for name in self._pins:
            self._release(name)
        messages, self.backlog = self.backlog, []
        for one in messages:
            yield from self._deliver(one)

    def _deliver(self, updates: Updates) -> Iterator[ActionList]:
        messages: deque[Any] = deque(self.adapter.handle(updates))
        while messages:
            message = messages.popleft()
            match message:
                case Updates() | Answer():
                    if isinstance(message, Updates):
                        self.counts["updates"] += len(self.manager.relevant(message))
                    for one in self.manager.handle(message):
                        if isinstance(one, ActionList):
                            yield one
                        else:
                            messages.append(one)
                case Query():
                    self.counts["queries"] += 1
                    self._first(messages, self.processor.handle(message))
                case SourceQuery():
                    messages += self._answered(message)
                case SourceAnswer():
                    self._first(messages, self.processor.handle(message))

    def _first(
        self, messages: deque[Any], made: list[SourceQuery[Signed] | Answer[Signed]]
    ) -> None:
        """An answer is the manager's before the updates that stand after it; statements can wait."""
        for one in made:
            if isinstance(one, SourceQuery):
                messages.extend(self.adapter.handle(one))
            else:
                messages.appendleft(one)

    def _answered(self, query: SourceQuery[Signed]) -> list[Any]:
        source = self._sources[query.source]
        if not self._paced and self._pins.get(query.source) is not None:
            self._asked_at_pin[query.source] += 1
            if self._asked_at_pin[query.source] > PER_PIN:
                self._release(query.source)
        self.counts["statements"] += 1
        passed: list[Any] = self.adapter.handle(self._ask(source, query))
        self.counts["held"] += not passed
        if any(isinstance(one, SourceQuery) for one in passed):
            self.counts["again"] += 1
            self._release(query.source)  # this state would miss the same again
        return passed

    def counted(self) -> dict[str, int]:
        """What has happened since the last time."""
        counts, self.counts = self.counts, dict.fromkeys(COUNTED, 0)
        counts["compensations"] = self.manager.compensations
        self.manager.compensations = 0
        return counts

    # States ---------------------------------------------------------------------------------------

    @property
    def holding(self) -> list[str]:
        """The sources of which an answer is held."""
        out = self.adapter.out.values()
        return sorted({one.query.source for one in out if one.answer is not None})

    def rest(self) -> bool:
        """While nothing comes: move the logs on for answers that are held, and keep no state long.

        Returns whether the backlog has waited long enough and should be flushed.
        """
        flush = self._quiet and bool(self.backlog)
        if self._quiet:
            for name in self.holding:
                self._try(self._sources[name].mark)
        self._quiet = True
        for name, since in list(self._pinned_at.items()):
            if time.monotonic() - since > PIN_SECONDS:
                self._release(name)
        self._pin_passed()
        return flush

    def _pin_passed(self) -> None:
        """Pin the next state of each source whose log has got past the last one."""
        for name, state in self._pins.items():
            if state is None or self.adapter.delivered[name].position >= state.upto:
                self._asked_at_pin[name], self._pinned_at[name] = 0, time.monotonic()
                self._pins[name] = self._try(self._sources[name].pin)

    def _release(self, name: str) -> None:
        if name not in self._pins:
            return
        self._pins[name] = None
        self._try(self._sources[name].release)

    def _try(self, what: Callable[[], Any]) -> Any:
        """None where the source is in trouble: who asks it next waits for it and says so."""
        try:
            return what()
        except FrescoError as error:
            if not is_trouble(error):
                raise
            log.debug("%s", error)
            return None

    def close(self) -> None:
        for source in self._sources.values():
            source.close()

    # State ----------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values; relations by reference."""
        return {
            "manager": self.manager.snapshot(),
            "processor": self.processor.snapshot(),
            "adapter": self.adapter.snapshot(),
            "backlog": list(self.backlog),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Back to the state that `snapshot` described."""
        self.manager.restore(saved["manager"])
        self.processor.restore(saved["processor"])
        self.adapter.restore(saved["adapter"])
        self.backlog = [Updates.model_validate(one) for one in saved["backlog"]]
