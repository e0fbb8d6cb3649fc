"""Answers of the sources at a known state, and how they reach a manager in order (strobe-family 5).

*WQ* is the part of a query that is not evaluated yet. A *kind of source* is one object
(`source_kind`): `postgres/` and `mariadb/` have one each.

In the order to read them: `asked`, `source_kind` and `source_kinds` (which there are), `reduction` and
`restriction` (what must be sent), `reconnecting`; `working`, `evaluation` and `processor`
(source_evaluate), `copies`, `delivered`, `fifo` and `splitting` (an answer's place among the updates),
`state_codec`.

Example: `sweep` asks north for the accounts of two entries. `pg_source` answers from one snapshot;
`fifo` puts the answer behind number 7, the last transaction that the snapshot saw.
"""
