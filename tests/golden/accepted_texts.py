# ruff: noqa: E501  (a table, one text a line)
"""Texts of every construct that a view may have, over rows that are awkward.

`tests/unit/test_accepted.py` fails where an accepted class of node, an argument of one or a function
has no text here; `tests/spark/test_texts_in_spark.py` runs each text in Spark, in the bag evaluator
and in DuckDB.
"""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

from streaming.algebra.tree import Relation
from streaming.scalars.expression import Column

R = {
    "k": "int", "i": "int", "b": "bigint", "t": "tinyint", "s": "smallint", "f": "float", "d": "double",
    "m": "decimal(18,2)", "big": "decimal(38,10)", "st": "string", "u": "string", "dt": "date",
    "ts": "timestamp", "n": "timestamp_ntz", "bo": "boolean", "odd `name`": "int",
}  # fmt: skip
Q = {"k": "int", "st": "string", "m": "decimal(10,3)", "x": "double"}
RELATIONS = {
    name: Relation(name, tuple(Column(c, t) for c, t in columns.items()), ("k",))
    for name, columns in (("r", R), ("q", Q), ("s.q", Q))
}
_NINES = Decimal("9999999999999999.99")
_MOST = Decimal("9" * 28 + "." + "9" * 10)
ROWS_R = [
    (1, 0, 0, 0, 0, 0.0, 0.0, Decimal("0.00"), Decimal("0E-10"), "", "", date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1), False, 0),
    (2, *[None] * 15),
    (3, 2147483647, 9223372036854775807, 127, 32767, math.inf, math.inf, _NINES, _MOST, "O'Brien", "o'brien", date(9999, 12, 31), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999), True, 7),
    (4, -2147483648, -9223372036854775808, -128, -32768, -math.inf, -math.inf, -_NINES, _MOST.copy_negate(), 'say "x"', "a\\b", date(1, 1, 1), datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 1), True, None),
    (5, 1, 1, 1, 1, -0.0, -0.0, Decimal("-0.01"), Decimal("0.0000000001"), "\U0001f600é", "a%c", date(2000, 2, 29), datetime(2000, 2, 29, 12, 30, tzinfo=UTC), datetime(2000, 2, 29, 12, 30), False, 1),
    (6, -1, -1, -1, -1, math.nan, math.nan, Decimal("1.005").quantize(Decimal("0.01")), Decimal("-1.5"), " a\tb\n ", "  ", date(1969, 12, 31), datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999999), None, -1),
    (7, 10, 100, 10, 100, 1.5, 0.1, Decimal("12.34"), Decimal("12.3400000000"), "abc", "abc", date(2024, 1, 31), datetime(2024, 1, 31, 12, tzinfo=UTC), datetime(2024, 1, 31, 12), True, 2),
]  # fmt: skip
ROWS_Q = [
    (1, "", Decimal("0.001"), 0.0),
    (3, "O'Brien", Decimal("9999999.999"), math.nan),
    (5, None, None, -0.0),
    (7, "abc", Decimal("-1.500"), None),
    (9, "abc", Decimal("12.340"), math.inf),
]
ROWS = {"r": ROWS_R, "q": ROWS_Q, "s.q": ROWS_Q}

