"""One DuckDB for all decoders and intakes of a test process.

They keep nothing in it between two steps, so every one of them, a restarted one too, may take it over:
making one costs more than what it computes here.
"""

from __future__ import annotations

import duckdb

ENGINE = duckdb.connect(config={"threads": 1})
