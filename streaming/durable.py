"""What the service keeps as JSON under `_state`: immutable classes, each with a version, and their codec.

A class's fields are the format. `files` names the staged files that its rows are in; who tidies up reads
this field and nothing else, so a class never leaves it to others to find paths in its JSON. It is filled
where the object is made, from values that are typed still: rows are `messages.Rows` there, whatever they
are part of.

A form of an earlier version is brought up to the present one by `former`, step by step, when it is read;
one of a later version is refused, since what it says may be lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import to_jsonable_python

from streaming.errors import FrescoError
from streaming.messages import Rows


class Durable(BaseModel):
    """One kind of state; `VERSION` is the form that is written now.

    Attributes:
        version: the form it was read in or is written in; absent is 1.
        files: the staged files it refers to, relative to the warehouse, sorted.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    VERSION: ClassVar[int] = 1
    version: int = 1
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, **values: Any) -> Self:
        """One with these fields, in the present form, and `files` from the rows among them."""
        named = sorted({*values.pop("files", ()), *files_of(values)})
        return cls(version=cls.VERSION, files=tuple(named), **values)

    @classmethod
    def loaded(cls, saved: Mapping[str, Any] | Self) -> Self:
        """From JSON values.

        Raises:
            FrescoError: STATE_NEWER; STATE_DAMAGED.
        """
        if isinstance(saved, cls):
            return saved
        assert isinstance(saved, Mapping)
        values = dict(saved)
        version = values.get("version", 1)
        refuse_newer(cls.__name__, version, cls.VERSION)
        for number in range(version, cls.VERSION):
            values = {**cls.former(number, values), "version": number + 1}
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise damaged(cls.__name__, error) from error

    @classmethod
    def former(cls, version: int, values: dict[str, Any]) -> dict[str, Any]:
        """The form of `version` as that of the next one."""
        raise NotImplementedError(f"{cls.__name__} has no version {version}")

    def dumped(self) -> dict[str, Any]:
        """As JSON values."""
        return self.model_dump(mode="json")


def files_of(value: Any) -> Iterator[str]:
    """The staged files of all rows in a value."""
    if isinstance(value, Rows):
        if value.path is not None:
            yield value.path
    elif isinstance(value, Durable):
        yield from value.files
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from files_of(getattr(value, name))
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from files_of(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from files_of(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from files_of(item)


def as_json(value: Any) -> Any:
    """A value made of models, data classes, tuples and mappings as JSON values."""
    return to_jsonable_python(value)


def refuse_newer(what: str, version: int, known: int, where: str = "") -> None:
    """Refuse the form of a later version of the program.

    Raises:
        FrescoError: STATE_NEWER.
    """
    if version > known:
        raise FrescoError(
            "STATE_NEWER",
            f"{what} was kept in form {version}, and this program knows forms up to {known}",
            where=where,
            todo="start the version of the program that wrote it, or a later one; or go back to a backup"
            " of the warehouse from before that version ran",
        )


def damaged(what: str, error: ValidationError, where: str = "") -> FrescoError:
    """What is kept does not have its form."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return FrescoError(
        "STATE_DAMAGED",
        f"{what} cannot be read: {place}: {first['msg']}",
        where=where,
        todo="restore the file from a backup of the warehouse's _state folder",
    )
