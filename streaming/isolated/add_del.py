"""Change propagation by ADD(Q) and DEL(Q) over bags with monus (moro-sartori 5.4, figure 2).

A session moves a view from the state `past`, which it shows, to the state `old`: after the transactions
whose ids were read when the session began. The table itself is in some later state. `added` and
`deleted` are the paper's recursive functions: trees in, trees out, over the named states of each
relation,

    r@added, r@deleted      what old has more and less than past, netted
    r@past, r@old, r@kept   the table before, after, and what stays: old - added = past - deleted

so that Q(old) = (Q(past) - DEL(Q)) + ADD(Q), and DEL(Q) is a part of Q(past). `at_source` resolves the
names by equations (1) to (3) into one tree over the table and its delta tables, which a source evaluates
in one statement over one snapshot. E - ADD(E) in the rule of the join is what stays of E: ADD joins what
came with what came and with what stays, DEL what went with what went and with what stays.

Where the paper is to be read with care:

* **Delta tables are netted per row value first**; the paper uses them as the triggers filled them. The
  smallest history: the table is empty, one session sees x inserted and deleted again. Then both delta
  tables hold x, equation (1) gives ({} - {x}) + {x} = {x}, equation (2) gives ({} - {x}) + {x} = {x},
  and the table is empty in both states. Netted, both are nothing. (x deleted and inserted again
  comes out right either way; netted, the join's terms are not computed for it.)
* **Three relations**: 5.4 prints ADD(E x F x G) = ADD(E x F) x ADD(F x G) as what the recursion gives. It
  is not. One row each in F and G, and e inserted into E: e x f x g is new, but F x G has not changed.
* Section 5.6 reads the ids under read committed with no word on how many statements. **One statement
  per source** it must be, over all delta tables: T1 inserts r into R, T2 deletes it and inserts s into S.
  Read R's ids (none), let both commit, read S's (T2): this session goes by T2 without T1, and the next
  one, which has T1 alone, adds r to the view for good. R is empty.
* Equation (3) is to be "executed atomically", again under read committed. In a source that locks rows
  instead of keeping versions, **one statement is not one snapshot** there: figure 1's own schedule has
  it read ty before TR3 and tx after TR1, then the delta rows of both, so that R(past) = ({10,2} -
  {10,20}) + {1,2} = {1,2,2}. It needs row versions, or locks held to the statement's end.
* ADD and DEL of a projection need not be disjoint: an update of a column that is projected away puts
  the row into both. Of relations and selections over them they are.

Union is linear like a projection. For monus, duplicate elimination and aggregates, which the paper
leaves for later, the rules here compare the two states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from streaming.algebra.tree import (
    Aggregate,
    Distinct,
    Join,
    Monus,
    Project,
    Scan,
    Select,
    Tree,
    Union,
)
from streaming.scalars.expression import Col, Column

Kind = Literal["inserted", "deleted"]
State = Literal["past", "old", "kept", "added", "deleted"]
TID = Column("_tid", "string")
"""A delta table's last column: the id of the transaction that fired the trigger."""
IDS = "@ids"
"""Scan name of TID(old) at one source: one column, the ids read in step 1."""


# Figure 2 -----------------------------------------------------------------------------------------


def named(tree: Tree, state: State) -> Tree:
    """The tree with each relation in that state."""
    return replaced(tree, lambda scan: Scan(f"{scan.relation}@{state}", scan.schema))


def kept(tree: Tree) -> Tree:
    """E(old) - ADD(E)."""
    if isinstance(tree, Scan):
        return named(tree, "kept")
    return Monus(named(tree, "old"), added(tree))


def added(tree: Tree) -> Tree:
    """ADD(Q)."""
    match tree:
        case Scan():
            return named(tree, "added")
        case Distinct():
            return Monus(Distinct(added(tree.child)), Distinct(named(tree.child, "past")))
        case Monus() | Aggregate():
            return Monus(named(tree, "old"), named(tree, "past"))
        case _:
            return _figure_2(tree, added)


def deleted(tree: Tree) -> Tree:
    """DEL(Q)."""
    match tree:
        case Scan():
            return named(tree, "deleted")
        case Distinct():
            return Monus(Distinct(deleted(tree.child)), Distinct(named(tree.child, "old")))
        case Monus() | Aggregate():
            return Monus(named(tree, "past"), named(tree, "old"))
        case _:
            return _figure_2(tree, deleted)


