"""PostgreSQL as a source that is asked: catalog, sessions, filters, rows, and the state of a snapshot.

In the order to read them: `pg_catalog`, `published` (does the log hold all), `pg_session`, `pg_state`,
`pg_filter`, `pg_reader`, `pg_values`, `pg_source`, `postgres_kind` (all of it as one
object).
"""
