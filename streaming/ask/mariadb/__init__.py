"""MariaDB and MySQL as sources that are asked: catalog, sessions, filters, rows, places in the log.

In the order to read them: `mysql_url`, `mysql_catalog`, `mysql_check` (does the log hold all),
`mysql_types`, `mysql_dates`, `mysql_session`, `mysql_state`, `mysql_filter`, `mysql_reader`,
`mysql_values`, `mysql_source`, `mariadb_kind` (all of it as one object).
"""