SCALARS = '''
i | b | ODD | r.st | `r`.`u` | dt | ts | n | bo
1 | -1 | 2147483647 | 2147483648 | -2147483648 | -9223372036854775808 | 12345678901234567890 | 1L | 2s | 3Y
1.50 | .5 | 1. | -0.05 | 1e3 | 1.e-2 | 1E3D | 2d | 1.5F | 2.50BD | 1e2bd | -1.5e1BD | 000.10 | 1e-400
'' | 'x' | "x" | 'O''Brien' | "say ""x""" | 'it\\'s' | 'a' 'b' | 'a' "b" r'c' | r'a\\n' | R"a'b" | 'a"b' | "a'b"
'\\n\\t\\r\\b\\0\\Z\\\\' | '\\%\\_' | '\\101\\u0041\\U0001F600' | '\\400\\18\\u12\\x' | '\\ud83d\\ude00' | '\U0001f600é' | '--' | '/* x */' | ';'
TRUE | false | CAST(NULL AS INT) | CAST(NULL AS STRING) | CAST(NULL AS DECIMAL(5,2))
DATE '2024-02-29' | DATE'0001-01-01' | TIMESTAMP '2024-02-29 12:00:00' | TIMESTAMP '2024-02-29 12:00:00.000001+05:30' | TIMESTAMP_NTZ '2024-02-29 12:00:00' | TIMESTAMP_LTZ '2024-02-29'
i + 1.5 | i * 0.05 | t + t - t | d + d | d - 1 | f * 2 | m + 1 | m - 0.5 | m * 2 | m / 3 | i / 2 | d / 2 | m % 5 | k % 3 | MOD(k, 3) | d % 2 | -m | -d | +i | - -k | -k + 5 | -k * 2 | i % 7 * 2
k + 2 * 3 - 4 | k - 2 - 1 | 12 / k / 2 | 2 - -k
i = 1 | i == 1 | i <> 1 | i != 1 | i < m | i <= b | i > d | i >= 0 | i <=> ODD | st = 'O''Brien' | st < u | dt = '2024-01-31' | dt < n | ts > '2000-01-01 00:00:00' | d = 0 | d > 1 | f = f | d <=> d | bo = true | i = '1' | i = ' +1 ' | m = '12.34' | m = '1e1' | d < '.5'
i IS NULL | i IS NOT NULL | NOT i IS NULL | bo IS TRUE | bo IS NOT TRUE | bo IS FALSE | i IS DISTINCT FROM k | st IS NOT DISTINCT FROM u
bo AND i > 0 | bo OR i > 0 | NOT bo | !bo | ! (bo) | NOT bo AND bo | NOT i = 1 | NOT (bo OR i > 0) | bo AND NULL | NULL OR bo | i = 1 OR bo AND i = 2 | bo = bo = bo | i = i = bo | i > 0 AND NOT bo OR i IS NULL
i IN (1, 2, 10) | i NOT IN (1, NULL) | NOT i IN (1) | st IN ('', 'abc') | m IN (0, 12.34) | i IN (k) | dt IN ('2024-01-31') | i IN ('1', '10')
i BETWEEN 0 AND 10 | i NOT BETWEEN 0 AND 10 | m BETWEEN -1 AND i | st BETWEEN 'a' AND 'b' | i BETWEEN 0 AND 10 AND bo | NOT i BETWEEN 1 AND 2 | k + 1 BETWEEN 1 AND 2 + 3
st LIKE 'a%' | st NOT LIKE 'a%' | NOT st LIKE 'a%' | st LIKE '_bc' | st LIKE '' | st LIKE '%''%' | u LIKE '%b' | st LIKE '%' 'c' | st NOT LIKE 'a%' AND bo | st LIKE '%\U0001f600%'
st || u | st || i | st || m | bo || st | st || 'a' || i | 'x' || (k + 1) | k + 1 || 'x' | i = k IS NULL | i <=> k = bo | NOT k = i AND bo | -k * 2 + 1 | -k::bigint || 'x' | i < k = bo
CASE WHEN i > 0 THEN 'a' WHEN bo THEN 'b' ELSE 'c' END | CASE WHEN bo THEN i END | CASE i WHEN 0 THEN 'z' WHEN NULL THEN 'n' WHEN 1 THEN 'o' END | CASE WHEN bo THEN 1 ELSE 2.5 END | CASE st WHEN 'abc' THEN k ELSE b END
(i) + (1) | ((i = 1)) | (k + 2) * 3 | (CASE WHEN bo THEN 1 ELSE 2 END) + 1
CAST(i AS BIGINT) | CAST(t AS INT) | CAST(i AS STRING) | CAST(m AS STRING) | CAST(k AS DECIMAL(20,5)) | CAST(big AS DECIMAL(38,2)) | CAST(k AS double) | CAST(t AS FLOAT) | CAST(bo AS INT) | CAST(bo AS STRING) | CAST(f AS DOUBLE) | CAST(dt AS TIMESTAMP_NTZ) | CAST(n AS DATE) | CAST(k AS NUMERIC(10, 1)) | CAST(k AS dec(5)) | CAST(k AS LONG) | CAST(k AS INTEGER) | CAST(k AS short) | CAST(k AS byte) | CAST(t AS REAL) | CAST(k AS DECIMAL) | CAST(m AS DECIMAL(17,1)) | k::bigint | m::string || 'x' | -k::smallint
CAST('12' AS INT) | CAST(' -12 ' AS BIGINT) | CAST('1.005' AS DECIMAL(5,2)) | CAST('.5' AS DOUBLE) | CAST('1e400' AS DOUBLE) | CAST('true' AS BOOLEAN) | CAST('2024-01-31' AS DATE) | CAST('2024-01-31 10:00:00Z' AS TIMESTAMP) | CAST('2024-01-31T10:00:00' AS TIMESTAMP_NTZ) | CAST(1.5 AS STRING) | CAST(1e3 AS FLOAT) | CAST(2.7 AS INT)
ABS(m) | ABS(d) | abs(k) | ABS(-5) | UPPER(st) | UCASE(u) | LOWER(st) | lcase(u) | LENGTH(st) | LEN(u) | CHAR_LENGTH(st) | CHARACTER_LENGTH(u) | TRIM(st) | CONCAT(st, u) | CONCAT(st) | CONCAT(st, '-', i) | SUBSTRING(st, 2) | SUBSTRING(st, 1, 2) | SUBSTR(u, 2, 1) | SUBSTRING(st, 0) | SUBSTRING(st FROM 1 FOR 2) | substr(st, 0, 2)
COALESCE(i, 0) | COALESCE(i) | COALESCE(st, u, '-') | NVL(i, k) | IFNULL(m, 0) | NULLIF(i, 1) | NULLIF(st, '') | IF(bo, 1, 2) | if(i > 0, st, NULL) | ISNULL(i) | ISNOTNULL(st)
ROUND(m, 1) | ROUND(m) | ROUND(i, 1) | ROUND(big, 3) | ROUND(m, 5)
'''
"""Scalars over the relation r, each becomes SELECT k, ... AS x FROM r."""
QUERIES = [
    "SELECT * FROM r",
    "SELECT k, 'a\nb' AS x, 'a\\\nb' AS y FROM r",
    "SELECT r.*, k AS again FROM r",
    "SELECT I, St AS s2, k K2 FROM R AS r",
    "SELECT k FROM r;",
    "select k from r where not bo",
    "SELECT k FROM r -- a comment \\\n that goes on\n WHERE /* and /* one in */ it */ i > 0",
    "SELECT k\u00a0FROM\u3000r\tWHERE\r\ni > 0",
    "(SELECT k FROM r)",
    "SELECT k FROM r WHERE i > 0 AND st LIKE '%c'",
    "SELECT k FROM r WHERE st NOT LIKE 'a%'",
    "SELECT k FROM r WHERE st = 'O''Brien'",
    "SELECT k FROM r WHERE st = \"O'Brien\" OR u = 'a\\\\b'",
    "SELECT x.k, y.st FROM r x JOIN q y ON x.k = y.k",
    "SELECT x.k, y.st AS s FROM r x INNER JOIN q AS y ON x.k = y.k AND y.m > 0",
    "SELECT k, r.m AS m1, q.m AS m2 FROM r JOIN q USING (k)",
    "SELECT * FROM q JOIN (SELECT k, i FROM r) AS z USING (k)",
    "SELECT x.k, y.k AS l FROM r x, q y WHERE x.st = y.st",
    "SELECT x.k, y.k AS l FROM q x CROSS JOIN q y WHERE x.x = y.x",
    "SELECT x.k, y.k AS l FROM q x JOIN q y ON x.x <=> y.x",
    "SELECT x.k, y.k AS l FROM q x JOIN q y",
    "SELECT z.a, z.c FROM (SELECT k, st, m FROM q) AS z(a, b, c)",
    "SELECT a FROM q z(a, b, c, e)",
    "SELECT k FROM (SELECT k FROM (SELECT k FROM r))",
    "WITH c AS (SELECT k, m FROM r WHERE i > 0), e(a, b) AS (SELECT k, m FROM c) SELECT a, b FROM e",
    "WITH c AS (SELECT k FROM r) SELECT k FROM c UNION ALL SELECT k FROM q",
    "SELECT w.k FROM (WITH c AS (SELECT k FROM r) SELECT k FROM c) w",
    "SELECT s.q.k, q.st FROM s.q",
    "SELECT k, m FROM r UNION ALL SELECT k, m FROM q",
    "SELECT k FROM r UNION ALL (SELECT k FROM q UNION ALL SELECT k FROM q)",
    "(SELECT i AS v FROM r) UNION ALL SELECT m FROM q UNION ALL SELECT NULL FROM q",
    "SELECT COUNT(*) AS n, SUM(i) AS s FROM r WHERE k > 4",
    "SELECT bo, COUNT(*) AS n, COUNT(i) AS c, COUNT(1) AS o, SUM(m) AS s, AVG(m) AS a, mean(t) AS b FROM r GROUP BY bo",
    "SELECT d, COUNT(d) AS n FROM r GROUP BY d",
    "SELECT x, COUNT(*) AS n FROM q GROUP BY x",
    "SELECT st AS s, SUM(k) AS n FROM q GROUP BY s",
    "SELECT st, SUM(k) + 1 AS n FROM q GROUP BY 1 HAVING SUM(k) > 1",
    "SELECT k % 2 AS p, AVG(k) AS a FROM r GROUP BY k % 2 HAVING a > 1 AND COUNT(*) > 1",
    "SELECT UPPER(st) AS s, SUM(CASE WHEN k > 1 THEN m ELSE 0 END) AS n FROM q GROUP BY UPPER(st), m IS NULL",
    "SELECT COUNT(*) AS n FROM r HAVING COUNT(*) > 1",
    "SELECT SUM(i) AS s, AVG(big) AS a, COUNT('x') AS c, COUNT(NULL) AS z FROM r WHERE k = 2",
    "SELECT COUNT(st) AS n FROM (SELECT st FROM q GROUP BY st) AS d",
    "SELECT x.k FROM r x JOIN (SELECT k FROM q GROUP BY k) AS d ON x.k = d.k",
    "SELECT x.k FROM r x CROSS JOIN (SELECT SUM(k) AS s FROM q) AS y WHERE x.k < y.s",
]
LISTED = [
    scalar.strip().replace("ODD", "`odd ``name```")
    for line in SCALARS.strip("\n").split("\n")
    for scalar in line.split(" | ")
]
TEXTS = [*(f"SELECT k, {scalar} AS x FROM r" for scalar in LISTED), *QUERIES]
