"""People at the demo's bank: threads that transfer money, inside one database and across two.

Every choice comes from a seed, so a run can be made again with the same mix; the interleaving of
the threads is the system's. Each thread changes and deletes only transfers of its own, so threads
never wait for each other's entries, while global transfers commit their two parts in random order:
the crossing order DESIGN.md section 6 has to untangle.
"""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import psycopg

from streaming.demo.bank import BANK_ACCOUNT, BRANCHES, BULK_FIRST_ID, OPENING_DEPOSIT
from streaming.demo.pace import Pace
from streaming.errors import FrescoError

Connection = psycopg.Connection[tuple[object, ...]]

_REMEMBERED = 50
"""Transfers a thread remembers, to correct or delete one of them later."""

_INSERT_TWO = "INSERT INTO entry VALUES (%s, %s, %s), (%s, %s, %s)"

# What a thread does when it does not transfer money, and how often among such changes.
_OTHER_CHANGES = {
    "corrections": 35,
    "deletions": 20,
    "branch_changes": 25,
    "renames": 10,
    "openings": 10,
}


@dataclass(frozen=True)
class Transfer:
    """A local transfer that a thread may still correct or delete: its database and entries."""

    database: str
    debit: int
    credit: int


class Workload:
    """Random, repeatable work on the bank's databases, between `start` and `stop`.

    Args:
        dsns: connection strings by database name; global transfers need at least two.
        threads: clients that work at once.
        rate: transactions a second in all (a global one counts once); None is as fast as possible.
        global_share: part of the transfers that go across two databases, 0..1.
        other_share: part of the work that is not a transfer, 0..1.
        seed: for every random choice; drawn and printed when None.
        pace: of whoever reads what is written; nobody waits for anybody when None.
    """

    def __init__(
        self,
        dsns: Mapping[str, str],
        *,
        threads: int = 4,
        rate: float | None = 50.0,
        global_share: float = 0.2,
        other_share: float = 0.1,
        seed: int | None = None,
        pace: Pace | None = None,
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr),
    ) -> None:
        self.seed = random.SystemRandom().randrange(2**32) if seed is None else seed
        say(f"workload seed {self.seed}")
        self.dsns = dict(dsns)
        self.rate = rate
        self.global_share = global_share if len(self.dsns) > 1 else 0.0
        self.other_share = other_share
        self._ids = {name: _Ids(dsn) for name, dsn in self.dsns.items()}
        self.pace = pace
        self._stopping = threading.Event()
        self._tellers = [
            _Teller(self, number, self._ids, self._stopping, 1.0 / rate * threads if rate else 0.0)
            for number in range(threads)
        ]

    def start(self) -> Workload:
        """Start the threads and return."""
        for teller in self._tellers:
            teller.start()
        return self

    def stop(self) -> Counter[str]:
        """Let every thread finish its transaction, global ones with both parts; the counters.

        Raises FrescoError EMBEDDED_WORKLOAD_FAILED when a thread had ended of an error.
        """
        self._stopping.set()
        if self.pace is not None:
            self.pace.end()
        for teller in self._tellers:
            teller.join()
        for teller in self._tellers:
            if teller.failure is not None:
                raise FrescoError(
                    "EMBEDDED_WORKLOAD_FAILED",
                    f"the workload stopped early: {teller.failure}",
                    where=teller.name,
                    todo="see that the databases run and start again",
                ) from teller.failure
        return self.counters

    @property
    def counters(self) -> Counter[str]:
        """Committed so far: transfers (local), globals, corrections, deletions, branch_changes,
        renames, openings."""
        return sum((teller.counts for teller in self._tellers), Counter())


class _Ids:
    """What is free and what exists in one database: next ids, and the accounts to choose from."""

    def __init__(self, dsn: str) -> None:
        with psycopg.connect(dsn) as connection:
            accounts = connection.execute("SELECT id FROM account ORDER BY id").fetchall()
            last = connection.execute(
                "SELECT coalesce(max(id), 0) FROM entry WHERE id < %s", [BULK_FIRST_ID]
            ).fetchone()
        self.accounts = [number for (number,) in accounts if number != BANK_ACCOUNT]
        # next() on a count is atomic in CPython, so threads share these without a lock.
        self.entry: Iterator[int] = itertools.count((last[0] if last else 0) + 1)
        self.account: Iterator[int] = itertools.count(max(self.accounts, default=0) + 1)


