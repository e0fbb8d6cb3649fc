"""What a simulated history is made from, and what is said of it afterwards.

A case and a seed determine everything: `run` of the same two gives the same history, on any machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from streaming.simulator.small_views import RelationSet, ViewSet
from streaming.viewmanagers.levels import Level
from streaming.viewmanagers.modes import Numbering

Scenario = Literal["single", "local", "global"]
"""What a transaction is (strobe-family 3.1): one update, one source's transaction, a global one."""
Visibility = Literal["prefix", "set"]
Merge = Literal["none", "spa", "pa", "auto", "blocks"]
Submission = Literal["at-once", "declared", "sequential", "dependent"]
"""A warehouse transaction commits at once, or travels to the warehouse: then it commits in any order that
the merge's discipline leaves (painting-mvc 4.3)."""
Order = Literal["overtake", "prefix"]
Routing = Literal["direct", "with-actions"]
"""Who tells the merge of REL (painting-mvc 3.2): the integrator, or the action lists."""


@dataclass(frozen=True)
class Faults:
    """Probabilities, each per message.

    Attributes:
        crash: the machine that gets the message stops, before or after its step is durable.
        lose, repeat, reorder: what happens to a notification; only `isolated` claims to survive it.
    """

    crash: float = 0.0
    lose: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0


class Load(NamedTuple):
    """What the sources run: the part of a case that its worlds follow from (see `Case`)."""

    scenario: Scenario
    views: ViewSet
    relations: RelationSet
    sources: int
    transactions: int
    domain: int
    rows: int
    changes: int
    key_changes: float
    no_ops: float
    truncates: float


@dataclass(frozen=True)
class Case:
    """One kind of history.

    Attributes:
        modes: view manager modes; one for all views, or one for each view in the set's order.
        scenario: what the sources run and by what the auditor judges.
        views, relations: see `views`; relations "any" draws a set with keys.
        sources: over how many sources the relations are spread.
        transactions: committed by all sources together; a part of a global one counts as one.
        domain: how many values a column has (a key one more); the smaller, the more rows meet.
        rows: initial rows of each relation, at most.
        changes: row changes in one transaction, at most (always 1 in scenario "single").
        key_changes, no_ops, truncates: shares of the row changes.
        visibility: an answer sees a prefix of the source's log, or any set that a snapshot can be.
        batch: transactions in one message, a cut after it; `vary` draws each message's size up to it.
        numbering: None for what the modes ask for.
        merge: the per-view histories alone, or SPA, PA, SPA over blocks of `every`, or what the modes
            ask for.
        greedy: ready rows go into one warehouse transaction, else each into its own.
        submission: when the merge's transactions commit.
        order: whether rows may overtake each other at the merge, as the paper allows.
        rel: who tells the merge of REL.
        copied: relations that managers keep copies of, and do not ask for (strobe-family 9).
        view_changes: the probability, at each cut and for each view, that it joins the group there or
            leaves it (painting-mvc 1.2); the group begins with some of the views. Needs a merge.
        options: of the managers, by name ("period": 2).
    """

    modes: tuple[str, ...] = ("replica",)
    scenario: Scenario = "single"
    views: ViewSet = "chain"
    relations: RelationSet = "any"
    sources: int = 3
    transactions: int = 6
    domain: int = 2
    rows: int = 3
    changes: int = 3
    key_changes: float = 0.15
    no_ops: float = 0.05
    truncates: float = 0.0
    visibility: Visibility = "prefix"
    batch: int = 1
    vary: bool = False
    numbering: Numbering | None = None
    merge: Merge = "none"
    greedy: bool = False
    submission: Submission = "at-once"
    order: Order = "overtake"
    rel: Routing = "direct"
    copied: tuple[str, ...] = ()
    view_changes: float = 0.0
    faults: Faults = Faults()
    options: tuple[tuple[str, int], ...] = ()

    @property
    def load(self) -> Load:
        return Load(
            self.scenario,
            self.views,
            self.relations,
            self.sources,
            self.transactions,
            self.domain,
            self.rows,
            self.changes,
            self.key_changes,
            self.no_ops,
            self.truncates,
        )

    def option(self, name: str, default: int) -> int:
        return dict(self.options).get(name, default)

    def mode_of(self, place: int) -> str:
        """The mode of the view at a place of its set."""
        return self.modes[place if len(self.modes) > 1 else 0]


@dataclass(frozen=True)
class HistoryOutcome:
    """What one history came to.

    Attributes:
        levels: by view.
        group: of all views together; the lowest of `levels` where no merge ran.
        witness: why a level is not higher, None when all are complete.
        history: in short notation, one event each.
        counters: queries, answers held, questions asked again, lists, crashes, ...
    """

    case: Case
    seed: int
    levels: Mapping[str, Level]
    group: Level
    witness: str | None
    history: tuple[str, ...]
    counters: Mapping[str, int] = field(default_factory=dict)
