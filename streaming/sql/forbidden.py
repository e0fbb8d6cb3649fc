"""Functions that no view may use, whatever their result, and why."""

from __future__ import annotations

from streaming.errors import FrescoError

NON_DETERMINISTIC = """
    rand randn random randstr uniform uuid shuffle
    now current_timestamp current_date current_time curdate localtimestamp unix_timestamp
    current_user user session_user current_database current_catalog current_schema
    current_timezone version monotonically_increasing_id spark_partition_id
    first first_value last last_value any_value
"""
OUTSIDE = """
    reflect java_method try_reflect input_file_name input_file_block_start
    input_file_block_length read_files cloud_files read_kafka read_parquet read_csv read_json
    read_text load_file http_request ai_query secret try_secret getenv getvariable
    from_avro to_avro from_protobuf to_protobuf
"""
FORBIDDEN = {
    **dict.fromkeys(NON_DETERMINISTIC.split(), "non-deterministic"),
    **dict.fromkeys(OUTSIDE.split(), "reaching outside the pipeline"),
}
"""From the function's name to the reason."""


def forbidden(name: str) -> FrescoError | None:
    """The refusal of a function that is non-deterministic or reaches outside; None for others."""
    reason = FORBIDDEN.get(name.lower())
    if reason is None:
        return None
    return FrescoError(
        "SQL_FUNCTION_FORBIDDEN",
        f"function {name.upper()} is {reason}, so a view of it has no source state",
        todo="remove it, or store its value in the source table",
    )
