"""`fresco verify`: recompute every view from the recorded updates, say which level it has (G7).

`verify_pipeline` rebuilds the captured relations from `<warehouse>/_updates`, number by number,
runs each view's own SQL over them in DuckDB (`proof.recomputed`; no code of the view managers), and
compares with the changelog at each number and with the group table at each epoch. DuckDB's text of the
view comes from sqlglot, which the views were parsed with too; so Spark itself runs the text as it stands
at some of the numbers (`proof.spark_text`), and what Spark says counts. `verify_sources`
compares with the databases themselves, so that input lost before `_updates` shows too; it holds
only while the workload rests and everything has arrived, which the caller sees to.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from streaming.errors import FrescoError
from streaming.proof.databases import Database, judge_databases
from streaming.proof.group_proof import GroupProof
from streaming.proof.recorded_levels import Judged, Verdict, Witness
from streaming.proof.session_proof import judge_sessions
from streaming.proof.spark_text import SparkText
from streaming.readers import Warehouse

__all__ = ["Database", "Judged", "Verdict", "Witness", "verify_pipeline", "verify_sources"]

NO_SPARK = ("EMBEDDED_JAVA_MISSING", "SPARK_SESSION")

Progress = Callable[[str, int, int], None]
"""Called with (group, numbers done, numbers in all)."""


def verify_pipeline(
    warehouse: str | Path,
    sample: int | None = None,
    seed: int = 1,
    progress: Progress | None = None,
    by_spark: int = 0,
) -> Verdict:
    """The level each view and each group reaches, recomputed from the recorded updates.

    Args:
        warehouse: the pipeline's folder.
        sample: so many numbers at most, and so many epochs: always 0, the frontier and the newest
            epochs' frontiers, the rest drawn with `seed`. None: every number and epoch.
        by_spark: at so many of those numbers Spark runs each view's text, in this process's session
            if there is one. 0: at none. The verdict says where it did, or why it could not.

    Raises:
        FrescoError: VERIFY_SQL, VERIFY_RETENTION when updates from number 0 on are no longer
            recorded, READ_NO_WAREHOUSE, READ_NO_EPOCH.
    """
    begin = time.perf_counter()
    opened = Warehouse(warehouse)
    lines: list[Judged] = []
    problems: list[str] = []
    frontiers: dict[str, int] = {}
    proofs: list[GroupProof] = []
    for group in opened.groups():
        if opened.epochs(group)[-1].sessions:
            rng = random.Random(seed)
            lines += judge_sessions(opened, str(warehouse), group, sample, rng)
            frontiers[group] = opened.epochs(group)[-1].frontier
            continue
        proof = GroupProof(opened, str(warehouse), group, sample, random.Random(seed))
        proof.run(progress)
        proofs.append(proof)
        frontiers[group] = proof.frontier
    text = _heard(proofs, by_spark)
    for proof in proofs:
        lines += proof.lines()
        problems += proof.problems
    seconds = time.perf_counter() - begin
    return Verdict("updates", tuple(lines), tuple(problems), frontiers, seed, seconds, text)


def _heard(proofs: Sequence[GroupProof], most: int) -> str:
    """Has Spark run the views' text; tells whether it did."""
    why = "it was not asked to"
    if proofs and most:
        from streaming.spark.local_session import passing_session

        try:
            with passing_session() as spark:
                for proof in proofs:
                    with SparkText(spark) as text:
                        proof.hear(text, most)
            return "Spark ran each view's text as it stands, at the numbers that each line names"
        except FrescoError as error:
            if error.code not in NO_SPARK:
                raise
            why = error.what
    unable = next((proof.unable for proof in proofs if proof.unable is not None), None)
    if unable is not None:
        raise unable
    return f"Spark ran no view's text ({why}); DuckDB ran what sqlglot, Fresco's parser too, made of it"


def verify_sources(warehouse: str | Path, databases: Mapping[str, Database]) -> Verdict:
    """Compares the recorded relations, and the views at the latest epoch, with the databases.

    The relations are left out when the beginning of `_updates` has been dropped.

    Args:
        databases: source -> how to read it; every source of the catalog's relations.

    Raises:
        FrescoError: VERIFY_SOURCE when a database cannot be read or one is missing; as above.
    """
    begin = time.perf_counter()
    opened = Warehouse(warehouse)
    lines = judge_databases(opened, str(warehouse), databases)
    frontiers = {group: opened.epochs(group)[-1].frontier for group in opened.groups()}
    seconds = time.perf_counter() - begin
    return Verdict("databases", tuple(lines), (), frontiers, 0, seconds)
