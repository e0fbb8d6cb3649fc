"""The relations that the golden pairs and unit tests of the SQL layer are over."""

from streaming.algebra.tree import Relation
from streaming.scalars.expression import Column


def relation(name: str, key: tuple[int, ...], **columns: str) -> Relation:
    return Relation(name, tuple(Column(n, t) for n, t in columns.items()), key)


BANK = {
    r.name: r
    for source in ("north", "south")
    for r in (
        relation(f"{source}.account", (0,), id="bigint", owner="string", branch="string"),
        relation(f"{source}.entry", (0,), id="bigint", account="bigint", amount="decimal(18,2)"),
    )
}
ODD = Relation(
    "north.Odd, Table",
    tuple(
        Column(name, type_)
        for name, type_ in (
            ("Id", "int"),
            ("id", "bigint"),
            ("select", "string"),
            ("a b,c", "date"),
            ("é`x", "boolean"),
            ("d", "double"),
            ("ts", "timestamp"),
        )
    ),
    (1,),
)
RELATIONS = {**BANK, ODD.name: ODD}
