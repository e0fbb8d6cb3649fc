"""Trees and delta plans on engines: plain Python, DuckDB in the driver, Spark beyond it. One answer for
all.

An *evaluator* holds what a view needs of its relations up to one number and gives the view's delta for
the next numbers. Which engine is used never changes a result or an error.

In the order to read them: `evaluator` and `engine` (the contracts), `sql_text` (a scalar's SQL) and
`tree_sql` (SQL of trees and plans), `program` (a delta plan as SQL statements), `totals` (kept
aggregates), `leaf_delta`, `netting`, `needed_rows`, `recomputed_groups` and `recount` (parts of plans),
`duck_engine` (every DuckDB of Fresco is opened there), `duck/` (the evaluator in the driver),
`spark_evaluator`, `culprit` (which row made a batch fail).

Example: a transfer changes two rows of `entry`; `duck.duck_evaluator` runs the program of `total` over
the four signed rows and returns two rows: the old sum at -1, the new one at +1.
"""
