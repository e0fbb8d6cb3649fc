"""Fresco: materialized views over live databases, all of them at one and the same source state.

The way of one update, each step in a folder of its own: `cdc` makes whole transactions of Kafka's
records, `integrator` numbers them, `viewmanagers` answer with action lists, `merge` paints them,
`warehouse` commits. `stages` run these machines inside the exactly-once step of `runtime`; `service`
starts and watches the stages. `docs/architecture.md` follows one update with the real names, and shows
which folder may import which.
"""
