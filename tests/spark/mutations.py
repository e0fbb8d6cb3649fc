# ruff: noqa: E501, SIM905  (a list of words)
"""Texts that are nearly right: those of the table with a word taken out, doubled, moved or put in."""

from __future__ import annotations

import random
from collections.abc import Iterator

from streaming.sql.lexer import lexemes

POOL = """
SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT UNION ALL DISTINCT AS ON USING JOIN INNER CROSS LEFT FULL OUTER SEMI
ANTI NATURAL LATERAL WITH IN NOT NULL IS AND OR LIKE ILIKE RLIKE BETWEEN CASE WHEN THEN ELSE END CAST DATE TIMESTAMP
INTERVAL TRUE FALSE EXISTS ANY SOME DIV MOD ESCAPE OVER FILTER ROWS VALUES TABLE INT STRING DECIMAL DECIMAL(5,2) TEXT
BOOL FLOAT8 VARCHAR(3) ASC DESC NULLS FIRST LAST IF COUNT(*) SUM(k) MAX(k) k i st bo m r q r.* * k.i 0 1 -1 1.5 1L .5 1e3
'a' '' "b" `k` `a` DATE'2020-01-01' ( ) , . ; = == <> != < <= > >= <=> + - * / % || :: ! ~ & | ^ ? : [ ] -> => x y t a(b)
(k) (SELECT(k)FROM(r)) ISNULL NOTNULL COLLATE AT TIME ZONE BINARY RECURSIVE WINDOW QUALIFY TOP OFFSET FETCH FOR UNNEST
EXCEPT INTERSECT MINUS CUBE ROLLUP TABLESAMPLE PIVOT TRY_CAST(k AS INT) CURRENT_DATE IGNORE RESPECT PRIOR SIMILAR TO
""".split()


def mutated(texts: list[str], count: int, seed: int) -> Iterator[str]:
    """Texts with one or two changes each; the seed repeats them."""
    chance = random.Random(seed)
    for _ in range(count):
        words = written(chance.choice(texts))
        for _ in range(chance.choice((1, 1, 1, 2))):
            change(words, chance)
        yield " ".join(words)


def written(text: str) -> list[str]:
    return [text[word.start : word.end] for word in lexemes(text)]


def change(words: list[str], chance: random.Random) -> None:
    at = chance.randrange(len(words))
    match chance.randrange(6):
        case 0 if len(words) > 2:
            del words[at]
        case 1:
            words.insert(at, words[at])
        case 2:
            other = chance.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        case 3:
            words[at] = chance.choice(POOL)
        case 4:
            words.insert(at, chance.choice(words))
        case _:
            words.insert(at, chance.choice(POOL))
