"""Expressions over one row: types, functions, casts, what they mean, and their text in each engine.

Spark's ANSI mode is the law. A function is here only if Spark, DuckDB and Python give the same for
every input, errors included. Imports nothing of the project but `errors`.

In the order to read them: `expression` (columns, constants, calls), `types`, `functions` (the list),
`casts`, `coercion` (implicit ones), `exact` (decimals), `letter_case`, `failure` (which rows make an
expression fail), `meanings` (in Python), `renderings` (as SQL text), `substitution`, `limits`,
`written` (values for people).

Example: `1 / i` is Call("/", ...) of type decimal or double; `failure` says that it fails where i is 0,
and for which rows that counts; `meanings` computes it in Python, `renderings` writes it for DuckDB and
Spark.
"""
