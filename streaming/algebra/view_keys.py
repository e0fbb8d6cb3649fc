"""Where a view's outputs hold the keys of its relations (strobe-family 1 and 5).

The Strobe family needs, for every place of a view, the primary key of the place's relation among the
outputs: then a view row has one derivation, and `key_delete(MV, U)` finds the rows that a deleted tuple
stood in. A column is held by an output that is the column itself or one that always equals it (a join's
`on`, or an `=` of two columns of one type). Where a key is not held, `with_keys` adds its columns at the
end; they are stored with the view and hidden from its SQL view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from streaming.algebra.operators import Positions
from streaming.algebra.psj import Places, Psj, psj_of, renumbered
from streaming.algebra.tree import Join, Project, Relation, Select, Tree
from streaming.errors import FrescoError
from streaming.scalars.expression import Call, Col, Column

Keys = Mapping[str, Positions]
"""The primary key's positions in each relation; () or no entry for none."""
Pairs = tuple[tuple[int, int], ...]
"""(column of the leaf, position in the outputs)."""


@dataclass(frozen=True)
class PlaceKey:
    """What the outputs hold of one place.

    Attributes:
        key: the primary key's columns.
        shown: every column of the leaf that some output holds, the key's among them.
        whole: whether that is all of the leaf's columns.
    """

    key: Pairs
    shown: Pairs
    whole: bool

    @cached_property
    def leaf(self) -> Positions:
        """The key's columns in the leaf."""
        return tuple(column for column, _ in self.key)

    @cached_property
    def outputs(self) -> Positions:
        """The key's positions in the outputs."""
        return tuple(output for _, output in self.key)


@dataclass(frozen=True)
class KeyStep:
    """A place that known rows determine: its key equals columns of places known before.

    Attributes:
        known: positions in the product of all leaves, in the order of the place's key.
    """

    place: int
    known: Positions


@dataclass(frozen=True)
class ViewKeys:
    """The keys of all places; `outputs` is a key of the view."""

    places: tuple[PlaceKey, ...]

    @cached_property
    def outputs(self) -> Positions:
        return tuple(sorted({o for place in self.places for o in place.outputs}))


def keys_of(psj: Psj, primary: Keys) -> ViewKeys:
    """Where the outputs hold the key of every place.

    Raises:
        FrescoError: VIEW_KEY_MISSING, a relation has no primary key, or the outputs hold it not whole.
    """
    return _keys_of(psj, tuple((name, tuple(primary.get(name, ()))) for name in psj.relations))


@lru_cache(maxsize=1024)
def _keys_of(psj: Psj, keys: tuple[tuple[str, Positions], ...]) -> ViewKeys:
    equal, primary = _equal(psj), dict(keys)
    places = []
    for place in psj.places:
        key = _leaf_key(psj, place, primary)
        held = _held(psj, equal, place)
        if key is None or any(column not in held for column in key):
            name = psj.relations[place]
            raise FrescoError(
                "VIEW_KEY_MISSING",
                f"the view's outputs do not hold the primary key of {name}",
                todo="make the view with `viewkeys.with_keys`, which adds hidden key columns",
            )
        width = len(psj.leaves[place].schema)
        shown = tuple(sorted(held.items()))
        places.append(PlaceKey(tuple((c, held[c]) for c in key), shown, len(shown) == width))
    return ViewKeys(tuple(places))


def with_keys(tree: Tree, relations: Mapping[str, Relation]) -> tuple[Tree, Positions]:
    """The view with the keys of all places among its outputs, and which outputs are hidden ones.

    The tree is returned as it is when nothing is missing.

    Raises:
        FrescoError: VIEW_NOT_PSJ; VIEW_KEY_MISSING, a relation has no primary key.
    """
    psj, primary = psj_of(tree), {name: relation.key for name, relation in relations.items()}
    leaves, keys = zip(*(_keyed(psj, place, primary) for place in psj.places), strict=True)
    wide = _over(psj, leaves)
    equal = _equal(wide)
    outputs, names = list(wide.outputs), [column.name for column in psj.schema]
    schema = list(psj.schema)
    held = {equal[o.position] for o in outputs if isinstance(o, Col)}
    for place, key in enumerate(keys):
        for column in key:
            position = wide.starts[place] + column
            if equal[position] in held:
                continue
            held.add(equal[position])
            of = leaves[place].schema[column]
            outputs.append(Col(position, of.type))
            schema.append(Column(_fresh(f"_key.{psj.relations[place]}.{of.name}", names), of.type))
            names.append(schema[-1].name)
    hidden = tuple(range(len(psj.schema), len(outputs)))
    if not hidden:
        return tree, ()
    return Project(_product(wide), tuple(outputs), tuple(schema)), hidden


def key_chain(psj: Psj, keys: ViewKeys, start: int) -> tuple[KeyStep, ...] | None:
    """An order of all other places in which each one's key is given by places before it.

    None when there is none, or when the outputs do not hold such a place whole: then the rows that join
    with a row at `start` cannot be read off the view (strobe-family 9, third improvement).
    """
    equal = _equal(psj)
    known = {
        position: place
        for place in psj.places
        for position in range(psj.starts[place], psj.starts[place] + len(psj.leaves[place].schema))
    }
    have, steps = [start], list[KeyStep]()
    while len(have) < len(psj.places):
        step = None
        for place in (p for p in psj.places if p not in have and keys.places[p].whole):
            given = []
            for column in keys.places[place].leaf:
                same = equal[psj.starts[place] + column]
                given += [p for p, at in known.items() if at in have and equal[p] == same][:1]
            if len(given) == len(keys.places[place].leaf):
                step = KeyStep(place, tuple(given))
                break
        if step is None:
            return None
        steps.append(step)
        have.append(step.place)
    return tuple(steps)


