"""Debezium's records become whole source transactions, each once, in commit order (DESIGN 6).

A source's transaction topic tells BEGIN and END with counts; its table topics hold the row events. A
transaction is *complete* when every event that END counts is there. What cannot be read is told by
place.

In the order to read them: `records`, `debezium` with `glance` and `row_query` (events to columns, each
parsed once), `judgement`, `unread_columns`, `placeholder` (what is bad or unknown in them);
`transaction_log`, `completeness`, `repeats`, `apart`, `tags`, `assembler`; `deltas`, `rel_of_step`,
`intake` with `intake_result` (a batch in, numbered updates out), `held_rows`, `reshaped_rows`;
snapshots: `initial_snapshots`, `snapshot_attempts`, `snapshot_notes`, `later_snapshots`, `later_rows`,
`replacement`, `old_dates`; the connector: `connect_rest`, `connector_settings`, `record_shapes`.

Example: one transfer is BEGIN, two events of `entry`, END with count 2. When all four are here,
`assembler` hands the transaction on, `integrator` gives it number 7, and `deltas` makes +1 rows of it.
"""
