"""Managers that ask the sources and compensate for what the answers have seen too early (DESIGN 7).

*UQS* is the queries without answers, *pending(Q)* the deletes since Q was sent (strobe-family 5).

In the order to read them: `asking_manager` (what all have in common), `holding_queue`, `recent`,
`chains`, `numbered_effects`, `keyed`; then one algorithm a file: `naive`, `recompute`, `eca`, `strobe`,
`g_strobe`, `c_strobe` with `compensated`, `sweep`, and `compensating`, Fresco's own.
"""
