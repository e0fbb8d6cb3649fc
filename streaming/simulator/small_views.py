"""The relations and views that histories run over: small, so that every transaction meets others.

Relations form a chain r1(A,B), r2(B,C), r3(C,D), as in the strobe family's examples. A relation set
says what their keys are: "first" (A; B; C: each row of r1 meets one row), "fanout" (A; C; D: joins are
many to many), "bag" (none, rows repeat). Sources: x.r1, y.r2, z.r3, or fewer. `orders` is a relation
of its own, for the views open, moving and archived (PAPERS 1).

Two sets have views over views, three deep, beside base views (ryco-pyco 3): "tower", a chain in which
the top joins both views below it, and "diamond", in which two base views meet again. "operators" has what
the modes that ask do not maintain: totals under a join, DISTINCT over UNION ALL, EXCEPT ALL, no keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from streaming.algebra.tree import (
    Aggregate,
    Aggregation,
    Distinct,
    Join,
    Monus,
    Project,
    Relation,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.scalars.expression import Call, Col, Column, Lit

TYPE = "bigint"
KEYS: dict[str, tuple[tuple[int, ...], ...]] = {
    "first": ((0,), (0,), (0,)),
    "fanout": ((0,), (1,), (1,)),
    "bag": ((), (), ()),
}
RelationSet = Literal["first", "fanout", "bag", "any"]
PLACES = {1: ("x", "x", "x"), 2: ("x", "x", "y"), 3: ("x", "y", "z")}
"""The source of r1, r2 and r3 by the number of sources."""
COLUMNS = ("AB", "BC", "CD")


@dataclass(frozen=True)
class CaseView:
    """A view of a set; its tree scans relations, or views that come before it."""

    name: str
    tree: Tree


@dataclass(frozen=True)
class CaseCatalog:
    """The relations and views of a case."""

    relations: Mapping[str, Relation]
    views: tuple[CaseView, ...]
    sources: tuple[str, ...]

    def __hash__(self) -> int:
        return id(self)


ViewSet = Literal[
    "chain",
    "narrow",
    "total",
    "self",
    "pair",
    "trio",
    "mixed",
    "copies",
    "each",
    "tower",
    "diamond",
    "orders",
    "operators",
]


@lru_cache(maxsize=256)
def catalog(view_set: ViewSet, relation_set: RelationSet, sources: int) -> CaseCatalog:
    """The relations and views of those names; always the same object for the same names.

    Raises:
        KeyError: relation set "any", which stands for one of the others.
    """
    if view_set == "orders":
        return _orders()
    relations = {
        scan.relation: Relation(scan.relation, scan.schema, KEYS[relation_set][place])
        for place, scan in enumerate(_scans(sources))
    }
    return CaseCatalog(relations, _views(view_set, sources), tuple(dict.fromkeys(PLACES[sources])))


def _scans(sources: int) -> tuple[Scan, Scan, Scan]:
    r1, r2, r3 = (
        Scan(f"{source}.r{place + 1}", tuple(Column(c, TYPE) for c in COLUMNS[place]))
        for place, source in enumerate(PLACES[sources])
    )
    return r1, r2, r3


@lru_cache(maxsize=256)
def _views(view_set: ViewSet, sources: int) -> tuple[CaseView, ...]:
    r1, r2, r3 = _scans(sources)
    made: dict[str, Callable[[], tuple[CaseView, ...]]] = {
        "chain": lambda: (CaseView("v", _chain(r1, r2, r3)),),
        "narrow": lambda: (CaseView("v", _columns(_joined(r1, r2, r3), (0, 5))),),
        "total": lambda: (CaseView("v", _total(_chain(r1, r2, r3))),),
        "self": lambda: (CaseView("v", _columns(_self_join(r1), (0, 1, 3))),),
        "pair": lambda: (CaseView("v1", _two(r1, r2)), CaseView("v2", _two(r2, r3))),
        "trio": lambda: (
            CaseView("v1", _two(r1, r2)),
            CaseView("v2", _two(r2, r3)),
            CaseView("v3", r3),
        ),
        "mixed": lambda: (
            CaseView("v1", _chain(r1, r2, r3)),
            CaseView("v2", _two(r2, r3)),
            CaseView("v3", Select(r1, _equals(1, 1))),
        ),
        "copies": lambda: (CaseView("v1", r1), CaseView("v2", r2)),
        "each": lambda: (CaseView("v1", r1), CaseView("v2", r2), CaseView("v3", r3)),
        "tower": lambda: _tower(r1, r2, r3),
        "diamond": lambda: _diamond(r1, r2, r3),
        "operators": lambda: _operators(r1, r2, r3),
    }
    return made[view_set]()


@lru_cache(maxsize=1024)
def of_views(known: CaseCatalog, names: tuple[str, ...]) -> CaseCatalog:
    """The catalog with only these of its views; always the same object for the same names."""
    return replace(known, views=tuple(view for view in known.views if view.name in names))


@lru_cache(maxsize=256)
def over_relations(known: CaseCatalog) -> dict[str, Tree]:
    """Each view's tree over relations alone: with the views that it scans put in their places."""
    trees: dict[str, Tree] = {}
    for view in known.views:
        trees[view.name] = _replaced(view.tree, trees)
    return trees


