"""Shares of what is read of a table (``planner.reading.plan``), for tasks: cold rows by data file, hot ones by offsets.

A task reads cold rows through DuckDB and hot ones from the log. What it needs is in its share and its ``TaskReader``: it
asks no catalog.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connectors import duckdb_extensions as extensions
from connectors.iceberg.store import IcebergStore
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.shipping import SchemaShipping
from connectors.spark.columns import converted, spark_type
from connectors.spark.errors import packing
from connectors.spark.filter_option import RowFilter, row_errors
from connectors.spark.publish.splits import RangeReader, TableLog, Task
from planner.errors import ColdStoreUnavailable, SnapshotExpired, StalePlan
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, OFFSET_COLUMNS
from planner.offsets import OffsetRange
from planner.ports import SqlRelation
from planner.reading.filters import Condition, ScanFilter
from planner.reading.plan import ColdMode, TableRead
from planner.reading.shares import split_ranges
from planner.schema import Column, TableSchema, project
from planner.seam.cut import TableCut
from planner.sql_text import identifier
from planner.statement.conditions import both

#: Rows of one Arrow batch from DuckDB.
_BATCH_ROWS = 65_536

#: A task has one core, and streams: it needs little memory. Nothing is downloaded.
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "memory_limit": "1GB",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
}


@dataclass
class ColdShare(InputPartition):
    """``sql`` is DuckDB's, and names files or a metadata file; its columns have the names of ``schema``."""

    table: str
    sql: str
    schema: TableSchema


@dataclass
class HotShare(InputPartition):
    log: TableLog
    ranges: Task


