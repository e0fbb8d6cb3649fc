"""What one ordinal of the integrator's machine stands for, and what numbered items hold.

A number is a list of items: a transaction, or one of its row changes where each is numbered by itself,
or several transactions of one unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streaming.algebra.bag import Bag, Numbered, evaluate
from streaming.algebra.numbered import NumberedBags
from streaming.messages import Control, RelRun, SourceLog, Updates
from streaming.simulator.small_views import over_relations
from streaming.simulator.workload import Transaction, WorkloadChange, World, apply
from streaming.viewmanagers.modes import Numbering

GROUP = "g"


class Item(NamedTuple):
    """A transaction, or one of its row changes.

    Attributes:
        event: place of the first of `changes` in the transaction.
        whole: the last ordinal of its transaction.
    """

    transaction: Transaction
    changes: tuple[WorkloadChange, ...]
    event: int
    whole: bool


def items_of(transaction: Transaction, numbering: Numbering) -> list[Item]:
    """A transaction's items, in the order of its log."""
    changes = transaction.changes
    if numbering != "event" or len(changes) == 1:
        return [Item(transaction, changes, 0, True)]
    last = len(changes) - 1
    return [Item(transaction, (change,), n, n == last) for n, change in enumerate(changes)]


def rows_of(
    numbers: Sequence[list[Item]], first: int
) -> tuple[dict[str, Numbered], tuple[Control, ...]]:
    """The signed rows by relation and the truncates, in which earlier rows of a number vanish."""
    rows: dict[str, Numbered] = {}
    truncates: dict[tuple[int, str], None] = {}
    for number, items in enumerate(numbers, first):
        for item in items:
            for change in item.changes:
                of = rows.setdefault(change.relation, {})
                if change.truncates:
                    truncates[number, change.relation] = None
                    for key in [key for key in of if key[0] == number]:
                        del of[key]
                    continue
                for row, by in ((change.before, -1), (change.after, 1)):
                    if row is not None:
                        count = of.pop((number, row), 0) + by
                        if count:
                            of[number, row] = count
    controls = tuple(
        Control(number=number, relation=name, kind="truncate") for number, name in truncates
    )
    return {name: of for name, of in rows.items() if of}, controls


def contents(world: World, numbers: Sequence[list[Item]]) -> dict[str, Bag]:
    """Every relation after the numbers."""
    bags = {name: dict(bag) for name, bag in world.initial.items()}
    for items in numbers:
        for item in items:
            for change in item.changes:
                apply(bags[change.relation], change)
    return bags


def whole(
    world: World,
    numbers: Sequence[list[Item]],
    operators: NumberedBags,
    views: tuple[str, ...],
    parents: Sequence[str],
    delivered: Mapping[str, int],
) -> Updates:
    """Every relation and some views as they are after the numbers, as the first message of a manager.

    It names all transactions in them, because a statement may be answered at a state that lacks one.
    """
    number = len(numbers)
    rows = contents(world, numbers)
    trees = over_relations(world.catalog)
    rows |= {name: evaluate(trees[name], rows) for name in parents}
    logs: dict[str, dict[int, str]] = {}
    for transaction in (item.transaction for items in numbers for item in items):
        logs.setdefault(transaction.source, {})[transaction.ordinal] = transaction.id
    return Updates(
        group=GROUP,
        first=number,
        last=number,
        runs=(RelRun(first=number, last=number, views=views),),
        relations={
            name: operators.pack({(number, row): count for row, count in bag.items()})
            for name, bag in rows.items()
        },
        logs={
            source: SourceLog(
                numbers=(number,) * len(log),
                transactions=tuple([name for _, name in sorted(log.items())]),
                positions=tuple(sorted(log)),
            )
            for source, log in logs.items()
        },
        delivered=dict(delivered),
    )


def all_whole(numbers: Sequence[list[Item]], numbering: Numbering) -> bool:
    """Whether no transaction has another number beside these; a global one counts where it is told."""
    items = [item for items in numbers for item in items]
    begun = {item.transaction.id for item in items}
    done = {item.transaction.id: item.transaction for item in items if item.whole}
    parts = Counter(transaction.glob for transaction in done.values())
    torn = any(t.glob is not None and parts[t.glob] < t.parts for t in done.values())
    return begun == done.keys() and not (torn and numbering == "apart")
