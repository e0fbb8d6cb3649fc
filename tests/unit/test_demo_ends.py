"""A demo that does not come to its end says why: the service ended, nothing comes, it never rests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console
from warehouse_rows import delta, next_epoch, write_catalog

from streaming.demo import demonstration as demo
from streaming.demo.demonstration import BankStack, wait_at_rest
from streaming.demo.embedded.server_process import Command, ManagedProcess
from streaming.demo.live_board import LiveBoard
from streaming.demo.marker import Marker
from streaming.demo.naive_sum import NaiveSum
from streaming.errors import FrescoError
from streaming.scalars.expression import Column
from streaming.warehouse.delta_table import ViewTable
from streaming.warehouse.group_writer import GroupWriter

Start = Callable[[str], BankStack]
SUMS = {"balance": "balance", "branch_total": "total", "total": "total"}
ABSENT = Marker({"north": "marker-of-nobody"})


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Start]:
    """A demo's folder with a service that is a shell's script."""
    started: list[BankStack] = []

    def start(script: str) -> BankStack:
        bank = BankStack(tmp_path, Console(quiet=True))
        started.append(bank)
        bank.service = ManagedProcess(Command("fresco", ["sh", "-c", script]), bank.stack.folder)
        bank.service.start()
        return bank

    yield start
    for bank in started:
        bank.stop()


def await_first_epoch(bank: BankStack) -> None:
    board = LiveBoard(bank.warehouse, NaiveSum("nowhere:1"))
    with demo._interruptible() as interrupted:
        demo._await_first_epoch(bank, board, Console(quiet=True), interrupted)


@pytest.mark.parametrize("wait", [await_first_epoch, lambda bank: wait_at_rest(bank, ABSENT, 60)])
def test_a_service_that_ends_is_told_with_the_last_that_it_said(
    serving: Start, wait: Callable[[BankStack], None]
) -> None:
    bank = serving("seq 100; echo SOURCE_UNREACHABLE: no; exit 1")
    with pytest.raises(FrescoError) as ended:
        wait(bank)
    error = ended.value
    assert error.code == "DEMO_SERVICE_ENDED" and "ended by itself" in error.what
    assert error.what.endswith("\n99\n100\nSOURCE_UNREACHABLE: no") and "\n92\n" not in error.what
    assert bank.service is not None and error.where == str(bank.service.log) and error.todo
    with pytest.raises(FrescoError, match="DEMO_SERVICE_ENDED"):
        wait(serving("exit 0"))


def test_nothing_that_is_published_is_waited_for_only_so_long(
    serving: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "FIRST_EPOCH_SECONDS", 0.3)
    bank = serving("sleep 60")
    with pytest.raises(FrescoError, match="nothing was published") as late:
        await_first_epoch(bank)
    assert late.value.code == "DEMO_NO_EPOCH" and late.value.where == str(bank.warehouse)
    assert str(bank.stack.logs) in late.value.todo
    publish(bank)
    await_first_epoch(bank)


def test_views_that_never_catch_up_are_waited_for_only_so_long(serving: Start) -> None:
    bank = serving("sleep 60")
    with pytest.raises(FrescoError, match="within 0 s") as late:
        wait_at_rest(bank, ABSENT, 0.3)
    assert late.value.code == "DEMO_NOT_AT_REST" and late.value.where == str(bank.warehouse)
    assert str(bank.stack.logs) in late.value.todo
    publish(bank)
    wait_at_rest(bank, Marker({}), 60)


def publish(bank: BankStack) -> None:
    """One epoch of the views that the board sums up."""
    views = [ViewTable(view, (Column(column, "bigint"),)) for view, column in SUMS.items()]
    write_catalog(bank.warehouse, "g", views)
    writer = GroupWriter(str(bank.warehouse), "bank", "g", views)
    rows = {one.name: delta(one, [(0, 1, 5)]) for one in views}
    writer.commit(rows, next_epoch(None, "g", ((0, 0),)))
    writer.close()
