"""PyCo: the view dependency graph and its partition into atomic groups (ryco-pyco 2.1 and 4).

Where only base consistency is wanted (each view at one state of each of its bases), the views need not
share one order of updates: it is enough that every *group* has one and that nothing reaches it on two
ways in two orders. A group's bases are the parents of its views that are not its views: real bases and
views of other groups (virtual bases). It is valid when they are independent, no two having a base in
common (definitions 7 and 8), and atomic when it cannot be split into valid groups (definition 10).

The partition is the finest valid one. Let a group have two group-bases p and q with a base b in common.
If p stays outside of a valid group around it, q must be inside (else p and q are its bases), and every
way from b to q enters the group through p (else through another base with b); so p is an ancestor of q.
Hence of two dependent group-bases both must be taken in, but where one is an ancestor of the other, only
the other. Nothing else is taken in, so the result is contained in every valid partition, whatever the
order of work: it is unique and has the most groups (theorem 2). Tests compare it with all partitions of
small graphs.

Two mistakes in the paper:

* Lemma 6 and MergeGroup (figure 12) always take in both of two dependent group-bases. Smallest case: P
  over B, Q over P, V over P and Q. As printed all three are one group, but {P} and {Q, V} are valid, P
  alone being the base of {Q, V}: theorem 3 does not hold. With real bases it is worse, because InitProc
  makes each a group, and taking it in ties together all groups that take it in: P1 and P2 over B, V1
  over B and P1, V2 over B and P2 become one group instead of two. Example 6's own figure 11 has it right:
  V7 is over B1, B5 and V1, yet B1 stays outside of {V1, V7}. `internal_bases` says where that figure
  draws bases.
* 4.2, third relation: in a valid partition no two groups have parents in each other, "because they are
  dependent". They need not be, not even in the atomic partition: A over B1, C over B2, X over A, B1, C,
  Y over C, B2, A give {A, X} and {C, Y}, and each feeds the other. Nothing waits in a circle for that:
  it is views that wait for views.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from streaming.errors import FrescoError


@dataclass(frozen=True)
class ViewGraph:
    """A view dependency graph (definition 2).

    Attributes:
        vpl: view parent lists: view -> its direct parents. What has no list is a base.

    Raises:
        FrescoError: VIEW_CYCLE, when made by `view_graph`.
    """

    vpl: Mapping[str, tuple[str, ...]]

    @property
    def views(self) -> tuple[str, ...]:
        return tuple(self.vpl)

    @cached_property
    def bases(self) -> tuple[str, ...]:
        found = {parent for parents in self.vpl.values() for parent in parents}
        return tuple(sorted(found - self.vpl.keys()))

    @cached_property
    def level(self) -> Mapping[str, int]:
        """LV (definition 11): 0 for bases, else one more than the highest parent."""
        levels = dict.fromkeys(self.bases, 0)
        for view in self._parents_first:
            levels[view] = max((levels[parent] for parent in self.vpl[view]), default=0) + 1
        return levels

    @cached_property
    def base_ancestors(self) -> Mapping[str, frozenset[str]]:
        """The bases from which a view is derived; of a base, itself."""
        found = {base: frozenset((base,)) for base in self.bases}
        for view in self._parents_first:
            found[view] = frozenset().union(*(found[parent] for parent in self.vpl[view]))
        return found

    @cached_property
    def bdl(self) -> Mapping[str, frozenset[str]]:
        """Base dependency lists: base -> all views derived from it, and itself."""
        above = self.base_ancestors
        return {b: frozenset(s for s, bases in above.items() if b in bases) for b in self.bases}

    @cached_property
    def ancestors(self) -> Mapping[str, frozenset[str]]:
        """All bases and views from which a view is derived, directly or not (definition 1)."""
        found: dict[str, frozenset[str]] = dict.fromkeys(self.bases, frozenset())
        for view in self._parents_first:
            found[view] = frozenset(self.vpl[view]).union(*(found[p] for p in self.vpl[view]))
        return found

    def dependent(self, one: str, other: str) -> bool:
        """Whether two views or bases have a base in common (definition 7)."""
        return not self.base_ancestors[one].isdisjoint(self.base_ancestors[other])

    def group_bases(self, group: Iterable[str]) -> frozenset[str]:
        """GB: the parents of the group's views outside of it, real and virtual ones."""
        inside = frozenset(group)
        return frozenset(p for view in inside for p in self.vpl[view]) - inside

    def dependent_group_bases(self, group: Iterable[str]) -> frozenset[str]:
        """DGB: the group-bases that are dependent with another one."""
        pairs = combinations(sorted(self.group_bases(group)), 2)
        return frozenset(base for pair in pairs if self.dependent(*pair) for base in pair)

    def lacking(self, group: Iterable[str]) -> frozenset[str]:
        """The group-bases that every valid group around this one takes in."""
        pairs = combinations(sorted(self.group_bases(group)), 2)
        either = [(p, q) for a, b in pairs if self.dependent(a, b) for p, q in ((a, b), (b, a))]
        return frozenset(p for p, q in either if p not in self.ancestors[q])

    def valid(self, group: Iterable[str]) -> bool:
        """CheckGroup: all group-bases are independent (definition 8)."""
        return not self.dependent_group_bases(group)

    @cached_property
    def _parents_first(self) -> tuple[str, ...]:
        done: dict[str, None] = {}
        begun: dict[str, None] = {}

        def visit(view: str) -> None:
            if view in done or view not in self.vpl:
                return
            if view in begun:
                way = " -> ".join([*list(begun)[list(begun).index(view) :], view])
                raise FrescoError(
                    "VIEW_CYCLE",
                    f"views read each other: {way}",
                    where=view,
                    todo="break the circle",
                )
            begun[view] = None
            for parent in self.vpl[view]:
                visit(parent)
            del begun[view]
            done[view] = None

        for view in self.vpl:
            visit(view)
        return tuple(done)


