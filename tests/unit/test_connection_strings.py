"""A connection string that cannot be read: it has a code, and nothing of it is repeated (DESIGN 11)."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from streaming.ask.postgres import pg_catalog
from streaming.ask.postgres.pg_source import PostgresSource
from streaming.capture.dump import dump_tables
from streaming.engines.duck.duck_operators import DuckOperators
from streaming.errors import FrescoError
from streaming.isolated import delta_install

DSN = "postgresql//reader:s3cret-word@db.example/north"
"""A colon is missing, which libpq's own error would show with all that stands around it."""


def asked(folder: Path) -> object:
    operators = DuckOperators(lambda _: pytest.fail("packed"), lambda _: pytest.fail("unpacked"))
    return PostgresSource("north", DSN, [], operators).pin()


@pytest.mark.parametrize(
    "use",
    [
        lambda _: pg_catalog.read_schemas(DSN, "north", "north", {"entry": "public.entry"}),
        lambda _: pg_catalog.check_replica_identity(DSN, "north", ["public.entry"]),
        lambda _: delta_install.role_of(DSN, "north"),
        lambda folder: dump_tables(DSN, "north", [], folder),
        asked,
    ],
    ids=["schemas", "identity", "delta tables", "snapshots", "queries"],
)
def test_an_unreadable_connection_string_is_not_repeated(
    use: Callable[[Path], object], tmp_path: Path
) -> None:
    with pytest.raises(FrescoError, match="SOURCE_CONNECTION") as caught:
        use(tmp_path)
    assert "s3cret-word" not in "".join(traceback.format_exception(caught.value))