def all_columns(psj: Psj, place: int) -> tuple[Positions, Positions]:
    """A leaf's columns, and where they stand in the product of all leaves."""
    width, start = len(psj.leaves[place].schema), psj.starts[place]
    return tuple(range(width)), tuple(range(start, start + width))


def refuse_self_join(psj: Psj, mode: str) -> None:
    """Raise where a relation stands at two places.

    Raises:
        FrescoError: VIEW_SELF_JOIN.
    """
    for name in psj.relations:
        places: Places = psj.places_of(name)
        if len(places) > 1:
            raise FrescoError(
                "VIEW_SELF_JOIN",
                f"{mode} keeps views that use each relation once; {name} is used {len(places)} times",
                todo="use `USING compensating` or `USING replica` for this view",
            )


def _equal(psj: Psj) -> list[int]:
    """For each position of the product the smallest position that always has the same value."""
    types = [column.type for leaf in psj.leaves for column in leaf.schema]
    equal = list(range(len(types)))
    pairs = list(psj.on)
    for condition in psj.conditions:
        if isinstance(condition, Call) and condition.function == "=":
            one, other = condition.args
            if isinstance(one, Col) and isinstance(other, Col):
                pairs.append((one.position, other.position))
    for a, b in pairs:
        if types[a] == types[b]:
            low, high = sorted((equal[a], equal[b]))
            equal = [low if e == high else e for e in equal]
    return equal


def _held(psj: Psj, equal: list[int], place: int) -> dict[int, int]:
    """Leaf column -> an output that holds it; the column itself before one that equals it."""
    found: dict[int, int] = {}
    start = psj.starts[place]
    for column in range(len(psj.leaves[place].schema)):
        cols = [(o, e.position) for o, e in enumerate(psj.outputs) if isinstance(e, Col)]
        same = [o for o, p in cols if equal[p] == equal[start + column]]
        itself = [o for o, p in cols if p == start + column]
        if same:
            found[column] = (itself or same)[0]
    return found


def _source_columns(leaf: Tree) -> list[int | None]:
    """For each column of a leaf the relation's column that it is."""
    match leaf:
        case Select():
            return _source_columns(leaf.child)
        case Project():
            below = _source_columns(leaf.child)
            return [below[e.position] if isinstance(e, Col) else None for e in leaf.expressions]
        case _:
            return list(range(len(leaf.schema)))


def _primary_key(name: str, primary: Keys) -> Positions:
    key = primary.get(name)
    if not key:
        raise FrescoError(
            "VIEW_KEY_MISSING",
            f"relation {name} has no primary key, and the Strobe family finds rows by keys",
            todo=f"give {name} a primary key, or use `USING compensating` or `USING replica`",
        )
    return key


def _leaf_key(psj: Psj, place: int, primary: Keys) -> tuple[int, ...] | None:
    """The leaf's columns that are its relation's key; None when the leaf has them not all."""
    columns = _source_columns(psj.leaves[place])
    key = _primary_key(psj.relations[place], primary)
    if any(k not in columns for k in key):
        return None
    return tuple(columns.index(k) for k in key)


def _keyed(psj: Psj, place: int, primary: Keys) -> tuple[Tree, tuple[int, ...]]:
    """The leaf with its relation's key, missing columns at the end, and where the key stands."""
    leaf = psj.leaves[place]
    for column in _primary_key(psj.relations[place], primary):
        if column not in _source_columns(leaf):
            leaf = _wider(leaf, column)
    columns = _source_columns(leaf)
    return leaf, tuple(columns.index(k) for k in primary[psj.relations[place]])


def _wider(leaf: Tree, column: int) -> Tree:
    """The leaf with one more column of its relation, at the end unless it is there below."""
    match leaf:
        case Select():
            return Select(_wider(leaf.child, column), leaf.condition)
        case Project():
            child = leaf.child
            if column not in _source_columns(child):
                child = _wider(child, column)
            at = _source_columns(child).index(column)
            of = child.schema[at]
            return Project(child, (*leaf.expressions, Col(at, of.type)), (*leaf.schema, of))
        case _:
            return leaf


def _over(psj: Psj, leaves: tuple[Tree, ...]) -> Psj:
    """The view over wider leaves."""
    starts, at, next_ = [], dict[int, int](), 0
    for place, leaf in enumerate(leaves):
        starts.append(next_)
        for i in range(len(psj.leaves[place].schema)):
            at[psj.starts[place] + i] = next_ + i
        next_ += len(leaf.schema)
    on = tuple((at[a], at[b]) for a, b in psj.on)
    conditions = tuple(renumbered(c, at) for c in psj.conditions)
    outputs = tuple(renumbered(o, at) for o in psj.outputs)
    late = tuple(renumbered(c, at) for c in psj.late)
    return Psj(leaves, tuple(starts), on, conditions, outputs, psj.schema, late)


def _product(psj: Psj) -> Tree:
    """The join of all leaves under all conditions, columns in the product's order."""
    tree = psj.leaves[0]
    for place in psj.places[1:]:
        start, end = psj.starts[place], psj.starts[place] + len(psj.leaves[place].schema)
        on = []
        for a, b in (sorted(pair) for pair in psj.on):
            if start <= b < end:
                on.append((a, b - start))
        tree = Join(tree, psj.leaves[place], tuple(on), None)
    for condition in (*psj.conditions, *psj.late):
        tree = Select(tree, condition)
    return tree


def _fresh(name: str, names: list[str]) -> str:
    while name in names:
        name += "_"
    return name
