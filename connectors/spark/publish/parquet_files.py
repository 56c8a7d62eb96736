"""Writes a task's rows as Parquet files of a table, in the task itself, and reports them.

Nothing here is committed: files without a registration are orphans, as those of Iceberg's own writer are when its process
dies. Names differ between attempts, so that one never writes what another wrote. The driver reads the footers (``append_files``).
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, LocalFileSystem

from connectors.parquet_columns import NanCounts, leaf_paths
from connectors.spark.publish.data_folder import TableFolder
from connectors.spark.publish.partitioning import (
    Key,
    Value,
    by_partition,
    partition_json,
    partition_path,
)
from planner.column_statistics import leaves
from planner.tiering.write_plan import ParquetOptions

#: Arrow rows that a task gathers before it writes them, over all partitions: the largest part becomes a row group.
_GATHERED_BYTES = 64 * 1024 * 1024
_GROUP_ROWS = 1024 * 1024
#: Rows of a file's first group by which columns are chosen that get no dictionary, and the share of different values.
_SAMPLE_ROWS = 32 * 1024
_MOSTLY_DIFFERENT = 0.9


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """A file as written, and what its footer does not say.

    ``partition`` is in Iceberg's JSON form, ``nans`` counts by field id, ``unbounded`` are ids of columns whose footer has
    no bounds for some row group although it has values.
    """

    location: str
    size_bytes: int
    rows: int
    partition: tuple[Value, ...]
    split_offsets: tuple[int, ...]
    nans: tuple[tuple[int, int], ...]
    unbounded: tuple[int, ...]


class TableFiles:
    """The files of one task. Not thread-safe; encoding runs beside the caller, in a thread of its own.

    Leaving the block by an error removes what was written, as far as that goes.
    """

    def __init__(
        self, folder: TableFolder, schema: pa.Schema, options: ParquetOptions, *, name: str
    ) -> None:
        """``schema`` has field ids. ``name`` begins those of the files."""
        self._folder = folder
        self._store = folder.connect()
        self._schema = schema
        self._options = options
        self._prefix = f"{name}-{uuid.uuid4()}"
        self._number = 0
        self._open: dict[Key, _OpenFile] = {}
        self._files: list[ParquetFile] = []
        self._paths: list[str] = []
        self._gathered_bytes = 0
        self._pool = ThreadPoolExecutor(1)
        self._running: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._pool.shutdown(wait=True)
        if kind is not None:
            for file in self._open.values():
                file.abandon()
            for path in self._paths:
                with contextlib.suppress(OSError):
                    self._store.delete_file(path)

    @property
    def longest_folder(self) -> str:
        """The longest name of a partition's folder, ``field=value``, of the files so far; empty where there is none."""
        folders = (path.removeprefix(self._folder.path).split("/")[:-1] for path in self._paths)
        return max(itertools.chain([""], *folders), key=len)

    def write(self, rows: pa.RecordBatch) -> None:
        for key, own in by_partition(rows, self._options.partitions):
            file = self._open.pop(key, None) or self._new(key)
            self._open[key] = file  # last is the one written to last
            self._gathered_bytes += file.gather(own)
            is_large = file.gathered_bytes >= self._options.group_bytes
            if is_large or file.gathered_rows >= _GROUP_ROWS:
                self._flush(key)
        if self._gathered_bytes >= _GATHERED_BYTES:
            self._flush(max(self._open, key=lambda key: self._open[key].gathered_bytes))
        # Rows that come late may be of any partition: the file written to longest ago is closed.
        while len(self._open) > self._folder.max_open_files:
            self._end(next(iter(self._open)))

    def close(self) -> tuple[ParquetFile, ...]:
        """Write what is left and close all files; return them."""
        for key in list(self._open):
            self._end(key)
        self._wait()
        return tuple(self._files)

    def _new(self, key: Key) -> _OpenFile:
        folders = partition_path(key, self._options.partitions)
        name = f"{self._prefix}-{self._number:05d}.parquet"
        self._number += 1
        names = (folders, name) if folders else (name,)
        path = "/".join((self._folder.path, *names))
        self._paths.append(path)
        return _OpenFile(
            location="/".join((self._folder.location, *names)),
            path=path,
            files=self._store,
            schema=self._schema,
            options=self._options,
            partition=tuple(partition_json(key, self._options.partitions)),
        )

    def _flush(self, key: Key) -> None:
        """Have what a partition gathered written; in a new file if its own has its size."""
        file = self._open[key]
        rows = self._rows_of(file)
        self._wait()
        if file.size_bytes >= self._options.target_file_bytes:
            self._submit(self._close, file)
            file = self._open[key] = self._new(key)
        self._submit(file.write, rows)

    def _end(self, key: Key) -> None:
        file = self._open.pop(key)
        rows = self._rows_of(file)
        self._wait()
        if rows.num_rows:
            self._submit(file.write, rows)
        self._submit(self._close, file)

    def _close(self, file: _OpenFile) -> None:
        self._files.append(file.close())

    def _rows_of(self, file: _OpenFile) -> pa.Table:
        self._gathered_bytes -= file.gathered_bytes
        return file.take()

    def _submit(self, work: Callable[..., None], *arguments: object) -> None:
        self._running.append(self._pool.submit(work, *arguments))

    def _wait(self) -> None:
        """Wait for what is being encoded, and raise what it raised."""
        running, self._running = self._running, []
        for work in running:
            work.result()