class _Teller(threading.Thread):
    """One client: its own random choices, its own connection to each database."""

    def __init__(
        self,
        workload: Workload,
        number: int,
        ids: Mapping[str, _Ids],
        stopping: threading.Event,
        pause: float,
    ) -> None:
        super().__init__(name=f"teller-{number}", daemon=True)
        self.counts: Counter[str] = Counter()
        self.failure: Exception | None = None
        self._workload = workload
        self._random = random.Random(f"{workload.seed}/{number}")
        self._ids = ids
        self._names: Sequence[str] = sorted(workload.dsns)
        self._stopping = stopping
        self._pause = pause
        self._done: deque[Transfer] = deque(maxlen=_REMEMBERED)
        self._globals = itertools.count()
        self._connections: dict[str, Connection] = {}
        self._work: Mapping[str, Callable[[], None]] = {
            "transfers": self._transfer,
            "globals": self._transfer_globally,
            "corrections": self._correct_transfer,
            "deletions": self._delete_transfer,
            "branch_changes": self._change_branch,
            "renames": self._rename,
            "openings": self._open_account,
        }

    def run(self) -> None:
        """Work until told to stop; an error ends the thread and is kept for `Workload.stop`."""
        try:
            for name in self._names:
                self._connections[name] = psycopg.connect(self._workload.dsns[name])
            due = time.monotonic() + self._pause * self._random.random()
            while not self._stopping.wait(max(0.0, due - time.monotonic())):
                if self._waited_for_the_reader():
                    due = time.monotonic()
                if self._stopping.is_set():
                    return
                # A late thread works off what it missed, so the rate holds on average.
                due += self._pause
                kind = self._choose()
                self._work[kind]()
                self.counts[kind] += 1
                if self._workload.pace is not None:
                    self._workload.pace.wrote()
        except Exception as failure:
            self.failure = failure
        finally:
            for connection in self._connections.values():
                connection.close()

    def _waited_for_the_reader(self) -> bool:
        """What was not written meanwhile is not made up for: it would be too much again."""
        pace, before = self._workload.pace, time.monotonic()
        return pace is not None and pace.may_write() and time.monotonic() - before > self._pause

    def _choose(self) -> str:
        if self._random.random() < self._workload.other_share:
            kinds = list(_OTHER_CHANGES)
            kind = self._random.choices(kinds, list(_OTHER_CHANGES.values()))[0]
            if self._done or kind not in ("corrections", "deletions"):
                return kind
        return "globals" if self._random.random() < self._workload.global_share else "transfers"

    def _transfer(self) -> None:
        name, amount = self._random.choice(self._names), self._amount()
        ids = self._ids[name]
        payer, payee = self._random.sample(ids.accounts, 2)
        moved = Transfer(name, next(ids.entry), next(ids.entry))
        with self._connections[name].transaction():
            self._connections[name].execute(
                _INSERT_TWO, [moved.debit, payer, -amount, moved.credit, payee, amount]
            )
        self._done.append(moved)

    def _transfer_globally(self) -> None:
        """One transaction in each of two databases; the parts commit in random order."""
        names, amount = self._random.sample(self._names, 2), self._amount()
        name = f"{self._workload.seed:x}-{self.name}-{time.time_ns():x}-{next(self._globals)}"
        for database, signed in zip(names, (-amount, amount), strict=True):
            ids = self._ids[database]
            connection = self._connections[database]
            connection.execute(
                "INSERT INTO entry VALUES (%s, %s, %s)",
                [next(ids.entry), self._random.choice(ids.accounts), signed],
            )
            connection.execute("INSERT INTO fresco_global VALUES (%s, 2)", [name])
        self._random.shuffle(names)
        for database in names:
            self._connections[database].commit()

    def _correct_transfer(self) -> None:
        """Both entries of a transfer get a new amount in one transaction: the sum stays 0."""
        moved, amount = self._random.choice(self._done), self._amount()
        with self._connections[moved.database].transaction():
            self._connections[moved.database].execute(
                "UPDATE entry SET amount = CASE id WHEN %s THEN -%s ELSE %s END"
                " WHERE id IN (%s, %s)",
                [moved.debit, amount, amount, moved.debit, moved.credit],
            )

    def _delete_transfer(self) -> None:
        moved = self._random.choice(self._done)
        with self._connections[moved.database].transaction():
            self._connections[moved.database].execute(
                "DELETE FROM entry WHERE id IN (%s, %s)", [moved.debit, moved.credit]
            )
        self._done.remove(moved)

    def _change_branch(self) -> None:
        self._change_account("branch", self._random.choice(BRANCHES))

    def _rename(self) -> None:
        self._change_account("owner", f"owner {self._random.randrange(10**6)}")

    def _change_account(self, column: str, value: str) -> None:
        name = self._random.choice(self._names)
        account = self._random.choice(self._ids[name].accounts)
        with self._connections[name].transaction():
            self._connections[name].execute(
                f"UPDATE account SET {column} = %s WHERE id = %s".encode(), [value, account]
            )

    def _open_account(self) -> None:
        """A new account with its opening deposit, booked against the bank."""
        name = self._random.choice(self._names)
        ids = self._ids[name]
        account = next(ids.account)
        with self._connections[name].transaction():
            self._connections[name].execute(
                "INSERT INTO account VALUES (%s, %s, %s)",
                [account, f"owner {account}", self._random.choice(BRANCHES)],
            )
            self._connections[name].execute(
                _INSERT_TWO,
                [
                    next(ids.entry),
                    account,
                    OPENING_DEPOSIT,
                    next(ids.entry),
                    BANK_ACCOUNT,
                    -OPENING_DEPOSIT,
                ],
            )
        ids.accounts.append(account)

    def _amount(self) -> Decimal:
        return Decimal(self._random.randint(1, 20_000)) / 100
