"""How the warehouse's tables are made and written."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TableOptions:
    """Properties a table is made with.

    Attributes:
        checkpoint_interval: commits between checkpoints of the log.
        log_retention_hours: how long old log entries, and with them old epochs, can be read.
        deleted_file_retention_hours: how long replaced files stay for readers of old epochs.
    """

    checkpoint_interval: int = 50
    log_retention_hours: int = 24
    deleted_file_retention_hours: int = 24


@dataclass(frozen=True)
class WriterOptions:
    """How the writer works.

    Attributes:
        spark_bytes: when more bytes must be rewritten, and a session is given, Spark does it.
        file_bytes: smallest target for a state file; grows with the view (see `state`).
        threads: files written and read at the same time.
    """

    spark_bytes: int = 256 << 20
    file_bytes: int = 1 << 20
    threads: int = 4
    table: TableOptions = field(default_factory=TableOptions)
