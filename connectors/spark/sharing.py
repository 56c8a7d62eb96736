"""Shares the rows of a cut out to tasks: cold ones by data file, hot ones by offsets."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from connectors.iceberg.store import IcebergStore
from connectors.spark.shares import ColdShare, HotShare
from connectors.spark.splits import share_out
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange, cut_up
from planner.ports import SqlRelation
from planner.reading.filters import (
    EVERYTHING,
    Condition,
    ScanFilter,
    needed_ranges,
    rows_within,
)
from planner.schema import Column, TableSchema
from planner.seam.cut import TableCut
from planner.spark_conditions import SparkCondition, both, duckdb_sql, files_filter
from planner.sql_text import identifier

SIDES = ("cold", "tail")
#: Tasks of the cold side of one read at most, and of the hot side.
MAX_SHARES = 200
#: What one task reads of a log.
SHARE_OFFSETS = 250_000
#: More ranges are compared with files by their outermost bounds.
_MAX_ALTERNATIVES = 100


def shares(
    store: IcebergStore,
    cut: TableCut,
    columns: Sequence[Column],
    sides: Collection[str] = SIDES,
    *,
    whole_cold: bool,
    condition: SparkCondition | None = None,
) -> list[InputPartition]:
    """Share out the rows of a cut, which an increment may narrow; ``columns`` are those that are read, by field id.

    ``whole_cold``: with cold rows that came from no record, where the cut has them. ``condition``: other rows may be left
    out, as far as that takes no reading.

    Raises:
        FederationError: as ``IcebergStore.scan``.
    """
    cold = (
        _cold(store, cut, columns, condition, whole_cold=whole_cold) if "cold" in sides else []
    )
    return [*cold, *(_hot(cut, condition) if "tail" in sides else [])]


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
    cut: TableCut,
    columns: Sequence[Column],
    condition: SparkCondition | None,
    *,
    whole_cold: bool,
) -> list[InputPartition]:
    ids = {column.field_id for column in columns}
    schema = cut.cold.schema
    names = {column.name for column in schema.columns if column.field_id in ids}
    rows = _rows(condition)
    if whole_cold and cut.is_cold_whole:
        # One column at least: rows without any could not be counted.
        names = names or {schema.columns[0].name}
        relations, _ = store.shares(cut.cold, rows, names, MAX_SHARES)
        return [_share(cut, relation, names, None, condition) for relation in relations]
    ranges = needed_ranges(cut.new_cold, rows)
    if not ranges:
        return []
    names |= {KAFKA_PARTITION, KAFKA_OFFSET}
    relations, are_files = store.shares(
        cut.cold, both(offsets_filter(schema, ranges), rows), names, MAX_SHARES
    )
    if are_files:
        return [_share(cut, relation, names, ranges, condition) for relation in relations]
    # The engine's own scan reads the whole table: each task a part of the offsets.
    splits = [split for span in ranges for split in cut_up(span, SHARE_OFFSETS)]
    return [
        _share(cut, relation, names, task, condition)
        for relation in relations
        for task in share_out(splits, MAX_SHARES)
    ]


def _rows(condition: SparkCondition | None) -> ScanFilter:
    return EVERYTHING if condition is None else files_filter(condition)


def _share(
    cut: TableCut,
    relation: SqlRelation,
    names: Collection[str],
    ranges: Sequence[OffsetRange] | None,
    condition: SparkCondition | None,
) -> ColdShare:
    rows = relation.sql if ranges is None else rows_within(relation.sql, ranges)
    listed = ", ".join(identifier(name) for name in cut.cold.schema.names if name in names)
    where = "" if condition is None else f" WHERE {duckdb_sql(condition)}"
    # The engine's own scan has all columns.
    return ColdShare(
        str(cut.table),
        f"SELECT {listed} FROM ({rows}){where}",  # noqa: S608 - quoted
        cut.cold.schema,
    )


def _hot(cut: TableCut, condition: SparkCondition | None) -> list[InputPartition]:
    if cut.hot is None or cut.binding is None:
        return []
    ranges = needed_ranges(cut.new_hot, _rows(condition))
    splits = [split for span in ranges for split in cut_up(span, SHARE_OFFSETS)]
    return [
        HotShare(
            str(cut.table),
            cut.cold.schema,
            cut.binding,
            cut.hot.topic,
            cut.hot.topic_id,
            task,
        )
        for task in share_out(splits, MAX_SHARES)
    ]
