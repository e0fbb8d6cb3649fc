"""What people ask of a pipeline's views: durable, in one order, whether the service runs or not.

`<warehouse>/_state/requests/00000007.json` is the seventh request, written whole by put-if-absent. What
becomes of it stands beside it, each word said once by the one stage that can:

    00000007.loaded.json      the new view's stage: its content is there and nearly caught up
    00000007.announced.json   the integrator: the cut at which the view joins or leaves
    00000007.done.json        the merge: the commit is durable; or who refused or cancelled it, and why

Files and not a topic: the command that writes one needs no broker, a request made while nothing runs
waits for the next start, and every driver of the pipeline sees the warehouse anyway. The words are for
people and for the other stages; each stage's own truth is in its manifests, from which a word that a
crash has swallowed is said again.

What people ask stays for good. A view that is suspended asks by itself, and may do so for days: of its
own tries those go that a later one has replaced (`_forget`), never the request with the highest number,
so no number is given out twice.
"""

from __future__ import annotations

import getpass
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from streaming.errors import FrescoError
from streaming.merge.algorithms import Manager, Sends
from streaming.runtime.manifests import ManifestExists, put_if_absent

Word = Literal["loaded", "announced", "done"]
ALL = Manager()


class Request(BaseModel):
    """One request.

    Attributes:
        number: its place in the order, from 1.
        entry: the catalog's entry of a view that is added; None to drop or to resume one.
        sends, every: what a joining view's manager sends (`merge.algorithms.Manager`).
        by: who asked, from where and when (milliseconds since 1970).
    """

    model_config = ConfigDict(frozen=True)
    number: int
    change: Literal["add", "drop", "resume"]
    view: str
    entry: dict[str, Any] | None = None
    sends: Sends = "complete"
    every: int | None = None
    by: dict[str, Any] = Field(default_factory=dict)

    @property
    def joins(self) -> bool:
        """Whether the view joins its group, for the first time or again."""
        return self.change != "drop"


