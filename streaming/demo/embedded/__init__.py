"""The embedded stack: Kafka, PostgreSQL, MariaDB and Connect as processes, no docker; and compose from
it.

In the order to read them: `parts` (the one description of every part), `ports`, `account`,
`server_process`, `kafka_broker`, `postgres_server`, `mariadb_server`, `connect_worker`, `stack`,
`compose` (the same stack for docker), `register`, `slot_log` (PostgreSQL's log without Connect),
`training` (for the class archive).
"""