def _figure_2(tree: Tree, of: Callable[[Tree], Tree]) -> Tree:
    """The rules that read the same for both functions."""
    match tree:
        case Select() | Project():
            return replace(tree, child=of(tree.child))
        case Join():
            e, f = of(tree.left), of(tree.right)
            pairs = ((e, f), (e, kept(tree.right)), (kept(tree.left), f))
            return Union(tuple(Join(a, b, tree.on, tree.condition) for a, b in pairs))
        case Union():
            return Union(tuple(of(child) for child in tree.children))
        case _:
            raise TypeError(f"figure 2 has no rule for {type(tree).__name__}")


def terms(places: int, function: Literal["ADD", "DEL"]) -> tuple[tuple[State, ...], ...]:
    """The rule of the join unfolded over a product of relations: the state of each place in each term.

    The first two terms of figure 2 are one, since what came and what stays make the new table:
    ADD(E x F) = ADD(E) x F(old) + kept(E) x ADD(F), and DEL(E x F) = DEL(E) x F(past) + kept(E) x DEL(F).
    What stays of a product is the product of what stays. So n relations need n terms, not 2^n - 1.
    """
    change: State = "added" if function == "ADD" else "deleted"
    after: State = "old" if function == "ADD" else "past"
    stays: State = "kept"
    return tuple(
        (*[stays] * k, change, *[after] * (places - k - 1))  # e.g. kept, added, old
        for k in range(places)
    )


# Equations (1) to (3) -----------------------------------------------------------------------------


def delta_table(scan: Scan, kind: Kind) -> Scan:
    """The table that the relation's triggers fill; its last column is the transaction's id."""
    return Scan(f"{scan.relation}@{kind}_rows", (*scan.schema, TID))


def ids_read(relations: tuple[Scan, ...]) -> Tree:
    """Step 1, one statement: the ids in all delta tables of a source's relations, each once."""
    columns = []
    for scan in relations:
        for table in (delta_table(scan, "inserted"), delta_table(scan, "deleted")):
            tid = Col(len(scan.schema), TID.type)
            columns.append(Project(table, (tid,), (TID,)))
    return Distinct(Union(tuple(columns)))


def at_source(tree: Tree) -> Tree:
    """The tree with every relation's named state made from the table, its delta tables and `IDS`.

    Scans without a state stay as they are.
    """

    def resolved(scan: Scan) -> Tree:
        relation, _, state = scan.relation.rpartition("@")
        if not relation or state not in ("past", "old", "kept", "added", "deleted"):
            return scan
        return table_in(Scan(relation, scan.schema), state)  # type: ignore[arg-type]

    return replaced(tree, resolved)


def table_in(scan: Scan, state: State) -> Tree:
    """A relation in one of its states, over what the source has."""
    match state:
        case "added":
            return _net(scan, "inserted", "deleted", all_rows=False)
        case "deleted":
            return _net(scan, "deleted", "inserted", all_rows=False)
        case "past":
            more = _net(scan, "inserted", "deleted", all_rows=True)
            less = _net(scan, "deleted", "inserted", all_rows=True)
            return Union((Monus(scan, more), less))  # (2)
        case "old":
            past = table_in(scan, "past")
            return Union((Monus(past, table_in(scan, "deleted")), table_in(scan, "added")))  # (3)
        case "kept":
            return Monus(table_in(scan, "past"), table_in(scan, "deleted"))  # is old - added


def _net(scan: Scan, one: Kind, other: Kind, all_rows: bool) -> Tree:
    """One delta table's rows less the other's: of the ids read, or of all transactions since past."""
    return Monus(*(_rows(delta_table(scan, kind), all_rows) for kind in (one, other)))


def _rows(table: Scan, all_rows: bool) -> Tree:
    schema = table.schema[:-1]
    columns = tuple(Col(i, column.type) for i, column in enumerate(schema))
    if all_rows:
        return Project(table, columns, schema)
    return Project(Join(table, Scan(IDS, (TID,)), ((len(schema), 0),), None), columns, schema)


def replaced(tree: Tree, of: Callable[[Scan], Tree]) -> Tree:
    """The tree with another one in place of each scan."""
    if isinstance(tree, Scan):
        return of(tree)
    return tree.over(*(replaced(child, of) for child in tree.children))
