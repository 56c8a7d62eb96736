"""The tail of a cut for Spark: decoded once, then kept, so that no action asks the log again.

A small tail is read and decoded in this process, or comes from a server that has it decoded; a large one is read by
executors with the tierer's own reader. Where this machine's disk is the executors' too, it is kept as Parquet that Spark
reads natively, which scans in a third of the time of a local relation; else in Spark, or in a place of the user's.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from connectors.registry.shipping import SchemaShipping
from connectors.spark.errors import java_errors
from connectors.spark.publish.splits import RangeReader, TableLog, map_in_arrow
from connectors.spark.remote.load import ServedTails
from connectors.spark.types import floating_fields, projected, struct_type
from planner.errors import BadConfig, LimitExceeded, SchemasNeeded, StalePlan, Unavailable
from planner.ports import Log
from planner.reading.shares import split_ranges
from planner.seam.cut import TableCut

#: A tail up to this size is fetched by the driver, which takes less time than starting tasks.
TAIL_LOCAL_BYTES = 64 << 20
#: Rows of one file: a file is one task.
_FILE_ROWS = 250_000
#: What a task of an executor reads: some seconds' work.
_SPLIT_OFFSETS = 500_000


@dataclass(frozen=True)
class TailKeeper:
    """Decodes the tails of cuts and keeps them. Thread-safe.

    ``open_log`` is pickled and called on executors. ``folder`` is this process's own; None: executors are on other
    machines. ``location`` is a place that all of them write to and read from, if there is one. ``served``: small tails come
    from a server, where it has them.
    """

    session: SparkSession
    log: Log
    open_log: Callable[[], AbstractContextManager[Log]]
    schemas: SchemaShipping
    folder: Path | None
    location: str | None = None
    local_bytes: int = TAIL_LOCAL_BYTES
    served: ServedTails | None = None

    def decode(self, cut: TableCut) -> DataFrame:
        """Read the tail of a cut now, to its end; return its rows, which stay the same.

        Raises:
            FederationError: as ``planner.ports.Log.fetch`` and the decoder.
        """
        schema = struct_type(cut.cold.schema)
        if not cut.new_hot:
            return self.session.createDataFrame([], schema)
        while True:
            try:
                with java_errors(cut.table):
                    return self._decoded(cut, schema)
            except SchemasNeeded as error:
                # Of other subjects, or registered since: asked for once, and then known.
                ids = [int(each) for each in str(error.facts["ids"]).split()]
                assert cut.binding is not None  # noqa: S101 - it has a log
                self.schemas.decoders.ask(str(cut.table), cut.binding, ids)

    def _decoded(self, cut: TableCut, schema: StructType) -> DataFrame:
        batches = self._fetched(cut)
        if batches is None:
            return self._by_executors(cut, schema)
        if self.folder is None:
            rows: Any = pa.Table.from_batches(batches) if batches else []
            return self.session.createDataFrame(rows, schema)
        return self._opened(_written(batches, self.folder / str(uuid.uuid4())), schema)

    def _table_log(self, cut: TableCut) -> TableLog:
        assert cut.binding is not None  # noqa: S101 - it has a log
        return TableLog.of(cut, self.schemas.of_tail(cut.table, cut.binding))

    def _fetched(self, cut: TableCut) -> list[pa.RecordBatch] | None:
        """Return the decoded tail, or None once it shows that it is larger than ``local_bytes``."""
        if self.served is not None:
            # The log has the same rows, so what is amiss at the server costs time alone.
            with contextlib.suppress(Unavailable, StalePlan, LimitExceeded):
                rows = self.served.rows(cut)
                if rows is not None:
                    return self._small(rows)
        return self._small(self._of_log(cut))

    def _of_log(self, cut: TableCut) -> Generator[pa.RecordBatch, None, None]:
        below = {} if cut.watermark is None else cut.watermark.epochs.as_dict()
        new = {span.partition for span in cut.new_hot}
        epochs = {at: epoch for at, epoch in below.items() if at in new}
        reader = RangeReader(self._table_log(cut), self.open_log)
        return reader.rows(self.log, cut.new_hot, epochs)

    def _small(
        self, rows: Generator[pa.RecordBatch, None, None]
    ) -> list[pa.RecordBatch] | None:
        batches: list[pa.RecordBatch] = []
        size = 0
        with contextlib.closing(rows):
            for batch in rows:
                batches.append(batch)
                size += batch.nbytes
                if size > self.local_bytes:
                    return None
        return batches

    def _by_executors(self, cut: TableCut, schema: StructType) -> DataFrame:
        tasks = split_ranges(cut.new_hot, _SPLIT_OFFSETS)
        indexes = self.session.range(0, len(tasks), 1, len(tasks))
        reader = RangeReader(self._table_log(cut), self.open_log, tasks)
        rows = map_in_arrow(indexes, reader, schema)
        folder = self.location if self.folder is None else str(self.folder)
        if folder is not None:
            folder = f"{folder.rstrip('/')}/{uuid.uuid4()}"
            rows.write.parquet(folder)
            rows = self._opened([folder], schema)
        else:
            # An executor that is lost takes its part along; that is read again, up to the same end.
            rows = rows.persist(StorageLevel.DISK_ONLY)
            rows.count()
        return _compared_as_spark_does(rows, cut)

    def _opened(self, files: Sequence[str], schema: StructType) -> DataFrame:
        if not files:
            return self.session.createDataFrame([], schema)
        # With its schema: Spark starts no job to find out.
        return self.session.read.schema(schema).parquet(*files)


def _compared_as_spark_does(rows: DataFrame, cut: TableCut) -> DataFrame:
    """Keep conditions on floating columns from the statistics and dictionaries of what Spark wrote: see ``_written``."""
    schema = cut.cold.schema
    return rows.select(*projected(schema, schema, floating_fields(schema)))


def _written(batches: Sequence[pa.RecordBatch], folder: Path) -> list[str]:
    """Write Parquet files without statistics or dictionaries of values; return their paths.

    Bounds in Parquet leave NaN out, which is Spark's largest number, and tell -0.0 from 0.0, which are equal to Spark:
    row groups with such rows would be left out. The rows are read whole anyway.
    """
    files: list[str] = []
    try:
        folder.mkdir(mode=0o700)
        for group in _groups(batches):
            file = str(folder / f"part-{len(files)}.parquet")
            table = pa.Table.from_batches(group)
            pq.write_table(
                table, file, compression="zstd", use_dictionary=False, write_statistics=False
            )
            files.append(file)
    except OSError as error:
        raise BadConfig(
            f"the temporary folder does not take the tail ({error.strerror}); free its disk, or set TMPDIR."
        ) from error
    return files


def _groups(batches: Sequence[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield batches in groups of at most about ``_FILE_ROWS`` rows."""
    ends = list(itertools.accumulate(batch.num_rows for batch in batches))
    for _, group in itertools.groupby(
        zip(ends, batches, strict=True), lambda each: each[0] // _FILE_ROWS
    ):
        yield [batch for _, batch in group]
