"""Views from their text, as Spark reads it: the one proof that shares nothing with Fresco's own reading.

The relations are databases, and tables in them, of a Spark catalog that nobody else sees; each table is
a view over a Parquet file of all times, cut at the number asked for. The text is handed to Spark as it
stands. All numbers of a view go through one job: what each reads is fixed when its plan is made.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from streaming.algebra.tree import Relation
from streaming.errors import FrescoError
from streaming.packed_rows import write_parquet
from streaming.scalars.expression import Column, Schema
from streaming.scalars.types import arrow_type

ALL_TIMES = "__fresco_all_times"
AT = "__fresco_at"
"""The column with the number, behind the view's own."""
_Name = tuple[str, str]
_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class SparkText:
    """Runs views' texts at numbers of choice.

    Args:
        spark: any session; its own catalog, configuration and temporary views are left alone.

    Raises:
        FrescoError: VERIFY_SQL, from every method, where Spark refuses.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = _of_its_own(spark)
        self._undo = ExitStack()
        self._folder = Path(self._undo.enter_context(tempfile.TemporaryDirectory("fresco-proof")))
        self._tables: dict[_Name, tuple[Relation, str]] = {}
        """By the name that Spark knows them by: the relation, and where its rows are."""
        self._names: dict[int | None, dict[_Name, _Name]] = {}
        """Generation, None for the newest -> names in texts and in Spark."""
        self._views: dict[str, str] = {}
        self._run(ALL_TIMES, f"CREATE DATABASE {ALL_TIMES} LOCATION '{self._folder}/all'")

    def offer(
        self, relation: Relation, rows: pa.Table, versions: Mapping[int, Relation] | None = None
    ) -> None:
        """Lets texts say `source.table`.

        Args:
            rows: the relation's columns by position, then from which number (included) to which (not
                included) the row stands.
            versions: generation -> the relation as texts of that one see it.
        """
        names = [f"c{position}" for position in range(len(relation.schema))]
        kinds = [arrow_type(one.type) for one in relation.schema]
        whole = pa.schema([*zip(names, kinds, strict=True), ("f", pa.int64()), ("u", pa.int64())])
        file = self._folder / f"r{len(self._tables)}"
        file.mkdir()
        write_parquet(rows.rename_columns(whole.names).cast(whole), file / "rows.parquet")
        types = ", ".join(
            f"{name} {one.type}" for name, one in zip(names, relation.schema, strict=True)
        )
        table = f"{ALL_TIMES}.{file.name}"
        self._run(
            relation.name,
            f"CREATE TABLE {table} ({types}, f bigint, u bigint) USING parquet LOCATION '{file}'",
        )
        source, _, name = relation.name.partition(".")
        every: list[tuple[int | None, Relation]] = [(None, relation), *(versions or {}).items()]
        for generation, version in every:
            names = [one.name.casefold() for one in version.schema if not one.hidden]
            if len(set(names)) < len(names):
                self._spark.conf.set("spark.sql.caseSensitive", "true")
            plain = re.fullmatch(r"\w+", source + name, re.ASCII) and generation is None
            known = (
                (source, name) if plain else (ALL_TIMES, f"v{len(self._tables)}_{generation or 0}")
            )
            self._names.setdefault(generation, {})[source, name] = known
            self._run(relation.name, f"CREATE DATABASE IF NOT EXISTS {_quoted(known[0])}")
            self._tables[known] = version, table

    def read(self, name: str, sql: str, generation: int | None = None) -> None:
        """Lets texts that follow scan this view; its parents come first.

        Args:
            generation: of the relations that it is over, where it is not the newest.
        """
        names = {**self._names.get(None, {}), **self._names.get(generation, {})}
        if any(name != known for name, known in names.items()):
            sql = self._renamed(name, sql, names)
        self._views[name] = sql

    def _renamed(self, view: str, sql: str, names: Mapping[_Name, _Name]) -> str:
        """The text with other names of relations where Spark's catalog cannot hold theirs.

        Spark's own parser says where a relation's name stands, and nothing else of the text changes.
        """
        try:
            plan = self._spark._jsparkSession.sessionState().sqlParser().parsePlan(sql)
        except PySparkException as error:
            raise _failed(view, error) from error
        for start, stop, name, aliased in sorted(_scans(plan, False), reverse=True):
            known = names.get(name, name)
            if known != name:
                alias = "" if aliased else f" AS {_quoted(name[1])}"
                new = f"{_quoted(known[0])}.{_quoted(known[1])}{alias}"
                sql = sql[:start] + new + sql[stop + 1 :]
        return sql

    def bags(
        self, wanted: Mapping[str, Sequence[int]]
    ) -> dict[str, tuple[Schema, Mapping[int, pa.Table]]]:
        """View -> its columns as Spark names and types them, and number -> its rows, not folded."""
        frames: dict[str, dict[int, DataFrame]] = {name: {} for name in wanted}
        for number in sorted({number for numbers in wanted.values() for number in numbers}):
            self._stand_at(number)
            needed = [name for name, numbers in wanted.items() if number in numbers]
            last = max(list(self._views).index(name) for name in needed)
            for name in list(self._views)[: last + 1]:
                frame = self._frame(name)
                if name in needed:
                    frames[name][number] = frame.withColumn(AT, lit(number))
        return {name: self._rows(name, found) for name, found in frames.items() if found}

    def _stand_at(self, number: int) -> None:
        """What is made of the relations from here on is what they were after `number`."""
        for known, (relation, table) in self._tables.items():
            columns = ", ".join(
                f"c{position} AS {_quoted(one.name)}"
                for position, one in enumerate(relation.schema)
                if not one.hidden
            )
            view = f"{_quoted(known[0])}.{_quoted(known[1])}"
            self._run(
                relation.name,
                f"CREATE OR REPLACE VIEW {view} AS SELECT {columns} FROM {table} "
                f"WHERE f <= {number} AND u > {number}",
            )

    def _frame(self, name: str) -> DataFrame:
        try:
            frame = self._spark.sql(self._views[name])
            frame.createOrReplaceTempView(_quoted(name))
        except PySparkException as error:
            raise _failed(name, error) from error
        return frame

    def _rows(
        self, name: str, frames: Mapping[int, DataFrame]
    ) -> tuple[Schema, Mapping[int, pa.Table]]:
        """All numbers' rows of a view, in one job."""
        fields = next(iter(frames.values())).schema.fields[:-1]
        schema = tuple(Column(one.name, one.dataType.simpleString()) for one in fields)
        try:
            found = reduce(DataFrame.unionAll, frames.values()).toArrow()
        except PySparkException as error:
            raise _failed(name, error) from error
        columns = [f"c{position}" for position in range(len(schema))]
        found = found.rename_columns([*columns, AT])
        rows = found.drop_columns([AT])
        return schema, {
            number: rows.filter(pc.equal(found.column(AT), number)) for number in frames
        }

    def _run(self, where: str, *statements: str) -> None:
        try:
            for statement in statements:
                self._spark.sql(statement)
        except PySparkException as error:
            raise _failed(where, error) from error

    def __enter__(self) -> SparkText:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()


