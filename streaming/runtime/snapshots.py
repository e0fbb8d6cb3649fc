"""What each stage keeps in its manifests, as classes: one for each kind of stage.

A view's stage has two: `ReplicaState` of one that maintains the view from what it keeps of its
relations, and `AskingState` of one that asks the sources; `kind` tells them apart. Both may have parts
that only some have: of one that joins, that takes REL on, that goes by blocks or reads other views.

Version 1 said neither `kind` nor `files`, nor whether the merge's REL rides: `former` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from streaming.durable import Durable
from streaming.messages import Rows, Updates

Seen = dict[str, tuple[int, int]]
"""An inbox: "topic producer" -> (generation, sequence) of the last message taken."""
Error = dict[str, str]
"""A `FrescoError` as its `as_dict` gives it."""


class Part(BaseModel):
    """A part of a state; the version is the whole's."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Reached(Part):
    """How far a view manager has come.

    Attributes:
        number: everything up to it is handled.
        suspended_after: the last number handled before the view was suspended.
    """

    number: int
    view: str | None = None
    suspended_after: int | None = None


class Checkpoint(Reached):
    """A folded state up to `number`; `leaves` of the view's tree, and each one's files.

    The files are the stage's own (`_state/<stage>/checkpoints`), not staged ones.
    """

    leaves: int
    files: tuple[tuple[str, ...], ...]


class Phase(Part):
    """How far a view that joins, or comes back, has come.

    Attributes:
        start: the number its first rows are of.
        joined: the cut at which it has joined.
        begin: "topic:partition" -> where it begins to read.
        content: its first list, until it has joined.
        near: it is so far on that it could join.
    """

    start: int = 0
    joined: int | None = None
    begin: dict[str, int] = Field(default_factory=dict)
    content: tuple[Rows, ...] = ()
    failed: Error | None = None
    near: bool = False


class Riding(Part):
    """What a stage that takes REL on has heard; `rel` is `Forwarding`'s."""

    inbox: Seen
    rel: dict[str, Any]


class ViewState(Durable):
    """Of every stage of a view."""

    VERSION: ClassVar[int] = 2
    inbox: Seen = Field(default_factory=dict)
    control: Reached
    suspended: Error | None = None
    joining: Phase | None = None
    forwarding: Riding | None = None

    @classmethod
    def former(cls, version: int, values: dict[str, Any]) -> dict[str, Any]:
        return {
            **values,
            "kind": "asking" if "machines" in values else "replica",
            "files": tuple(sorted(set(_files_of_1(values)))),
        }

    @property
    def number(self) -> int:
        """Everything up to it is handled."""
        return self.control.number

    @property
    def waits(self) -> bool:
        """Whether it is to join or to come back, and has not yet."""
        return self.joining is not None and self.joining.joined is None

    @property
    def listed(self) -> int:
        """The last number up to which all lists are sent."""
        return self.number

    def needed(self, start: int) -> int:
        """The first number that a restart would replay from `_updates`; `start`: its first."""
        raise NotImplementedError


class ReplicaState(ViewState):
    """Of a stage that keeps what its view needs of its relations.

    Attributes:
        begun: of one that goes by blocks: the numbers of the block that is not whole.
        mediator: of one that reads other views (`Mediator.snapshot`).
        handed: of such a one: parent -> its rows since the checkpoint.
    """

    kind: Literal["replica"] = "replica"
    checkpoint: Checkpoint | None = None
    begun: Updates | None = None
    mediator: Any = None
    handed: dict[str, tuple[Rows, ...]] = Field(default_factory=dict)

    def needed(self, start: int) -> int:
        return start if self.checkpoint is None else self.checkpoint.number + 1


