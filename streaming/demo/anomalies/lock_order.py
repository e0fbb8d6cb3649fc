"""Figure 1 of moro-sartori, with PostgreSQL's own row locks: order of arrival misjudges two updates.

    T0  Q is sent                      T5   ty(20) is notified
    T1  TR1 locks tx, sets x = 10      T6   TR1 commits
    T2  TR2 reads ty(2), waits for tx  T7   TR2 reads tx(10)
    T3  TR3 locks ty, sets y = 20      T8   the answer {tx(10), ty(2)} is sent
    T4  TR3 commits                    T10  tx(10) is notified

TR2 is the query for R = {tx(1), ty(2)}, asked because of an insertion at another database. Read under
READ COMMITTED with a lock, as by the paper's source, the answer holds tx's update, whose notification
comes after it, and lacks ty's, whose notification came before. SWEEP, which takes both for what their
arrival says, compensates the wrong one. Read in a snapshot that names what it saw (DESIGN 7), at any
moment, the answer is held until what it saw is known, and compensated for exactly that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from streaming.algebra.source_queries import SourceAnswer
from streaming.algebra.tree import Scan, walk
from streaming.ask.postgres.pg_state import PgState
from streaming.demo.anomalies.databases_played import Databases
from streaming.demo.anomalies.played import Play
from streaming.demo.anomalies.player import Keys, Player, sweep
from streaming.demo.anomalies.shown import Anomaly, AnomalyShown, Side, bag, changes_only
from streaming.demo.embedded.postgres_server import Postgres
from streaming.engines.duck.signed import Signed
from streaming.errors import FrescoError
from streaming.scalars.types import delta_schema
from streaming.viewmanagers.asking.compensating import CompensatingManager

SECONDS = 10.0
"""Until a session must be waiting for a lock, or must have got it."""
_TR2 = (
    "SELECT t, x FROM r WHERE t = 2 UNION ALL"
    " SELECT t, x FROM (SELECT t, x FROM r WHERE t = 1 FOR SHARE) AS locked"
)
"""One statement: the second row is read when its lock is free, as it is by then."""
_SET = "UPDATE r SET x = %s WHERE t = %s"


class WaitingReader:
    """TR2 in a thread of its own, which waits inside PostgreSQL."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._session = session
        self._thread = threading.Thread(target=self._read, name="TR2", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        self.rows = self._session.execute(_TR2).fetchall()
        self._session.commit()

    def done(self) -> list[tuple[Any, ...]]:
        """What it has read, once the lock is free."""
        self._thread.join(SECONDS)
        if self._thread.is_alive():
            raise _late("TR2 has not got the lock that TR1 has given up")
        return self.rows


def _compensating(spec: Any, ops: Any, _: Keys) -> Any:
    return CompensatingManager(spec, ops)


def figure_1(server: Postgres, seed: int) -> AnomalyShown:
    databases = Databases(server, {"x.r": "t* x", "y.s": "k*"}, {"x.r": [(1, 1), (2, 2)]})
    play = Play(databases, {"v": "SELECT s.k, r.x FROM y.s s CROSS JOIN x.r r"})
    naive = play.play("sweep", sweep)
    right = play.play("compensating", _compensating, exact=True)
    play.watch(naive.shown, right.shown)

    play.deliver(play.updates(*play.commit(("y.s", 1, (7,)))))  # T0
    tr1, tr2, tr3 = (databases.session("x") for _ in range(3))
    tr1.execute(_SET, (10, 1))
    play.told("T1: TR1 locks tx, sets x = 10")
    reader = WaitingReader(tr2)
    _until(databases.awaits_lock("x"), "TR2 does not wait for TR1's lock")
    play.told("T2: TR2 has read ty(2) and waits for tx")
    tr3.execute(_SET, (20, 2))
    tr3.commit()
    ty = play.committed(databases.read_log("x"))  # T3, T4
    play.deliver(play.updates(*ty))  # T5
    tr1.commit()
    tx = play.committed(databases.read_log("x"))  # T6
    read = reader.done()
    play.told(f"T7: TR2 has read {', '.join(f'({x})' for _, x in read)}")
    _answer_with(naive, read)
    right.evaluate("x")
    play.answer()  # T8
    play.deliver(play.updates(*tx))  # T10
    play.settle()
    states = (
        [
            {},
            {(7, 2): 2, (7, 10): 1, (7, 20): -1},
            {(7, 2): 1, (7, 10): 1},
            {(7, 1): -1, (7, 2): 1, (7, 10): 2},
        ],
        [{}, bag((7, 1), (7, 2)), bag((7, 1), (7, 20)), bag((7, 10), (7, 20))],
    )
    sides = [
        Side(one.name, changes_only(one.shown), tuple((b,) for b in expected))
        for one, expected in zip((naive, right), states, strict=True)
    ]
    return play.outcome(
        seed, sides,
        Anomaly(
            key="figure-1", title="Two updates misjudged by the order of arrival",
            paper="moro-sartori, figure 1",
            says="tx's update is in the answer and arrives after it, ty's is not and arrives before",
        ),
    )  # fmt: skip


def _answer_with(player: Player, read: list[tuple[Any, ...]]) -> None:
    """The manager's statement is answered with what TR2 has read."""
    (query,) = player.statements
    player.statements.clear()
    (part,) = query.parts
    (scan,) = (n for n in walk(part.tree) if isinstance(n, Scan) and n.relation not in part.inputs)
    rows = Signed(delta_schema(scan.schema), bag={(0, row): 1 for row in read})
    value = player.operators.evaluate(part.tree, {scan.relation: rows, **part.inputs})
    state = PgState(0, 0, 0)  # nothing is known of it
    player.answers.append(
        SourceAnswer(query.view, query.id, query.step, query.source, (value,), state)
    )


def _until(reached: Callable[[], bool], late: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise _late(late)
        time.sleep(0.005)


def _late(what: str) -> FrescoError:
    return FrescoError(
        "DEMO_LOCK",
        what,
        where="figure-1",
        todo="run the demo again; if it stays, the database does not lock rows as PostgreSQL does",
    )


SCENARIOS: dict[str, Callable[[Postgres, int], AnomalyShown]] = {"figure-1": figure_1}
