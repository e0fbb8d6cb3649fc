"""Physical names (DESIGN 8; ODDITIES 16)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.warehouse.names import (
    RESERVED,
    distinct_names,
    escape,
    folder_name,
    physical_name,
    physical_names,
)

REFUSED = ' ,;{}()=.\t\n`"'
NAMES = st.text(st.sampled_from('aAbB01_%. ,;{}()=\t\n`"é中/2u'), max_size=8)


def test_ordinary_names_stay_as_they_are() -> None:
    assert physical_names(["account", "Total_2", "größe", "数量"]) == (
        *("account", "Total_2", "größe", "数量"),
    )


def test_what_delta_refuses_is_escaped_and_case_clashes_are_numbered() -> None:
    assert physical_names(["a b", "Id", "id", "ID", "x.y", ""]) == (
        *("a%20b", "Id", "id%_2", "ID%_3", "x%2Ey", "%"),
    )
    assert distinct_names(["Id", "id", "a b"]) == ("Id", "id%_2", "a b")


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_view_may_have_the_name_of_one_of_our_columns(name: str) -> None:
    assert physical_name(name).casefold() not in RESERVED
    assert physical_name(name.upper()).casefold() not in RESERVED


@given(NAMES, NAMES)
def test_different_names_have_different_physical_names(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)
    assert (physical_name(one) == physical_name(other)) == (one == other)


@given(st.lists(NAMES, unique=True, max_size=8))
def test_physical_names_of_a_schema_never_clash_and_hold_nothing_refused(names: list[str]) -> None:
    found = physical_names(names)
    assert len({name.casefold() for name in found}) == len(names)
    assert not any(refused in name for name in found for refused in REFUSED)
    assert physical_names(names[:-1]) == found[:-1]


@given(st.text(max_size=8))
def test_folders_are_plain_for_every_file_system(name: str) -> None:
    assert all(one.isascii() and (one.isalnum() or one in "_-") for one in folder_name(name))
