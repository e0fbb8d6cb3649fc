"""DuckDB in the driver: a view's state and its delta programs, as long as they fit (DESIGN 4).

In the order to read them: `duck_evaluator` (one batch after the other), `duck_state` (the bags it
keeps), `cumulate` (states inside a batch), `duck_operators` (relations of managers that ask), `signed`,
`duck_mirror` (the view as it was sent), `kept_plans` (queries that are planned once).
"""
