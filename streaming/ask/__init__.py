"""Answers of the sources at a known state, and how they reach a manager in order (strobe-family 5).

*WQ* is the part of a query that is not evaluated yet. `postgres/` and `mariadb/` serve `asked`, the one
contract of a kind of source; everything else here is pure.

In the order to read them: `asked`, `source_kinds` (which folder serves which source), `reduction` and
`restriction` (what must be sent), `reconnecting`; `working`, `evaluation` and `processor`
(source_evaluate), `copies`, `delivered`, `fifo` and `splitting` (an answer's place among the updates),
`state_codec`.

Example: `sweep` asks north for the accounts of two entries. `pg_source` answers from one snapshot;
`fifo` puts the answer behind number 7, the last transaction that the snapshot saw.
"""