class Requests:
    """The requests of a pipeline."""

    def __init__(self, warehouse: Path) -> None:
        self._folder = warehouse / "_state" / "requests"
        self._known: dict[int, Request] = {}
        self._done: set[int] = set()

    def put(
        self,
        change: Literal["add", "drop", "resume"],
        view: str,
        entry: Mapping[str, Any] | None = None,
        manager: Manager = ALL,
        by_itself: bool = False,
    ) -> Request:
        """Write the next request.

        Raises:
            FrescoError: VIEW_CHANGE_PENDING, another request for the view is under way. A view that
                is being added may be dropped.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        while True:
            number = max(self._numbers(), default=0) + 1
            self.refuse_pending(change, view)
            request = Request(
                number=number,
                change=change,
                view=view,
                entry=None if entry is None else dict(entry),
                sends=manager.sends,
                every=manager.every,
                by=asked_by() | ({"by_itself": True} if by_itself else {}),
            )
            try:
                put_if_absent(self._path(number), request.model_dump_json().encode())
            except ManifestExists:
                continue
            if by_itself:
                self._forget()
            return request

    def refuse_pending(self, change: str, view: str) -> None:
        """One change of a view at a time; but what is to join may be dropped.

        Raises:
            FrescoError: VIEW_CHANGE_PENDING.
        """
        for other in self.open():
            if other.view == view and not (change == "drop" and other.change != "drop"):
                raise _pending(other)

    def all(self) -> list[Request]:
        """Every request, in order.

        Raises:
            FrescoError: STATE_DAMAGED.
        """
        found = {}
        for number in sorted(self._numbers()):
            known = self._known.get(number) or self._read(number)
            if known is not None:
                found[number] = known
        self._known = found
        return list(found.values())

    def files(self) -> frozenset[str]:
        """Names of all files: they change with every request and every word."""
        return frozenset(file.name for file in self._folder.glob("[0-9]*.json"))

    def open(self) -> list[Request]:
        """Those that have come to no end yet, in order."""
        return [one for one in self.all() if not self._is_done(one.number)]

    def joining(self, view: str) -> Request | None:
        """The open request by which a view joins."""
        return next((one for one in self.open() if one.view == view and one.joins), None)

    def say(self, request: int, word: Word, /, **facts: Any) -> None:
        """Say what became of a request; said again, or of one that is gone, it changes nothing."""
        path = self._path(request, word)
        if path.exists() or not self._path(request).exists():
            return
        try:
            put_if_absent(path, json.dumps(facts).encode())
        except ManifestExists:
            return

    def told(self, number: int, word: Word) -> dict[str, Any] | None:
        """What was said; None while nothing was."""
        try:
            found: dict[str, Any] = json.loads(self._path(number, word).read_bytes())
        except FileNotFoundError:
            return None
        return found

    def is_over(self, number: int) -> bool:
        """Whether a request has come to its end; it may have been forgotten since."""
        return self._is_done(number) or not self._path(number).exists()

    def _forget(self) -> None:
        """Remove what views have asked by themselves and nobody needs any more.

        A try that failed goes when its view has asked again, one that brought the view back when another
        change of it is done: until then the view's stage is the one of that request. The request goes
        before its words, so what a crash leaves is never taken for one that is open; words without a
        request go the next time.
        """
        requests = self.all()
        ends = {one.number: self.told(one.number, "done") for one in requests}
        later: dict[str, bool] = {}
        """View -> whether one of its later requests has changed it."""
        for one in reversed(requests):
            end = ends[one.number]
            changed = end is not None and not end.keys() & {"error", "cancelled_by"}
            tried = one.change == "resume" and bool(one.by.get("by_itself")) and end is not None
            if tried and (later.get(one.view, False) if changed else one.view in later):
                self._path(one.number).unlink(missing_ok=True)
            later[one.view] = later.get(one.view, False) or changed
        for file in self._folder.glob("[0-9]*.json"):
            if not _is_own(file) and not self._path(int(file.name[:8])).exists():
                file.unlink(missing_ok=True)

    def _is_done(self, number: int) -> bool:
        if number not in self._done and self._path(number, "done").exists():
            self._done.add(number)
        return number in self._done

    def _read(self, number: int) -> Request | None:
        """None of one that has been forgotten since it was listed."""
        path = self._path(number)
        try:
            return Request.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise FrescoError(
                "STATE_DAMAGED",
                f"a request cannot be read: {error.errors()[0]['msg']}",
                where=str(path),
                todo="restore the file from a backup of the warehouse's _state folder",
            ) from error

    def _numbers(self) -> list[int]:
        return [int(file.name[:8]) for file in self._folder.glob("[0-9]*.json") if _is_own(file)]

    def _path(self, number: int, word: Word | None = None) -> Path:
        return self._folder / (
            f"{number:08d}.json" if word is None else f"{number:08d}.{word}.json"
        )


def phase(requests: Requests, request: Request) -> str:
    """Where a request stands, in words."""
    if (done := requests.told(request.number, "done")) is not None:
        return "refused" if "error" in done else "cancelled" if "cancelled_by" in done else "done"
    verb = {"add": "join", "drop": "leave", "resume": "come back"}[request.change]
    if (told := requests.told(request.number, "announced")) is not None:
        return f"is to {verb} at number {told['cut']}"
    if (told := requests.told(request.number, "loaded")) is not None:
        return f"is to {verb}; loaded as of number {told['number']}"
    return f"is to {verb}" + ("; loads its rows" if request.joins else "")


def asked_by() -> dict[str, Any]:
    """Who asks now: for the audit of what people decide."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"  # a user id without a name, as in containers
    return {"user": user, "host": socket.gethostname(), "at_ms": int(time.time() * 1000)}


def _is_own(file: Path) -> bool:
    return file.name.removesuffix(".json").isdigit()


def _pending(other: Request) -> FrescoError:
    return FrescoError(
        "VIEW_CHANGE_PENDING",
        f"request {other.number} to {other.change} view {other.view} is under way",
        where=f"view {other.view}",
        todo="wait until `fresco view list` shows it done (a service must run); a view that is being "
        "added can be dropped",
    )
