"""Producers of our own, for sources without Debezium; they write what Debezium would (DESIGN 6).

`fresco capture` reads a MariaDB's or MySQL's log, `fresco snapshots` compares successive snapshots of
files.

In the order to read them: the log as bytes: `log_stream`, `table_map`, `log_values`, `json_binary`,
`charsets`; as transactions: `log_events`, `statements`, `written_tables`, `moved_tables`,
`row_versions`, `rollbacks`, `binlog`, `log_inbox`; as Debezium's messages: `cells`, `envelope`,
`initial_scan`, `publishing`, `position`, `kafka_writer`, `rights`, `capture_status`, `capturing`; from
snapshots: `dump`, `durable_folder`, `snapshot_folders`, `snapshot_files`, `differential`,
`snapshot_events`, `monitor`.
"""
