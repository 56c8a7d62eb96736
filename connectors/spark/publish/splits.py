"""An executor's share of a plan: reads splits of the log, decodes them, hands over Arrow.

``mapInArrow`` without its demand that pandas be installed, which nothing of ours uses.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from connectors import failpoints
from connectors.spark.columns import to_spark
from connectors.spark.errors import pack, too_long
from connectors.spark.publish.data_folder import TableFolder
from connectors.spark.publish.parquet_files import ParquetFile, TableFiles
from connectors.store.errors import cause
from planner.errors import BadBinding, ColdStoreUnavailable, FederationError
from planner.names import KAFKA_VALUE, TableName
from planner.offsets import NO_EPOCHS, OffsetRange
from planner.ports import Decoder, Log, TopicSource
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes
from planner.tiering.write_plan import ParquetOptions

#: The splits of one task: one or many small ones.
Task = tuple[OffsetRange, ...]


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a task did: ``rows`` handed over, or written to ``files``; ``log_bytes`` of the values it read."""

    outcomes: Outcomes
    rows: int
    log_bytes: int
    files: tuple[ParquetFile, ...] = ()


#: By (run, index of the task).
TaskReports = dict[tuple[str, int], TaskReport]


class TaskReportsParam(AccumulatorParam[TaskReports]):
    """Collects reports by task.

    A task that runs twice (a retry, a speculative copy, a lost shuffle file) reports the same numbers under the
    same key, so counts stay exact where a sum would not.
    """

    def zero(self, value: TaskReports) -> TaskReports:  # noqa: ARG002 - pyspark's signature
        return {}

    def addInPlace(self, value1: TaskReports, value2: TaskReports) -> TaskReports:
        value1.update(value2)
        return value1


@dataclass(frozen=True)
class SplitReader:
    """The function ``mapInArrow`` runs. Its input rows are indexes of ``tasks``; pickled to executors."""

    run: str
    tasks: tuple[Task, ...]
    schema: TableSchema
    binding: Binding
    topic_id: str
    open_log: Callable[[], AbstractContextManager[Log]]
    open_decoder: Callable[[TableSchema, Binding], Decoder]
    reports: Any
    timeout_s: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            with self.open_log() as log:
                decoder = self.open_decoder(self.schema, self.binding)
                for batch in batches:
                    for index in batch.column(0).to_pylist():
                        yield from self._read(log, decoder, index)
        except FederationError as error:
            raise pack(error) from error

    def _read(self, log: Log, decoder: Decoder, index: int) -> Iterator[pa.RecordBatch]:
        outcomes, rows, log_bytes = Outcomes(), 0, 0
        source = TopicSource.of(decoder, self.binding.address, self.topic_id)
        for raw in log.fetch(source, self.tasks[index], timeout_s=self.timeout_s):
            log_bytes += raw.column(KAFKA_VALUE).nbytes
            decoded = decoder.decode(raw)
            outcomes += decoded.outcomes
            rows += decoded.rows.num_rows
            yield to_spark(decoded.rows)
        failpoints.reach("after_fetch")
        self.reports.add({(self.run, index): TaskReport(outcomes, rows, log_bytes)})


@dataclass(frozen=True)
class SplitWriter:
    """Reads splits as ``reader`` does and writes their rows to files in the task itself: it hands over none.

    The function ``mapInArrow`` runs, as ``SplitReader``.
    """

    reader: SplitReader
    table: TableName
    folder: TableFolder
    options: ParquetOptions

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            with self.reader.open_log() as log:
                for batch in batches:
                    for index in batch.column(0).to_pylist():
                        self._write(log, index)
        except FederationError as error:
            raise pack(error) from error
        yield from ()

    def _write(self, log: Log, index: int) -> None:
        reader, outcomes, rows, log_bytes = self.reader, Outcomes(), 0, 0
        decoder = reader.open_decoder(reader.schema, reader.binding)
        source = TopicSource.of(decoder, reader.binding.address, reader.topic_id)
        name = f"{index:05d}-{reader.run}"
        with TableFiles(self.folder, reader.schema.arrow, self.options, name=name) as files:
            for raw in log.fetch(source, reader.tasks[index], timeout_s=reader.timeout_s):
                log_bytes += raw.column(KAFKA_VALUE).nbytes
                decoded = decoder.decode(raw)
                outcomes += decoded.outcomes
                rows += decoded.rows.num_rows
                with _store_errors(self.table, files):
                    files.write(decoded.rows)
            failpoints.reach("after_fetch")
            with _store_errors(self.table, files):
                written = files.close()
        reader.reports.add(
            {(reader.run, index): TaskReport(outcomes, rows, log_bytes, written)}
        )


@contextlib.contextmanager
def _store_errors(table: TableName, files: TableFiles) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            sentence = too_long(files.longest_folder)
            raise BadBinding(f"{table}: {sentence}", table=str(table)) from error
        reason = cause(error) or "try again"
        raise ColdStoreUnavailable(
            f"{table}: a data file could not be written: {reason}.", table=str(table)
        ) from error


@dataclass(frozen=True)
class RangeReader:
    """Reads ranges of a table's log and decodes them: what a tail needs and a tierer does, without its reports.

    The function ``mapInArrow`` runs: its input rows are indexes of ``tasks``. Pickled to executors. ``topic`` is an
    address (``planner.names``).
    """

    tasks: tuple[Task, ...]
    schema: TableSchema
    binding: Binding
    topic: str
    topic_id: str
    open_log: Callable[[], AbstractContextManager[Log]]
    open_decoder: Callable[[TableSchema, Binding], Decoder]
    timeout_s: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            with self.opened() as log:
                for batch in batches:
                    for index in batch.column(0).to_pylist():
                        yield from self.rows(log, self.tasks[index])
        except FederationError as error:
            raise pack(error) from error

    @contextlib.contextmanager
    def opened(self) -> Iterator[Log]:
        """Open the log. Fails at once where this machine reaches no broker, not when the time to read is over.

        Raises:
            LogUnavailable, UnknownTopic: as ``planner.ports.Log.measure``.
        """
        with self.open_log() as log:
            log.measure([self.topic])
            yield log

    def rows(
        self, log: Log, ranges: Task, epochs: Mapping[int, int] = NO_EPOCHS
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of ``ranges`` as Spark holds them; ``epochs`` as ``planner.ports.Log.fetch``."""
        decoder = self.open_decoder(self.schema, self.binding)
        source = TopicSource.of(decoder, self.topic, self.topic_id)
        with contextlib.closing(
            log.fetch(source, ranges, timeout_s=self.timeout_s, epochs=epochs)
        ) as records:
            for raw in records:
                yield to_spark(decoder.decode(raw).rows)


ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: StructType) -> DataFrame:
    """Run ``function`` over the column ``id`` of ``rows``, on executors."""
    if not hasattr(rows, "_jdf"):
        return rows.mapInArrow(
            function, schema
        )  # Spark Connect, whose client needs pandas anyway
    # pyspark 4.1, sql/pandas/map_ops.py.
    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    column = UserDefinedFunction(function, schema, evalType=kind)(rows["id"])
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)