def _replaced(tree: Tree, views: Mapping[str, Tree]) -> Tree:
    match tree:
        case Scan():
            return views.get(tree.relation, tree)
        case Join():
            left, right = _replaced(tree.left, views), _replaced(tree.right, views)
            return replace(tree, left=left, right=right)
        case Monus():
            left, right = _replaced(tree.left, views), _replaced(tree.right, views)
            return replace(tree, left=left, right=right)
        case Union():
            return replace(tree, children=tuple(_replaced(one, views) for one in tree.children))
        case Select() | Project() | Aggregate() | Distinct():
            return replace(tree, child=_replaced(tree.child, views))
    raise TypeError(f"{type(tree).__name__} is in no view of the simulator")


def _tower(r1: Scan, r2: Scan, r3: Scan) -> tuple[CaseView, ...]:
    """v1(A,B,C) = r1, r2; v2(A,B,D) = v1, r3; v3(A,D,C) = v2, v1 on v2.D = v1.A; w = r2, r3."""
    v1 = CaseView("v1", _two(r1, r2))
    v2 = CaseView("v2", _columns(_joined(_scan(v1), r3), (0, 1, 4)))
    v3 = CaseView("v3", _columns(_joined(_scan(v2), _scan(v1)), (0, 2, 5)))
    return v1, v2, v3, CaseView("w", _two(r2, r3))


def _diamond(r1: Scan, r2: Scan, r3: Scan) -> tuple[CaseView, ...]:
    """v1(A,B,C) = r1, r2; v2(C,D) = r3; v3(A,B,D) = v1, v2; v4 counts v3 by A; w = r1."""
    v1, v2 = CaseView("v1", _two(r1, r2)), CaseView("v2", r3)
    v3 = CaseView("v3", _columns(_joined(_scan(v1), _scan(v2)), (0, 1, 4)))
    return v1, v2, v3, CaseView("v4", _total(_scan(v3))), CaseView("w", Select(r1, _equals(1, 1)))


def _operators(r1: Scan, r2: Scan, r3: Scan) -> tuple[CaseView, ...]:
    """What is not linear, over joins, under them and over each other."""
    b1, b2, c3 = _columns(r1, (1,)), _columns(r2, (0,)), _columns(r3, (0,))
    by_b = _sums(r2, (0,))
    below_join = _columns(Join(r1, by_b, ((1, 0),), None), (0, 3, 4))
    values = Distinct(Union((b1, b2, c3)))
    met = Join(Distinct(b2), Monus(b1, c3), ((0, 0),), None)
    return (
        CaseView("totals", _sums(_two(r1, r2), ())),
        CaseView("joined", below_join),
        CaseView("values", values),
        CaseView("more", _columns(met, (0,))),
        CaseView("groups", _total(Distinct(_columns(_joined(r2, r3), (0, 3))))),
    )


def _sums(tree: Tree, keys: tuple[int, ...]) -> Tree:
    last = len(tree.schema) - 1
    found = (Aggregation("count_all", None, TYPE), Aggregation("sum", last, TYPE))
    schema = (*(tree.schema[k] for k in keys), Column("n", TYPE), Column("s", TYPE))
    return Aggregate(tree, keys, found, schema)


def _scan(view: CaseView) -> Scan:
    return Scan(view.name, view.tree.schema)


def _orders() -> CaseCatalog:
    relation = Relation("x.orders", (Column("id", TYPE), Column("status", TYPE)), (0,))
    orders = Scan(relation.name, relation.schema)
    states = enumerate(("open", "moving", "archived"))
    views = tuple(CaseView(name, Select(orders, _equals(1, status))) for status, name in states)
    return CaseCatalog({relation.name: relation}, views, ("x",))


def _equals(position: int, value: int) -> Call:
    return Call("=", (Col(position, TYPE), Lit(value, TYPE)), "boolean")


def _joined(*scans: Scan) -> Tree:
    tree: Tree = scans[0]
    for scan in scans[1:]:
        tree = Join(tree, scan, ((len(tree.schema) - 1, 0),), None)
    return tree


def _columns(tree: Tree, positions: tuple[int, ...]) -> Tree:
    schema = tuple(tree.schema[p] for p in positions)
    return Project(tree, tuple(Col(p, TYPE) for p in positions), schema)


def _chain(r1: Scan, r2: Scan, r3: Scan) -> Tree:
    return _columns(_joined(r1, r2, r3), (0, 1, 3, 5))


def _two(left: Scan, right: Scan) -> Tree:
    return _columns(_joined(left, right), (0, 1, 3))


def _self_join(scan: Scan) -> Tree:
    return Join(scan, scan, ((1, 0),), None)


def _total(tree: Tree) -> Tree:
    aggregations = (Aggregation("count_all", None, TYPE),)
    return Aggregate(tree, (0,), aggregations, (tree.schema[0], Column("n", TYPE)))