def view_graph(parents: Mapping[str, Iterable[str]]) -> ViewGraph:
    """The graph of views and what each scans.

    Raises:
        FrescoError: VIEW_CYCLE, a view reads itself through others.
    """
    graph = ViewGraph({view: tuple(dict.fromkeys(found)) for view, found in parents.items()})
    _ = graph._parents_first
    return graph


def pyco(
    graph: ViewGraph, together: Iterable[Iterable[str]] = (), order: Sequence[str] | None = None
) -> tuple[frozenset[str], ...]:
    """The partition of the views into atomic groups, in the order of their first views.

    Args:
        together: sets of views that must not be parted; the groups are then the least valid ones that
            keep them together.
        order: in which the views of one level are taken; the result is the same for all.
    """
    order = graph.views if order is None else order
    gs: dict[str, frozenset[str]] = {}
    """GS: view -> its group, for every view that has been taken out of UGS."""

    def merge_group(group: frozenset[str]) -> None:
        """MergeGroup, until CheckGroup says that the group is valid."""
        while lacking := graph.lacking(group):
            group = group.union(*(gs[view] for view in lacking))
        gs.update(dict.fromkeys(group, group))

    for view in sorted(order, key=graph.level.__getitem__):
        merge_group(frozenset((view,)))
    for kept in together:
        members = [gs[view] for view in kept]
        if members:
            merge_group(members[0].union(*members[1:]))
    groups = dict.fromkeys(gs[view] for view in graph.views)
    return tuple(groups)


def internal_bases(
    graph: ViewGraph, partition: Iterable[frozenset[str]]
) -> dict[frozenset[str], tuple[str, ...]]:
    """Which real bases are drawn inside each group, as in figure 11: each where most of its BDL is."""
    groups = tuple(partition)
    found: dict[frozenset[str], tuple[str, ...]] = {group: () for group in groups}
    for base in graph.bases:
        most = max(groups, key=lambda group: len(group & graph.bdl[base]))
        found[most] += (base,)
    return found
