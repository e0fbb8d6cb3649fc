"""Errors a user can meet: each has a code, and says what, where and what to do (DESIGN 11)."""

from __future__ import annotations

from collections.abc import Mapping

from streaming.plain import plain


class FrescoError(Exception):
    """One error with a stable code.

    Args:
        code: UPPER_SNAKE_CASE, its first word the area (CONFIG, SQL, SOURCE, KAFKA, ...).
        what: one sentence that says what is wrong.
        where: the place: file and line, or source, topic, partition and offset, or the view.
        todo: what the user can do about it.
    """

    def __init__(self, code: str, what: str, *, where: str = "", todo: str = "") -> None:
        self.code = code
        self.what = what
        self.where = where
        self.todo = todo
        super().__init__(str(self))

    def __str__(self) -> str:
        place = f" [{self.where}]" if self.where else ""
        advice = f" -> {self.todo}" if self.todo else ""
        return plain(f"{self.code}: {self.what}{place}{advice}")

    def as_dict(self) -> dict[str, str]:
        """The same error for programs (`--json`, manifests, metrics)."""
        return {"code": self.code, "what": self.what, "where": self.where, "todo": self.todo}


def about(error: Mapping[str, str], view: str) -> dict[str, str]:
    """An error's dict whose commands name the view it has stopped (NAME in them until then)."""
    return {**error, "todo": error.get("todo", "").replace("NAME`", f"{view}`")}


class ProtocolError(FrescoError):
    """A message that breaks a machine's protocol; the machine's state is as it was before.

    Raised by machines only; the code is `PROTOCOL_<MACHINE>`.
    """

    def __init__(self, machine: str, message: object, rule: str) -> None:
        super().__init__(
            f"PROTOCOL_{machine.upper()}",
            f"{rule}; message: {message!r:.500}",
            where=machine,
            todo="this is a defect or a damaged topic; run `fresco doctor` and report it",
        )
