"""The bank of `make demo`: two databases, transfers, five views, and a board that shows that the sum
stays.

In the order to read them: `bank`, `bank_workload` with `pace`, `demonstration`, `live_board`,
`naive_sum` (what one would see without Fresco), `marker` (when all is at rest); `embedded/` is the
stack, `anomalies/` the papers' anomalies on live databases.
"""
