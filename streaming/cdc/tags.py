"""What the integrator's machine is told beyond "complete": tags of global transactions, and keys.

A source tags a transaction as a part of a global one by inserting a row into its captured table
`fresco_global(id, parts)` (DESIGN 6); a snapshot may hold such rows too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.captured.captured_schema import GLOBAL_TABLE, CapturedRelation
from streaming.cdc.completeness import SourceStep
from streaming.cdc.initial_snapshots import SnapshotWork
from streaming.integrator.knots import Touched
from streaming.integrator.window import PartOfGlobal


def _columns(tags: CapturedRelation) -> tuple[int, int]:
    seen = {one.name: at for at, one in enumerate(tags.relation.schema) if not one.hidden}
    return seen["id"], seen["parts"]


def transaction_parts(source: str, tags: CapturedRelation, work: SourceStep) -> list[PartOfGlobal]:
    """The tags inserted by the transactions that just became complete."""
    id_, parts = _columns(tags)
    name = tags.relation.name
    entry = work.entry[name]
    if not len(entry) or not work.log.num_rows:
        return []
    ordinals = work.log["ordinal"].to_numpy()[np.maximum(entry, 0)]
    first, last = work.fresh
    inside = (entry >= 0) & (ordinals >= first) & (ordinals <= last)
    rows = work.rows[name].read(inside, ["op", f"a{id_}", f"a{parts}"])
    inserts = pc.equal(rows["op"], "c")
    chosen = rows.filter(inserts)
    triples = zip(
        ordinals[inside][inserts.to_numpy()].tolist(),
        chosen[f"a{id_}"].to_pylist(),
        chosen[f"a{parts}"].to_pylist(),
        strict=True,
    )
    return [
        PartOfGlobal(source, ordinal, str(key), int(count or 1)) for ordinal, key, count in triples
    ]


def closed_snapshots(
    work: SnapshotWork, captured: Mapping[str, CapturedRelation]
) -> dict[str, tuple[tuple[str, int, int], ...]]:
    """For each snapshot closed now, the (id, parts, count) of the tags it holds."""
    result: dict[str, tuple[tuple[str, int, int], ...]] = {}
    for source in work.closed:
        name = f"{source}.{GLOBAL_TABLE}"
        if name not in captured or not work.held[name].rows:
            result[source] = ()
            continue
        id_, parts = _columns(captured[name])
        rows = work.held[name].read(columns=[f"a{id_}", f"a{parts}"])
        table = pa.table({"id": rows[f"a{id_}"].cast(pa.string()), "parts": rows[f"a{parts}"]})
        seen = table.group_by("id").aggregate([("parts", "max"), ("parts", "count")])
        seen = seen.filter(pc.greater(seen["parts_max"], 1))
        triples = (seen[n].to_pylist() for n in ("id", "parts_max", "parts_count"))
        result[source] = tuple(sorted(zip(*triples, strict=True)))
    return result


def touched_keys(
    work: SourceStep, captured: Mapping[str, CapturedRelation], first: int, last: int
) -> Touched:
    """Which (relation, key) the transactions first..last of a source touch.

    A relation without a key counts by the whole row; it counts as one key when it is truncated among
    them, or when a column could not be read, which would make one row's versions differ.
    """
    ordinals: list[np.ndarray] = []
    keys: list[np.ndarray] = []
    base = 0
    for name, held in work.rows.items():
        entry = work.entry[name]
        relation = captured[name].relation
        if not len(entry) or name.endswith(f".{GLOBAL_TABLE}"):
            continue
        ordinal = work.log["ordinal"].to_numpy()[np.maximum(entry, 0)]
        inside = (entry >= 0) & (ordinal >= first) & (ordinal <= last)
        if not inside.any():
            continue
        positions = relation.key or tuple(range(len(relation.schema)))
        columns = [f"{side}{i}" for side in "ba" for i in positions]
        columns += ["op", "missing", "unfit"]
        rows, ordinal = held.read(inside, columns), ordinal[inside]
        unread = not relation.key and any(
            rows[name].null_count < rows.num_rows for name in ("missing", "unfit")
        )
        if unread or pc.any(pc.equal(rows["op"], "t")).as_py():
            ordinals.append(ordinal)
            keys.append(np.full(len(ordinal), base))
            base += 1
            continue
        sides = []
        for side, ops in (("b", ["u", "d"]), ("a", ["c", "u"])):
            mask = pc.is_in(rows["op"], pa.array(ops))
            part = rows.filter(mask).select([f"{side}{i}" for i in positions])
            sides.append(part.rename_columns([f"k{i}" for i in positions]))
            ordinals.append(ordinal[mask.to_numpy()])
        codes = _codes(pa.concat_tables(sides))
        keys.append(codes + base)
        base += int(codes.max()) + 1
    if not keys:
        return Touched(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return Touched(np.concatenate(ordinals), np.concatenate(keys))


def _codes(table: pa.Table) -> np.ndarray:
    """Equal rows get equal numbers, NULL equal to NULL."""
    codes = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        encoded = pc.dictionary_encode(column.combine_chunks(), null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        part = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + part, return_inverse=True)
    return codes