class AskingState(ViewState):
    """Of a stage that asks the sources.

    Attributes:
        machines: its manager, processor, adapter and backlog (`Dialogue.snapshot`); None once it is over.
        durable: source -> a position that it has written durably.
    """

    kind: Literal["asking"] = "asking"
    machines: Any = None
    durable: dict[str, int] = Field(default_factory=dict)

    @property
    def listed(self) -> int:
        return int(self.machines["manager"]["sent"]) if self.machines else self.number

    def needed(self, start: int) -> int:
        # One that is to come back does so with the relations as `_updates` has them.
        return 0 if self.waits else self.number + 1


def view_state(saved: Mapping[str, Any]) -> ViewState:
    """Of a view's stage, whichever kind it is.

    Raises:
        FrescoError: STATE_NEWER, STATE_DAMAGED.
    """
    kind = saved.get("kind") or ViewState.former(1, dict(saved))["kind"]
    return (AskingState if kind == "asking" else ReplicaState).loaded(saved)


class IntegratorState(Durable):
    """Of the integrator.

    Attributes:
        sequence: of its last entry in `_updates`.
        intake: what waits for its transaction, snapshots and the numbering (`Intake.snapshot`).
        number: the last one given.
        bad: records of this step that cannot be decoded, or are lost.
        incomplete: source -> its transactions that lack rows.
        spanned: transactions over several groups.
        views: what is maintained where views come and go (`ViewChanges.snapshot`).
    """

    VERSION: ClassVar[int] = 2
    sequence: int
    intake: dict[str, Any]
    number: int
    bad: tuple[dict[str, Any], ...] = ()
    incomplete: dict[str, Any] = Field(default_factory=dict)
    spanned: int = 0
    views: dict[str, Any] | None = None

    @classmethod
    def former(cls, version: int, values: dict[str, Any]) -> dict[str, Any]:
        held = {one for one in _texts_of_1(values["intake"]) if one.startswith("_staging/")}
        return {**values, "files": tuple(sorted(held))}


class MergingState(Durable):
    """Of the merge of a group.

    Attributes:
        machine: the painting (`MergeMachine.snapshot`, `BlockMerge.snapshot` or `RoutedMerge.snapshot`).
        routed: REL rides on the action lists.
        published: every list up to it is in a durable commit.
        causes: view -> why it was suspended last.
        refused: view whose rows the table could not take -> its stages that are not heard.
        views: view -> the number at which it joined, where views come and go.
    """

    VERSION: ClassVar[int] = 2
    inbox: Seen = Field(default_factory=dict)
    machine: dict[str, Any] = Field(default_factory=dict)
    routed: bool = False
    published: int = -1
    causes: dict[str, Error] = Field(default_factory=dict)
    refused: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    views: dict[str, int] | None = None

    @classmethod
    def former(cls, version: int, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "routed": "routing" in values.get("machine", {})}

    def refusal(self, view: str, stage: str) -> Error | None:
        """Why the group's table could not take what this stage of a view sent; None where it could."""
        return self.causes[view] if stage in self.refused.get(view, ()) else None


class SessionsState(Durable):
    """Of a group of isolated views.

    Attributes:
        machine: the session under way (`Isolated.snapshot`).
        marks: see `Absent`.
        suspended: view -> since when and why.
        read_ms: when the sources were read last.
        durable: source -> a position that it has written durably.
    """

    VERSION: ClassVar[int] = 2
    machine: Any
    marks: Any = None
    suspended: dict[str, Any] | None = None
    epoch: int = 0
    read_ms: int | None = None
    positions: dict[str, str] = Field(default_factory=dict)
    durable: dict[str, int] = Field(default_factory=dict)

    @classmethod
    def former(cls, version: int, values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "files": tuple(sorted(set(_files_of_1(values))))}


# Version 1 ----------------------------------------------------------------------------------------


def _files_of_1(value: Any) -> Iterator[str]:
    """The staged files of a state of version 1, which did not name them: paths of references to rows."""
    if isinstance(value, Mapping):
        if isinstance(path := value.get("path"), str) and "sha256" in value:
            yield path
        for item in value.values():
            yield from _files_of_1(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _files_of_1(item)


def _texts_of_1(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts_of_1(item)
    elif isinstance(value, str):
        yield value