@dataclass(frozen=True)
class TaskReader:
    """Reads shares on executors, in the columns of ``schema`` by field id. Pickled to them.

    ``secrets`` are DuckDB's, for object stores; ``clusters`` librdkafka's properties by name. ``condition``: no other rows.
    Those of a ``ColdShare`` meet it already.
    """

    schema: TableSchema
    clusters: Mapping[str, Mapping[str, str]]
    secrets: tuple[str, ...]
    condition: RowFilter | None = None

    def read(self, share: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a share; of nothing, nothing.

        Raises:
            RuntimeError: with an error of ``planner.errors`` in its text (``connectors.spark.errors.unpack``).
        """
        if share is None:
            return
        with packing():
            if isinstance(share, ColdShare):
                table, schema, batches = share.table, share.schema, self._cold(share)
            else:
                table, schema, batches = share.log.table, share.log.schema, self._hot(share)
            for batch in batches:
                yield in_columns(table, batch, schema, self.schema)

    def _hot(self, share: HotShare) -> Iterator[pa.RecordBatch]:
        reader = RangeReader(share.log, functools.partial(KafkaClusters, self.clusters))
        with reader.opened() as log:
            for batch in reader.rows(log, share.ranges):
                if self.condition is None:
                    yield batch
                    continue
                with engine(self.secrets).cursor() as cursor:
                    yield self.condition.apply(cursor, share.log.table, batch)

    def _cold(self, share: ColdShare) -> Iterator[pa.RecordBatch]:
        with (
            cold_errors(share.table),
            row_errors(share.table, self.condition),
            engine(self.secrets).cursor() as cursor,
        ):
            yield from cursor.execute(share.sql).to_arrow_reader(_BATCH_ROWS)


def in_columns(
    table: str, batch: pa.RecordBatch, own: TableSchema, schema: TableSchema
) -> pa.RecordBatch:
    """Return the columns of ``schema``, as Spark holds them, out of rows with those of ``own``.

    Raises:
        StalePlan: a column has a type now that its old one does not hold.
    """
    names = set(batch.schema.names)
    columns, fields = [], []
    for each in project(schema, own):
        kind = spark_type(each.column.type)
        source = each.source
        if source is None or source.name not in names:
            column = pa.nulls(batch.num_rows, kind)
        else:
            column = batch.column(source.name)
            try:
                column = converted(column, source.type, each.column.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                raise StalePlan(
                    f"{table}: column {each.column.name} has another type since the query was started; start it again.",
                    table=table,
                    column=each.column.name,
                ) from error
        columns.append(column)
        fields.append(pa.field(each.column.name, kind))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


@functools.cache
def engine(secrets: tuple[str, ...]) -> duckdb.DuckDBPyConnection:
    """Return this process's DuckDB, opened once: extensions take longer to load than most shares to read."""
    connection = duckdb.connect(":memory:", config=_SETTINGS)
    extensions.load(connection, extensions.LOCAL)
    if secrets:
        extensions.load(connection, extensions.REMOTE)
        connection.execute("SET GLOBAL enable_http_metadata_cache = true")
    for secret in secrets:
        connection.execute(secret)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


@contextlib.contextmanager
def cold_errors(table: str) -> Iterator[None]:
    """Translate what DuckDB raises about a table's files; its words hold paths."""
    try:
        yield
    except duckdb.Error as error:
        if any(words in str(error) for words in ("No such file", "404", "No files found")):
            raise SnapshotExpired(
                f"{table}: a data file of the snapshot is gone; it has expired. Start the query again.",
                table=table,
            ) from error
        raise ColdStoreUnavailable(
            f"{table}: a data file could not be read; try again.", table=table
        ) from error


#: Tasks of the cold side of one read at most, and of the hot side.
MAX_SHARES = 200
#: What one task reads of a log.
SHARE_OFFSETS = 250_000
#: More ranges are compared with files by their outermost bounds.
_MAX_ALTERNATIVES = 100


def shares(
    store: IcebergStore,
    read: TableRead,
    columns: Sequence[Column],
    schemas: SchemaShipping,
    condition: RowFilter | None = None,
) -> list[InputPartition]:
    """Share out what is read of a table; ``columns`` are those that are read, by field id.

    Rows for which ``condition`` does not hold may be left out. ``schemas`` are those of writers.

    Raises:
        FederationError: as ``IcebergStore.scan`` and ``SchemaShipping.of_tail``.
    """
    return [*_cold(store, read, columns, condition), *_hot(read, schemas)]


def offsets_filter(schema: TableSchema, ranges: Sequence[OffsetRange]) -> ScanFilter:
    """Say by statistics of files which can have rows of ``ranges``."""
    types = {column.name: column.type for column in schema.columns}

    def between(name: str, low: int, high: int) -> Condition:
        kind = types[name]
        return Condition(name, "between", (pa.scalar(low, kind), pa.scalar(high, kind)))

    if len(ranges) > _MAX_ALTERNATIVES:
        low = min(span.start for span in ranges)
        return ((between(KAFKA_OFFSET, low, max(span.stop for span in ranges) - 1),),)
    return tuple(
        (
            between(KAFKA_PARTITION, span.partition, span.partition),
            between(KAFKA_OFFSET, span.start, span.stop - 1),
        )
        for span in ranges
    )


def _cold(
    store: IcebergStore,
    read: TableRead,
    columns: Sequence[Column],
    condition: RowFilter | None,
) -> list[InputPartition]:
    if not read.scans_cold:
        return []
    cut, ids = read.cut, {column.field_id for column in columns}
    schema, ranges = cut.cold.schema, read.cold_ranges
    names = {column.name for column in schema.columns if column.field_id in ids}
    if condition is not None:
        names |= condition.names
    if read.cold is ColdMode.WHOLE:
        # One column at least: rows without any could not be counted.
        names, rows = names or {schema.columns[0].name}, read.rows
    else:
        names, rows = names | OFFSET_COLUMNS, both(offsets_filter(schema, ranges), read.rows)
    relations, are_files = store.shares(cut.cold, rows, names, MAX_SHARES)
    # The engine's own scan reads the whole table: each task a part of the offsets.
    tasks = [ranges] if are_files else split_ranges(ranges, SHARE_OFFSETS, MAX_SHARES)
    return [
        _share(cut, relation, names, task, condition)
        for relation in relations
        for task in tasks or [ranges]
    ]


def _share(
    cut: TableCut,
    relation: SqlRelation,
    names: Collection[str],
    ranges: Sequence[OffsetRange],
    condition: RowFilter | None,
) -> ColdShare:
    rows = relation.within(ranges).sql if ranges else relation.sql
    columns = [column for column in cut.cold.schema.columns if column.name in names]
    if condition is None:
        # The engine's own scan has all columns.
        listed = ", ".join(identifier(column.name) for column in columns)
        sql = f"SELECT {listed} FROM ({rows})"  # noqa: S608 - quoted
    else:
        sql = condition.rows_of(rows, columns)
    return ColdShare(str(cut.table), sql, cut.cold.schema)


def _hot(read: TableRead, schemas: SchemaShipping) -> list[InputPartition]:
    tasks = split_ranges(read.tail, SHARE_OFFSETS, MAX_SHARES)
    if read.cut.hot is None or read.cut.binding is None or not tasks:
        return []
    log = TableLog.of(read.cut, schemas.of_tail(read.cut.table, read.cut.binding))
    return [HotShare(log, task) for task in tasks]