@dataclass(eq=False)
class _OpenFile:
    """A file that is gathered (the task's thread) and written (the pool's), a row group at a time."""

    location: str
    path: str
    files: FileSystem
    schema: pa.Schema
    options: ParquetOptions
    partition: tuple[Value, ...]
    #: Written so far, footer not included.
    size_bytes: int = 0
    gathered_bytes: int = 0
    gathered_rows: int = 0
    _gathered: list[pa.RecordBatch] = field(default_factory=list)
    _stream: Any = None
    _writer: Any = None
    _nans: NanCounts = field(init=False)

    def __post_init__(self) -> None:
        self._nans = NanCounts(self.schema)

    def gather(self, rows: pa.RecordBatch) -> int:
        """Keep rows for the next group; return their bytes."""
        size: int = rows.nbytes
        self._gathered.append(rows)
        self.gathered_bytes += size
        self.gathered_rows += rows.num_rows
        return size

    def take(self) -> pa.Table:
        rows = pa.Table.from_batches(self._gathered, self.schema)
        self._gathered, self.gathered_bytes, self.gathered_rows = [], 0, 0
        return rows

    def write(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._begin(rows)
        self._nans.add(rows)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self.size_bytes = self._stream.tell()

    def _begin(self, rows: pa.Table) -> pq.ParquetWriter:
        parent = self.path.rpartition("/")[0]
        if isinstance(self.files, LocalFileSystem):
            self.files.create_dir(parent, recursive=True)
        self._stream = self.files.open_output_stream(self.path)
        without = self.options.without_statistics
        paths = leaf_paths(self.schema).items()
        statistics = [path for path, leaf in paths if leaf.field_id not in without]
        return pq.ParquetWriter(
            self._stream,
            self.schema,
            compression=self.options.codec,
            compression_level=self.options.level,
            data_page_size=self.options.page_bytes,
            max_rows_per_page=self.options.page_rows,
            dictionary_pagesize_limit=self.options.dictionary_bytes,
            use_dictionary=dictionary_columns(rows),
            write_statistics=statistics,
            store_decimal_as_integer=True,
            store_schema=False,
            # As Iceberg writes it; it costs nothing that can be measured.
            write_page_index=True,
        )

    def close(self) -> ParquetFile:
        """Write the footer, after at least one group."""
        self._writer.close()
        self.size_bytes = self._stream.tell()
        self._stream.close()
        footer = self._writer.writer.metadata
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        unbounded = {
            leaf.field_id
            for column, leaf in enumerate(leaves(self.schema))
            if not all(_has_bounds(group.column(column)) for group in groups)
        }
        return ParquetFile(
            self.location,
            self.size_bytes,
            footer.num_rows,
            self.partition,
            split_offsets=tuple(map(_start, groups)),
            nans=tuple(sorted(self._nans.by_id.items())),
            unbounded=tuple(sorted(unbounded)),
        )

    def abandon(self) -> None:
        """Close what is open; the file is to be removed."""
        for each in (self._writer, self._stream):
            if each is not None:
                with contextlib.suppress(OSError, pa.ArrowException):
                    each.close()


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Return the paths of the columns to write with a dictionary: not those whose values are nearly all different.

    Parquet's writer would build one up to its limit and then go on without: a third of the time, and larger files.
    """
    sample = rows.slice(0, _SAMPLE_ROWS)
    without = set()
    for field_, column in zip(sample.schema, sample.columns, strict=True):
        if pa.types.is_nested(field_.type) or isinstance(field_.type, pa.BaseExtensionType):
            continue
        if pc.count_distinct(column, mode="all").as_py() > _MOSTLY_DIFFERENT * len(column):
            without.add(field_.name)
    return [path for path in leaf_paths(rows.schema) if path not in without]


def _start(group: pq.RowGroupMetaData) -> int:
    first = group.column(0)
    starts: list[int | None] = [first.data_page_offset, first.dictionary_page_offset]
    return min(start for start in starts if start is not None)


def _has_bounds(column: pq.ColumnChunkMetaData) -> bool:
    """Whether the footer says what lies in a column chunk. Arrow leaves out bounds of 4 KiB or more."""
    statistics = column.statistics
    if statistics is None:
        return False
    return bool(statistics.has_min_max or statistics.null_count == column.num_values)
