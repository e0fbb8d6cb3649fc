"""Values at the edges of every numeric type, and every operation on them, as SQL text."""

from __future__ import annotations

import math
from decimal import Decimal

from streaming.scalars.types import BITS, decimal_parts

INTEGRALS = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")
DECIMALS = ("decimal(5,2)", "decimal(18,0)", "decimal(18,9)", "decimal(38,0)", "decimal(38,10)")
TYPES = (*INTEGRALS, *FLOATS, *DECIMALS)
_TINIEST = {"float": 2.0**-149, "double": 5e-324}
_NORMAL = {"float": 2.0**-126, "double": 2.0**-1022}
_MOST = {"float": (2 - 2.0**-23) * 2.0**127, "double": 1.7976931348623157e308}


def edges(type_: str) -> list[object]:
    """Least, greatest and their neighbours, units, zeros, what is not finite, and NULL."""
    if type_ in INTEGRALS:
        limit = 2 ** (BITS[type_] - 1)
        return [-limit, -limit + 1, -7, -1, 0, 1, 2, 10, limit // 2, limit - 1, None]
    if type_ in FLOATS:
        tiny, normal, most = _TINIEST[type_], _NORMAL[type_], _MOST[type_]
        finite = [0.0, tiny, normal, 0.5, 1.0, 3.0, 2.0**24, most]
        return [*finite, *(-x for x in finite), math.inf, -math.inf, math.nan, None]
    parts = decimal_parts(type_)
    assert parts is not None
    digits, scale = parts
    units = [0, 1, 3, 10**scale, 10 ** (digits // 2), 10**digits - 1]
    scaled = [Decimal(f"{u}E-{scale}") for u in dict.fromkeys(units)]
    return [*scaled, *(x.copy_negate() for x in scaled if x), None]


PAIRS = [(t, t) for t in TYPES] + [
    ("tinyint", "bigint"),
    ("int", "double"),
    ("float", "bigint"),
    ("float", "double"),
    ("bigint", "decimal(5,2)"),
    ("decimal(5,2)", "decimal(18,9)"),
    ("decimal(18,0)", "decimal(38,0)"),
    ("decimal(38,10)", "decimal(38,0)"),
    ("decimal(18,9)", "double"),
]
"""Types that meet; every other pair of numeric types is brought to one of these by casts."""
ARITHMETIC = {
    "+": "try_add",
    "-": "try_subtract",
    "*": "try_multiply",
    "/": "try_divide",
    "%": "try_mod",
}
"""Each operator and Spark's function that gives NULL where the operator raises."""
COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
SIGNS = ("-x", "ABS(x)")
