"""Rows that wait are the same rows wherever they are: in memory, staged, and after a restart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.cdc.held_rows import INLINE, HeldFiles, HeldRows
from streaming.durable import as_json

SCHEMA = pa.schema([("offset", pa.int64()), ("transaction", pa.string()), ("a0", pa.string())])
LARGE = INLINE // 100
"""Rows that are staged."""


def rows(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    columns = [list(ids), [f"t{i % 3}" for i in ids], ["x" * 90 + str(i) for i in ids]]
    return pa.table([pa.array(c) for c in columns], schema=SCHEMA)


@settings(max_examples=40, deadline=None, print_blob=True)
@given(st.data())
def test_rows_are_kept_and_read_alike_staged_and_restarted(data: st.DataObject) -> None:
    files: dict[str, pa.Table] = {}

    def stage(table: pa.Table) -> str:
        files[f"file {len(files)}"] = table
        return f"file {len(files) - 1}"

    store = HeldFiles(stage, lambda name, columns: files[name].select(columns))
    looked_at = data.draw(st.sampled_from([("offset", "transaction"), None]))
    empty = HeldRows(SCHEMA, looked_at, store)
    held, expected, given_out = empty, SCHEMA.empty_table(), 0
    for act in data.draw(
        st.lists(st.sampled_from(["plus", "keep", "snapshot", "restart"]), max_size=12)
    ):
        if act == "plus":
            count = data.draw(st.sampled_from([1, LARGE // 3, LARGE, 2 * LARGE]))
            held = held.plus(rows(given_out, count))
            expected = pa.concat_tables([expected, rows(given_out, count)])
            given_out += count
        elif act == "keep":
            mask = _mask(data, expected.num_rows)
            held, expected = held.keep(mask), expected.filter(pa.array(mask))
        else:
            held, notes = held.snapshot()
            inline = sum(len(note["ipc"]) for note in notes if "ipc" in note)
            assert inline < 2 * INLINE, "a snapshot stays small however many batches wait"
            if act == "restart":
                held = empty.restore(as_json(notes))
        mask = _mask(data, expected.num_rows)
        assert held.rows == expected.num_rows
        assert held.read().equals(expected)
        assert held.table.equals(expected.select(list(looked_at or SCHEMA.names)))
        chosen = expected.filter(pa.array(mask)).select(["a0"])
        assert held.read(mask, ["a0"]).equals(chosen)
    written = [offset for table in files.values() for offset in table["offset"].to_pylist()]
    assert len(written) == len(set(written)), "a row is staged once"


def _mask(data: st.DataObject, length: int) -> np.ndarray:
    seed = data.draw(st.integers(0, 3))
    share = (0.0, 0.5, 0.9, 1.0)[seed]
    return np.random.default_rng(seed + length).random(length) < share