def _of_its_own(spark: SparkSession) -> SparkSession:
    """A session of the same application whose catalog is its own too, in memory."""
    context = spark.sparkContext
    jvm = context._jvm
    assert jvm is not None
    made = jvm.org.apache.spark.sql.classic.SparkSession(context._jsc.sc(), jvm.java.util.HashMap())
    session = SparkSession(context, made)
    for key, value in _CONF.items():
        session.conf.set(key, value)
    return session


def _scans(plan: Any, aliased: bool) -> Iterator[tuple[int, int, tuple[str, str], bool]]:
    """Where names of two parts stand in a text that Spark has parsed, and whether an alias follows."""
    kind = plan.getClass().getSimpleName()
    if kind == "UnresolvedRelation" and plan.multipartIdentifier().size() == 2:
        parts, place = plan.multipartIdentifier(), plan.origin()
        name = str(parts.apply(0)), str(parts.apply(1))
        yield place.startIndex().get(), place.stopIndex().get(), name, aliased
    for below in (plan.children(), plan.innerChildren(), plan.subqueries()):
        for at in range(below.size()):
            yield from _scans(below.apply(at), kind == "SubqueryAlias")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _failed(where: str, error: PySparkException) -> FrescoError:
    said = str(error).strip().splitlines() or [type(error).__name__]
    return FrescoError(
        "VERIFY_SQL",
        f"Spark cannot run the view's text over the recorded updates: {said[0]}",
        where=where,
        todo="if views run with this text all the same, report it as a fault of Fresco",
    )
