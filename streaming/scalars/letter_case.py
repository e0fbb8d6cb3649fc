"""UPPER and LOWER outside ASCII, where engines differ.

Spark maps letters fully ('ß' to 'SS'), DuckDB one to one, and both know more letters than Python
does. Over all code points (compared with Spark 4.2 and DuckDB 1.5): the one-to-many letters are
Python's, and are replaced before DuckDB's own UPPER; letters that only the newest Unicode pairs,
and LOWER of a capital sigma (its small form depends on the word), are errors in every evaluator
rather than a guess.
"""

from __future__ import annotations

import re

from streaming.errors import FrescoError

EXPANDING = {c: c.upper() for c in map(chr, range(0x80, 0x10000)) if len(c.upper()) > 1}
"""Letters whose capital is more than one letter."""
UNKNOWN_UPPER = (
    "\u019b\u0264\u1c8a\ua7cd\ua7cf\ua7d3\ua7d5\ua7db\U00010d70-\U00010d85\U00016ebb-\U00016ed3"
)
UNKNOWN_LOWER = (
    "\u03a3\u1c89\ua7cb\ua7cc\ua7ce\ua7d2\ua7d4\ua7da\ua7dc"
    "\U00010d50-\U00010d65\U00016ea0-\U00016eb8"
)
"""Character classes of the letters refused."""


def upper(text: str) -> str:
    """Spark's UPPER.

    Raises:
        FrescoError: VALUE_LETTERCASE.
    """
    return _checked(text, UNKNOWN_UPPER).upper()


def lower(text: str) -> str:
    """Spark's LOWER.

    Raises:
        FrescoError: VALUE_LETTERCASE.
    """
    return _checked(text, UNKNOWN_LOWER).lower()


def _checked(text: str, unknown: str) -> str:
    found = re.search(f"[{unknown}]", text)
    if found:
        raise FrescoError(
            "VALUE_LETTERCASE",
            f"the other case of {found[0]!r} in {text!r} depends on the engine or on the word",
            todo="keep the text as it is in the view and change its case where it is read",
        )
    return text


def duck_upper(text: str) -> str:
    """DuckDB text of UPPER, NULL where `upper` raises; all-ASCII values take the short way."""
    replaced = text
    for letter, capital in EXPANDING.items():
        replaced = f"replace({replaced}, '{letter}', '{capital}')"
    return _duck(text, "upper", replaced, UNKNOWN_UPPER)


def duck_lower(text: str) -> str:
    """DuckDB text of LOWER, NULL where `lower` raises; all-ASCII values take the short way."""
    return _duck(text, "lower", f"replace({text}, '\u0130', 'i\u0307')", UNKNOWN_LOWER)


def _duck(text: str, function: str, replaced: str, unknown: str) -> str:
    return (
        f"CASE WHEN strlen({text}) = length({text}) THEN {function}({text}) "
        f"WHEN regexp_matches({text}, '[{unknown}]') "
        f"THEN NULL ELSE {function}({replaced}) END"
    )
