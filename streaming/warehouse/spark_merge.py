"""The group table's commit by Spark's MERGE, for changes that rewrite more than one driver should.

The source of the merge is the same plan the driver's writer would write: absolute numbers of
copies per `_id`. So both leave the same rows, schema and metadata, and a commit may be done by
either. The pair (application, epoch) and the metadata are settings of a session of their own:
nothing to take back, and no other query of the driver commits under them. Spark itself skips a
pair that is in the log already.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from streaming.packed_rows import write_parquet
from streaming.warehouse.data_files import TableFolder
from streaming.warehouse.delta_table import TableHandle, ViewTable, state_schema
from streaming.warehouse.epoch import Epoch
from streaming.warehouse.group_state import StateChange

_STAGING = "_staging"
_SETTINGS = {
    # Spark's default is INT96, whose nanoseconds end in 1677 for every reader but Spark.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.session.timeZone": "UTC",
}


def merge_by_spark(
    spark: SparkSession,
    warehouse: TableFolder,
    table: TableHandle,
    views: Sequence[ViewTable],
    plans: Sequence[StateChange],
    drop: Sequence[str],
    epoch: Epoch,
    application: str,
) -> None:
    """Commit the plans as one MERGE; a repeated epoch changes nothing.

    Args:
        drop: views whose rows leave the table.
    Raises whatever Spark raises for a conflict or a failed job; the table is then as it was.
    """
    staged = _stage(warehouse, views, plans, epoch)
    session = spark.newSession()
    settings = {
        **_SETTINGS,
        "spark.databricks.delta.write.txnAppId": application,
        "spark.databricks.delta.write.txnVersion": str(epoch.epoch),
        "spark.databricks.delta.commitInfo.userMetadata": epoch.to_json(),
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        session.read.parquet(_spark_path(warehouse, staged)).createOrReplaceTempView(
            "fresco_changes"
        )
        names = [plan.view.name for plan in plans]
        session.sql(_statement(table.place.uri, names, drop)).collect()
    finally:
        warehouse.filesystem.delete_file(warehouse.path(staged))


def _stage(
    warehouse: TableFolder, views: Sequence[ViewTable], plans: Sequence[StateChange], epoch: Epoch
) -> str:
    schema = state_schema(views)
    pieces = [
        plan.fresh.add_column(0, "view", pa.array([plan.view.name] * plan.fresh.num_rows))
        for plan in plans
    ]
    rows = pa.concat_tables([schema.empty_table(), *pieces], promote_options="default")
    relative = f"{_STAGING}/merge-{epoch.group}-{epoch.epoch}.parquet"
    warehouse.filesystem.create_dir(warehouse.path(_STAGING), recursive=True)
    with warehouse.filesystem.open_output_stream(warehouse.path(relative)) as stream:
        write_parquet(rows, stream)
    return relative


def _spark_path(warehouse: TableFolder, relative: str) -> str:
    uri = f"{warehouse.uri}/{relative}"
    return uri if "://" in uri else f"file://{uri}"


def _statement(table: str, views: Sequence[str], drop: Sequence[str]) -> str:
    changed = ", ".join(_literal(name) for name in views) or "NULL"
    dropped = ""
    if drop:
        gone = ", ".join(_literal(name) for name in drop)
        dropped = f"WHEN NOT MATCHED BY SOURCE AND t.view IN ({gone}) THEN DELETE"
    return (
        f"MERGE INTO delta.`{table}` t USING fresco_changes s "
        f"ON t.view = s.view AND t._id = s._id AND t.view IN ({changed}) "
        "WHEN MATCHED AND s._n = 0 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET * "
        f"WHEN NOT MATCHED AND s._n > 0 THEN INSERT * {dropped}"
    )


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
