"""One thing that was looked at around a pipeline: what `fresco doctor` shows and a start refuses."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

from streaming.errors import FrescoError

log = logging.getLogger("fresco")
LOCKED = "SOURCE_TABLE_LOCKED"


@dataclass(frozen=True)
class Checked:
    """One check's result.

    Attributes:
        level: "wrong" loses or alters data, or nothing would run; "warning" is only doubtful.
        code: of a wrong or doubtful result, as an error has it; "" where only `doctor` looks.
    """

    check: str
    level: Literal["ok", "warning", "wrong"]
    says: str
    todo: str = ""
    code: str = ""

    @property
    def bad(self) -> bool:
        return self.level == "wrong"

    def as_dict(self) -> dict[str, str]:
        return {key: value for key, value in asdict(self).items() if key != "code" or value}

    @property
    def error(self) -> FrescoError:
        """The error that refuses a start for it."""
        return FrescoError(self.code, self.says, where=self.check, todo=self.todo)


@dataclass(frozen=True)
class Rule:
    """What may be found of a pipeline's surroundings, as docs/doctor.md lists it.

    Attributes:
        level: "wrong" is refused at a start, "warning" is said there, "either" depends on what is known.
        means: what it is, in a few words.
    """

    code: str
    level: Literal["warning", "wrong", "either"]
    means: str

    def found(
        self, check: str, says: str, todo: str, level: Literal["warning", "wrong", ""] = ""
    ) -> Checked:
        """It was found; `level` where either is possible."""
        chosen = level or ("wrong" if self.level == "either" else self.level)
        return Checked(check, chosen, says, todo, self.code)


def warn(found: Iterable[Checked]) -> None:
    """Log what is doubtful, and as an error what is wrong and not refused."""
    for one in found:
        if one.level != "ok":
            level = logging.ERROR if one.bad else logging.WARNING
            log.log(level, "%s: %s: %s -> %s", one.code, one.check, one.says, one.todo)


def failed(check: str, error: FrescoError) -> Checked:
    """The result of a check that an error ended: doubtful where that passes by itself."""
    says = f"{error.code}: {error.what} [{error.where}]"
    level: Literal["warning", "wrong"] = "warning" if error.code == LOCKED else "wrong"
    return Checked(check, level, says, error.todo, error.code)


def table_locked(source: str, seconds: int, holders: str) -> FrescoError:
    """The error of a question that has waited long enough for a lock.

    Args:
        holders: the statement that shows who may hold it.
    """
    return FrescoError(
        LOCKED,
        f"another session has locked a table that is asked for; {seconds} s were waited",
        where=f"source {source}",
        todo=f"let it end, then try again; it is among: {holders};",
    )
