"""The tables that readers see, in Delta Lake, and all that is written into them (DESIGN 8).

An *epoch* is one commit of a group's table: all its views, after whole transactions. `_updates` records
every numbered update, the *changelog* every change of every view. Machines know nothing of this folder.

In the order to read them: `names` and `identity` (what a column, a row is called), `data_files`,
`delta_table`, `table_options`; for a commit `epoch`, `group_state`, `net_changes`, `rewrite`,
`changelog`, `standing`, `group_writer`, `spark_merge`; the record `updates`, `initial`, `retention`,
`upkeep`; for readers `epoch_log`, `moments`, `read_state`, `snapshot`, `spark_read`, `reader_query`;
`described` and `decisions` (notes for people).

Example: the merge hands over the lists of numbers 7 and 8; `group_writer` nets them per row, rewrites
the files that hold those rows, and commits once, with the epoch in the commit's metadata.
"""
