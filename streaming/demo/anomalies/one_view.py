"""Anomalies of one view: answers that have seen more, or less, than the manager knows of.

The histories are the papers', their rows too. In each, a transaction commits between an update and the
evaluation of the query that the update caused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streaming.algebra.bag import Bag
from streaming.demo.anomalies.databases_played import Databases
from streaming.demo.anomalies.played import Play
from streaming.demo.anomalies.player import Keys, Make, Player
from streaming.demo.anomalies.shown import Anomaly, AnomalyShown, Side, bag, changes_only
from streaming.demo.embedded.postgres_server import Postgres
from streaming.viewmanagers.asking.c_strobe import CStrobe
from streaming.viewmanagers.asking.eca import EcaManager
from streaming.viewmanagers.asking.g_strobe import GStrobe
from streaming.viewmanagers.asking.naive import NaiveManager
from streaming.viewmanagers.asking.strobe import Strobe

HACID = "hacid-slides"
STROBE = "strobe-family"
PAIR = {"x.r1": "w x", "x.r2": "x y"}
CHAIN = {"x.r1": "a* b", "y.r2": "b* c", "z.r3": "c* d"}
CHAIN_VIEW = (
    "SELECT r1.a, r1.b, r2.c, r3.d FROM x.r1 r1 JOIN y.r2 r2 ON r1.b = r2.b"
    " JOIN z.r3 r3 ON r2.c = r3.c"
)
ROW = bag((1, 2, 3, 4))


class Forgetful(Strobe[Any]):
    """Strobe without pending(Q): a deletion does not find the answers that are under way."""

    def handle(self, message: Any) -> Any:
        out = super().handle(message)
        self.pending = {query: [] for query in self.pending}
        return out


def _ivma(spec: Any, ops: Any, _: Keys) -> Any:
    return NaiveManager(spec, ops)


def _conventional(spec: Any, ops: Any, _: Keys) -> Any:
    return NaiveManager(spec, ops, deletions="view")


def _eca(spec: Any, ops: Any, _: Keys) -> Any:
    return EcaManager(spec, ops, gate=False)


def _strobe(spec: Any, ops: Any, keys: Keys) -> Any:
    return Strobe(spec, ops, keys, gate=False)


def _forgetful(spec: Any, ops: Any, keys: Keys) -> Any:
    return Forgetful(spec, ops, keys, gate=False)


def _g_strobe(spec: Any, ops: Any, keys: Keys) -> Any:
    return GStrobe(spec, ops, keys, gate=False)


def _c_strobe(spec: Any, ops: Any, keys: Keys) -> Any:
    return CStrobe(spec, ops, keys)


def _both(play: Play, naive: tuple[str, Make], right: tuple[str, Make]) -> tuple[Player, Player]:
    wrong, good = play.play(*naive), play.play(*right)
    play.watch(wrong.shown, good.shown)
    return wrong, good


def _judged(
    play: Play,
    seed: int,
    naive: Player,
    right: Player,
    expected: tuple[list[Bag], list[Bag]],
    about: Anomaly,
) -> AnomalyShown:
    sides = [
        Side(one.name, changes_only(one.shown), tuple((b,) for b in states))
        for one, states in zip((naive, right), expected, strict=True)
    ]
    return play.outcome(seed, sides, about)


def insertion(server: Postgres, seed: int) -> AnomalyShown:
    """U1 = +r2[2,3], U2 = +r1[4,2] before Q1 is answered: IVMA counts [4] twice."""
    databases = Databases(server, PAIR, {"x.r1": [(1, 2)]})
    play = Play(databases, {"v": "SELECT r1.w FROM x.r1 r1 JOIN x.r2 r2 ON r1.x = r2.x"})
    naive, right = _both(play, ("ivma", _ivma), ("eca", _eca))
    u1 = play.updates(*play.commit(("x.r2", 1, (2, 3))))
    play.deliver(u1)
    u2 = play.updates(*play.commit(("x.r1", 1, (4, 2))))
    play.evaluate("x")
    play.deliver(u2)
    play.answer()
    play.settle()
    once = bag((1,), (4,))
    return _judged(
        play, seed, naive, right, ([{}, once, bag((1,), (4,), (4,))], [{}, once]),
        Anomaly(
            key="insertion", title="The insertion anomaly", paper=f"{HACID}; ECA",
            says="the answer to Q1 has seen U2 already, and Q2 brings the same row again",
        ),
    )  # fmt: skip


def deletion(server: Postgres, seed: int) -> AnomalyShown:
    """Both deletions are carried out before a query is evaluated: IVMA leaves [1,3]."""
    databases = Databases(server, PAIR, {"x.r1": [(1, 2)], "x.r2": [(2, 3)]})
    play = Play(databases, {"v": "SELECT r1.w, r2.y FROM x.r1 r1 JOIN x.r2 r2 ON r1.x = r2.x"})
    naive, right = _both(play, ("ivma", _ivma), ("eca", _eca))
    u1 = play.updates(*play.commit(("x.r1", -1, (1, 2))))
    u2 = play.updates(*play.commit(("x.r2", -1, (2, 3))))
    play.deliver(u1)
    play.deliver(u2)
    play.settle()
    return _judged(
        play, seed, naive, right, ([bag((1, 3))], [bag((1, 3)), {}]),
        Anomaly(
            key="deletion", title="The deletion anomaly", paper=f"{HACID}; ECA",
            says="neither query finds its partner any more, so the row is never taken out",
        ),
    )  # fmt: skip


def _example_0(server: Postgres, naive: tuple[str, Make], right: tuple[str, Make]) -> Any:
    """U1 = +r2[2,3] is asked at x; then U2 = -r1[1,2]; then z evaluates."""
    play = Play(Databases(server, CHAIN, {"x.r1": [(1, 2)], "z.r3": [(3, 4)]}), {"v": CHAIN_VIEW})
    players = _both(play, naive, right)
    play.deliver(play.updates(*play.commit(("y.r2", 1, (2, 3)))))
    play.evaluate("x")
    play.answer()
    play.deliver(play.updates(*play.commit(("x.r1", -1, (1, 2)))))
    play.evaluate("z")
    play.answer()
    play.settle()
    return play, players


def several_sources(server: Postgres, seed: int) -> AnomalyShown:
    play, (naive, right) = _example_0(server, ("conventional", _conventional), ("strobe", _strobe))
    return _judged(
        play, seed, naive, right, ([{}, ROW], [{}]),
        Anomaly(
            key="several-sources", title="A deletion during a query over several sources",
            paper=f"{STROBE}, Examples 0 and 2",
            says="the view is still empty when the deletion comes, and the answer brings the row later",
        ),
    )  # fmt: skip


def forgotten_key_delete(server: Postgres, seed: int) -> AnomalyShown:
    play, (naive, right) = _example_0(server, ("no_pending", _forgetful), ("c_strobe", _c_strobe))
    return _judged(
        play, seed, naive, right, ([{}, ROW], [{}, ROW, {}]),
        Anomaly(
            key="key-delete", title="A key-delete that misses the answers under way",
            paper=f"{STROBE}, 5 and Example 5",
            says="without pending(Q) the key-delete finds nothing, and is gone when the answer comes",
        ),
    )  # fmt: skip


def duplicate(server: Postgres, seed: int) -> AnomalyShown:
    """Two insertions whose queries both find the other one."""
    play = Play(Databases(server, CHAIN, {"z.r3": [(3, 4)]}), {"v": CHAIN_VIEW})
    naive, right = _both(play, ("conventional", _conventional), ("strobe", _strobe))
    u1 = play.updates(*play.commit(("y.r2", 1, (2, 3))))
    u2 = play.updates(*play.commit(("x.r1", 1, (1, 2))))
    play.deliver(u1)
    play.deliver(u2)
    play.settle()
    return _judged(
        play, seed, naive, right, ([{}, ROW, bag((1, 2, 3, 4), (1, 2, 3, 4))], [{}, ROW]),
        Anomaly(
            key="duplicate", title="A row that two queries bring", paper=f"{STROBE}, 5",
            says="each insertion's query finds the other insertion; Strobe adds no key twice",
        ),
    )  # fmt: skip


def half_transaction(server: Postgres, seed: int) -> AnomalyShown:
    """T1 = (-r1[1,2], +r1[3,4]): Strobe takes each update by itself."""
    play = Play(
        Databases(server, {"x.r1": "a* b"}, {"x.r1": [(1, 2)]}), {"v": "SELECT a, b FROM x.r1"}
    )
    naive, right = _both(play, ("strobe", _strobe), ("t_strobe", _strobe))
    ((source, whole),) = play.commit(("x.r1", -1, (1, 2)), ("x.r1", 1, (3, 4)))
    for change in play.apart(source, whole):
        play.deliver(change, "strobe")
    play.number = 0
    play.deliver(play.updates((source, whole)), "t_strobe")
    old, new = bag((1, 2)), bag((3, 4))
    return _judged(
        play, seed, naive, right, ([old, {}, new], [old, new]),
        Anomaly(
            key="half-transaction", title="The middle of a transaction", paper=f"{STROBE}, Example 3",
            says="one update after the other, the view passes through a state between them",
        ),
    )  # fmt: skip


def global_transaction(server: Postgres, seed: int) -> AnomalyShown:
    """T1 = +r1[1,3]; T2 = (-r2[3,4] at y, +r1[2,3] at x)."""
    tables = {"x.r1": "a* b", "y.r2": "b c*"}
    view = "SELECT r1.a, r1.b, r2.c FROM x.r1 r1 JOIN y.r2 r2 ON r1.b = r2.b"
    play = Play(Databases(server, tables, {"y.r2": [(3, 4), (3, 5)]}), {"v": view})
    naive, right = _both(play, ("t_strobe", _strobe), ("g_strobe", _g_strobe))
    play.deliver(play.updates(*play.commit(("x.r1", 1, (1, 3)))))
    at_y = play.commit(("y.r2", -1, (3, 4)), whole=False)
    play.deliver(play.updates(*at_y, part=("T2", 2)), "g_strobe")
    play.evaluate("y")
    play.answer()
    at_x = play.commit(("x.r1", 1, (2, 3)))
    play.deliver(play.updates(*at_x, part=("T2", 2)), "g_strobe")
    play.number = 1
    play.deliver(play.updates(*at_y, *at_x), "t_strobe")
    play.settle()
    end = bag((1, 3, 5), (2, 3, 5))
    return _judged(
        play, seed, naive, right, ([{}, bag((1, 3, 5)), end], [{}, end]),
        Anomaly(
            key="global-transaction", title="Half of a transaction over two databases",
            paper=f"{STROBE}, Example 4",
            says="the answer has seen what T2 did at y, and nobody knows yet what it did at x",
        ),
    )  # fmt: skip


SCENARIOS: dict[str, Callable[[Postgres, int], AnomalyShown]] = {
    "insertion": insertion,
    "deletion": deletion,
    "several-sources": several_sources,
    "key-delete": forgotten_key_delete,
    "duplicate": duplicate,
    "half-transaction": half_transaction,
    "global-transaction": global_transaction,
}
