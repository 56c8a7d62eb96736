"""Writes decoded rows as one Iceberg data file: exact field ids, null and NaN counts, bounds.

It knows nothing of tables, catalogs or cuts: rows come in as Arrow batches of a ``TableSchema`` and pass to the writer
without a loop over values. Engines answer ``min``, ``max`` and ``count`` from what is counted here.

Left out is what an engine loses rows by (docs/engines.md, "What each finds, by type"). To Iceberg's Java library uuids have
another order than to Parquet. NaN is the largest number to SQL engines, and statistics leave it out. A dictionary of floats tells
the two zeros apart, as their equality does not.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import MetricModeTypes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from connectors.iceberg.live.bounds import ColumnBounds, MetricsPlan, plan_of
from connectors.parquet_columns import NanCounts, leaf_paths
from planner.column_statistics import leaves
from planner.errors import UnsupportedType
from planner.live.tiling import WrittenPartition
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION

#: Of a row group: an engine leaves out, or reads apart, as much at once.
_GROUP_ROWS = 128 * 1024
_GROUP_BYTES = 64 * 1024 * 1024
_UUID_BYTES = 16
_SAMPLE_ROWS = 1_024
#: How often values occur in the sample, on average, for a dictionary to be worth it.
_REPEATS = 4


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One file as written. ``partitions`` are its rows by partition, as counted on the way."""

    data_file: DataFile
    rows: int
    partitions: tuple[WrittenPartition, ...]


def write_data_file(
    output: OutputFile,
    schema: Schema,
    arrow: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    properties: Mapping[str, str],
) -> WrittenFile | None:
    """Write all rows of ``batches`` to one file; without rows none is made and None returned.

    ``schema`` is the table's, ``arrow`` the same with field ids (``TableSchema.arrow``); batches have its columns in
    order, uuids as 16 bytes. ``properties`` are the table's: they choose codec and metrics. An unpartitioned file.

    Raises:
        UnsupportedType: a column's values do not fit its type in a file.
        OSError: the store refuses the file, or the disk is full. What was written of it may be left behind.
    """
    plan = plan_of(schema, properties)
    tally, nans, bounds = _Tally(), NanCounts(arrow), ColumnBounds(arrow, plan)
    writer: pq.ParquetWriter | None = None
    with contextlib.ExitStack() as stack:
        for table in _groups(batches, arrow):
            if writer is None:
                stream = stack.enter_context(output.create(overwrite=False))
                paths = leaf_paths(arrow)
                writer = pq.ParquetWriter(
                    stream,
                    arrow,
                    store_decimal_as_integer=True,
                    compression=_codec(properties),
                    use_dictionary=_repeating(table),
                    write_statistics=[
                        path for path, leaf in paths.items() if not _is_misread(leaf.type)
                    ],
                )
                stack.callback(writer.close)
            tally.add(table)
            nans.add(table)
            bounds.add(table)
            writer.write_table(table, row_group_size=_GROUP_ROWS)
        if writer is None:
            return None
        writer.close()
        footer = writer.writer.metadata
    counted = _counted(footer, [leaf.field_id for leaf in leaves(arrow)], plan)
    counted["null_value_counts"] |= bounds.nulls
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=output.location,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        file_size_in_bytes=len(output.to_input_file()),
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        record_count=footer.num_rows,
        nan_value_counts=nans.by_id,
        lower_bounds=bounds.lower,
        upper_bounds={
            number: bound
            for number, bound in bounds.upper.items()
            if not nans.by_id.get(number)
        },
        **counted,
    )
    return WrittenFile(data_file, footer.num_rows, tally.partitions)


def _counted(footer: pq.FileMetaData, ids: Sequence[int], plan: MetricsPlan) -> dict[str, Any]:
    """Return what a footer says of the leaf columns ``ids``: sizes, values, nulls, and where row groups start."""
    sizes, values, nulls = Counter[int](), Counter[int](), Counter[int]()
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for group in groups:
        for number, position in zip(ids, range(group.num_columns), strict=True):
            column = group.column(position)
            sizes[number] += column.total_compressed_size
            if plan[number].mode.type == MetricModeTypes.NONE:
                continue
            values[number] += column.num_values
            if column.is_stats_set:
                nulls[number] += column.statistics.null_count
    return {
        "column_sizes": dict(sizes),
        "value_counts": dict(values),
        "null_value_counts": dict(nulls),
        "split_offsets": sorted(_start(group.column(0)) for group in groups),
    }


def _start(column: pq.ColumnChunkMetaData) -> int:
    data: int = column.data_page_offset
    return min(data, column.dictionary_page_offset) if column.has_dictionary_page else data


def _is_misread(kind: pa.DataType) -> bool:
    return bool(kind == pa.uuid() or pa.types.is_floating(kind))


def _codec(properties: Mapping[str, str]) -> str:
    codec = properties.get("write.parquet.compression-codec", "zstd")
    return "none" if codec == "uncompressed" else codec


def _repeating(table: pa.Table) -> list[str]:
    """Name the columns whose values repeat, by the first of them: others take a third more room with a dictionary, and
    twice the time.
    """
    sample = table.slice(0, _SAMPLE_ROWS)
    names = []
    for field in table.schema:
        kind = field.type
        if pa.types.is_nested(kind) or pa.types.is_null(kind) or _is_misread(kind):
            continue
        distinct = pc.count_distinct(sample[field.name], mode="all").as_py()
        if distinct * _REPEATS <= sample.num_rows:
            names.append(field.name)
    return names


def _groups(batches: Iterable[pa.RecordBatch], arrow: pa.Schema) -> Iterator[pa.Table]:
    """Gather batches to row groups, cast to the file's types."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(_cast(batch, arrow))
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting, arrow)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting, arrow)


def _cast(batch: pa.RecordBatch, arrow: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, field in zip(batch.columns, arrow, strict=True):
        try:
            columns.append(_column(column, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise UnsupportedType(
                f"column {field.name} of type {field.type} cannot be written to a file for Iceberg engines; read the "
                f"table over Flight SQL.",
                column=field.name,
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=arrow)


def _column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if kind == pa.uuid() and not isinstance(column.type, pa.BaseExtensionType):
        storage = column.cast(pa.binary(_UUID_BYTES))
        return pa.ExtensionArray.from_storage(pa.uuid(), storage)
    return column.cast(kind)


class _Tally:
    """Rows, lowest and highest offset of each partition."""

    def __init__(self) -> None:
        self._partitions: dict[int, WrittenPartition] = {}

    def add(self, table: pa.Table) -> None:
        positions = table.select([KAFKA_PARTITION, KAFKA_OFFSET])
        counted = positions.group_by(KAFKA_PARTITION, use_threads=False).aggregate(
            [(KAFKA_OFFSET, "count"), (KAFKA_OFFSET, "min"), (KAFKA_OFFSET, "max")]
        )
        names = (
            KAFKA_PARTITION,
            *(f"{KAFKA_OFFSET}_{each}" for each in ("count", "min", "max")),
        )
        columns = (counted[name].to_pylist() for name in names)
        for at, rows, lowest, highest in zip(*columns, strict=True):
            before = self._partitions.get(at)
            if before is not None:
                rows, lowest = before.rows + rows, min(before.lowest, lowest)
                highest = max(before.highest, highest)
            self._partitions[at] = WrittenPartition(at, rows, lowest, highest)

    @property
    def partitions(self) -> tuple[WrittenPartition, ...]:
        return tuple(self._partitions[at] for at in sorted(self._partitions))
