"""A state of a view as a Spark DataFrame: the same states as `snapshot`, read by the executors."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.scalars.expression import column_name
from streaming.warehouse.delta_table import TableHandle, ViewTable
from streaming.warehouse.epoch import Runs
from streaming.warehouse.names import distinct_names, physical_names
from streaming.warehouse.snapshot import GroupAtEpoch, last_change

_COPIES = "_copies"


def frame(spark: SparkSession, state: GroupAtEpoch, view: ViewTable) -> DataFrame:
    """The view's rows at a state, duplicates expanded, with true column names.

    Names that differ only in case get their physical names, because Spark ignores case.
    """
    shown = state.shows(view)
    exact = shown and state.exact
    if shown or state.changes is None:
        rows = _positional(_read(spark, state.table, view), view, F.col("_n"))
    else:  # the base version may not even have the view's column
        nothing = _read(spark, state.changes, view).where(F.lit(False))
        rows = _positional(nothing, view, F.col("multiplicity"))
    if not exact and state.changes is not None:
        rows = _adjusted(spark, rows, state, state.changes, view)
    if not view.key or not exact:
        repeated = F.explode(F.sequence(F.lit(1), F.col(_COPIES).cast("int")))
        rows = rows.withColumn("_copy", repeated)
    names = distinct_names([column.name for column in view.schema])
    return rows.select(*(F.col(column_name(at)).alias(name) for at, name in enumerate(names)))


def _read(spark: SparkSession, table: TableHandle, view: ViewTable) -> DataFrame:
    reader = spark.read.format("delta").option("versionAsOf", table.version)
    return reader.load(table.place.uri).where(F.col("view") == view.name)


def _positional(rows: DataFrame, view: ViewTable, copies: Column) -> DataFrame:
    inner = physical_names([column.name for column in view.schema])
    fields = [
        F.col(f"`{view.struct}`").getField(name).alias(column_name(at))
        for at, name in enumerate(inner)
    ]
    return rows.select(*fields, copies.alias(_COPIES))


def _adjusted(
    spark: SparkSession, rows: DataFrame, state: GroupAtEpoch, changes: TableHandle, view: ViewTable
) -> DataFrame:
    number = F.col("number")
    known = last_change(state.newest, view.name, 1 << 62)
    covered = _inside(number, state.epoch.covered if state.shows(view) else ())
    forward = (number <= state.number) & ~covered
    backward = (number > state.number) & covered
    sign = F.when(forward, F.col("multiplicity")).otherwise(-F.col("multiplicity"))
    known_ones = number.between(view.since, known)
    found = _read(spark, changes, view).where(known_ones & (forward | backward))
    both = rows.unionByName(_positional(found, view, sign))
    columns: Sequence[str] = [column_name(at) for at in range(len(view.schema))]
    return both.groupBy(*columns).agg(F.sum(_COPIES).alias(_COPIES)).where(F.col(_COPIES) > 0)


def _inside(number: Column, runs: Runs) -> Column:
    inside = F.lit(False)
    for first, last in runs:
        inside = inside | number.between(first, last)
    return inside
