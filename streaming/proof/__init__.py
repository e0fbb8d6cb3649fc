"""`verify`: what the warehouse shows against recomputation from the views' texts, and against the
databases.

Runs no code of the view managers: a view is computed anew from its file's SQL, by DuckDB at every number
and by Spark, from the text as it stands, at some.

In the order to read them: `verdicts` (what is asked and answered), `group_proof`, `view_proof`,
`recorded`, `recorded_levels`, `relation_history`, `layout_versions`, `recomputed` with `proof_engine`
and `spark_text`, `conflict_order`, `epoch_chain`, `forgotten`, `session_proof`, `databases` with
`mariadb_tables`.
"""
