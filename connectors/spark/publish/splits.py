"""An executor's share of a plan: reads splits of the log, decodes them, hands over Arrow.

``mapInArrow`` without its demand that pandas be installed, which nothing of ours uses.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from connectors import failpoints
from connectors.registry.decoders import Answers, Decoders
from connectors.spark.columns import to_spark
from connectors.spark.errors import packing, too_long
from connectors.spark.publish.data_folder import TableFolder
from connectors.spark.publish.parquet_files import ParquetFile, TableFiles
from connectors.store.errors import cause
from planner.errors import BadBinding, ColdStoreUnavailable
from planner.names import KAFKA_VALUE, TableName
from planner.offsets import NO_EPOCHS, OffsetRange
from planner.ports import Decoder, Log, TopicSource
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.cut import TableCut
from planner.seam.watermark import Outcomes
from planner.tiering.write_plan import ParquetOptions

#: The splits of one task: one or many small ones.
Task = tuple[OffsetRange, ...]
#: How long one read of a log may take.
FETCH_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What tasks did: ``rows`` handed over, or written to ``files``; ``log_bytes`` of the values they read.

    ``needs``: ids of schemas that they were not given. With some, nothing of theirs is published.
    """

    outcomes: Outcomes = field(default_factory=Outcomes)
    rows: int = 0
    log_bytes: int = 0
    files: tuple[ParquetFile, ...] = ()
    needs: frozenset[int] = frozenset()

    def __add__(self, other: TaskReport) -> TaskReport:
        return TaskReport(
            self.outcomes + other.outcomes,
            self.rows + other.rows,
            self.log_bytes + other.log_bytes,
            self.files + other.files,
            self.needs | other.needs,
        )


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


def _of_indexes(
    open_log: Callable[[], AbstractContextManager[Log]],
    read: Callable[[Log, int], Iterator[pa.RecordBatch]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield what ``read`` yields for the indexes that are the first column of ``batches``; pack errors of ours."""
    with packing(), open_log() as log:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from read(log, index)


@dataclass(frozen=True)
class SplitReader:
    """The function ``mapInArrow`` runs. Its input rows are indexes of ``tasks``; pickled to executors.

    A task whose decoder needs schemas that it was not given hands over no more rows, and reports their ids.
    """

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
        return _of_indexes(self.open_log, self._read, batches)

    def _read(self, log: Log, index: int) -> Iterator[pa.RecordBatch]:
        total = TaskReport()
        for rows, report in self.decoded(log, index):
            total += report
            if not total.needs:
                yield to_spark(rows)
        self.report(index, total)

    def decoded(self, log: Log, index: int) -> Iterator[tuple[pa.RecordBatch, TaskReport]]:
        """Yield the rows of a task, and what is to be reported of them."""
        decoder = self.open_decoder(self.schema, self.binding)
        source = TopicSource.of(decoder, self.binding.address, self.topic_id)
        for raw in log.fetch(source, self.tasks[index], timeout_s=self.timeout_s):
            read = decoder.decode(raw)
            size = raw.column(KAFKA_VALUE).nbytes
            yield (
                read.rows,
                TaskReport(read.outcomes, read.rows.num_rows, size, needs=read.needs),
            )
        failpoints.reach("after_fetch")

    def report(self, index: int, report: TaskReport) -> None:
        self.reports.add({(self.run, index): report})


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
        return _of_indexes(self.reader.open_log, self._write, batches)

    def _write(self, log: Log, index: int) -> Iterator[pa.RecordBatch]:
        total, schema = TaskReport(), self.reader.schema.arrow
        name = f"{index:05d}-{self.reader.run}"
        steps = self.reader.decoded(log, index)
        # Once it needs a schema it reads on for the ids of others, and what it wrote is removed.
        with (
            contextlib.suppress(_SchemasNeeded),
            TableFiles(self.folder, schema, self.options, name=name) as files,
        ):
            for rows, report in steps:
                total += report
                if total.needs:
                    raise _SchemasNeeded
                with _store_errors(self.table, files):
                    files.write(rows)
            with _store_errors(self.table, files):
                total += TaskReport(files=files.close())
        for _, report in steps:
            total += report
        self.reader.report(index, total)
        yield from ()


class _SchemasNeeded(Exception):
    """A task was not given the schema of a record."""


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
class TableLog:
    """What is read of a table's log, and as what it is decoded. ``topic`` is an address (``planner.names``).

    ``answers``: what a registry said of its writers' schemas.
    """

    table: str
    schema: TableSchema
    binding: Binding
    topic: str
    topic_id: str
    answers: Answers = field(default_factory=dict)

    @classmethod
    def of(cls, cut: TableCut, answers: Answers) -> TableLog:
        """Return the log of a bound table. ``answers`` are the schemas of its writers."""
        assert cut.hot is not None and cut.binding is not None  # noqa: S101, PT018
        hot = cut.hot
        schema, binding = cut.cold.schema, cut.binding
        return cls(str(cut.table), schema, binding, hot.topic, hot.topic_id, answers)


@dataclass(frozen=True)
class RangeReader:
    """Reads ranges of a table's log and decodes them: what a tail needs and a tierer does, without its reports.

    The function ``mapInArrow`` runs: its input rows are indexes of ``tasks``. Pickled to executors.
    """

    of: TableLog
    open_log: Callable[[], AbstractContextManager[Log]]
    tasks: tuple[Task, ...] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _of_indexes(self.opened, lambda log, at: self.rows(log, self.tasks[at]), batches)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Log]:
        """Open the log. Fails at once where this machine reaches no broker, not when the time to read is over.

        Raises:
            LogUnavailable, UnknownTopic: as ``planner.ports.Log.measure``.
        """
        with self.open_log() as log:
            log.measure([self.of.topic])
            yield log

    def rows(
        self, log: Log, ranges: Task, epochs: Mapping[int, int] = NO_EPOCHS
    ) -> Generator[pa.RecordBatch, None, None]:
        """Yield the rows of ``ranges`` as Spark holds them; ``epochs`` as ``planner.ports.Log.fetch``.

        Raises:
            SchemasNeeded: records have schemas that are not in the log's ``answers``.
        """
        decoders = Decoders()
        if self.of.answers:
            decoders.add(self.of.table, self.of.binding, self.of.answers)
        decoder = decoders(self.of.table, self.of.schema, self.of.binding)
        source = TopicSource.of(decoder, self.of.topic, self.of.topic_id)
        with contextlib.closing(
            log.fetch(source, ranges, timeout_s=FETCH_TIMEOUT_S, epochs=epochs)
        ) as records:
            for raw in records:
                yield to_spark(decoder.decode(raw).rows)


ArrowFunction = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


def map_in_arrow(rows: DataFrame, function: ArrowFunction, schema: StructType) -> DataFrame:
    """Run ``function`` over the column ``id`` of ``rows``, on executors."""
    if not hasattr(rows, "_jdf"):
        # Spark Connect, whose client needs pandas anyway.
        return rows.mapInArrow(function, schema)
    # pyspark 4.1, sql/pandas/map_ops.py.
    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    column = UserDefinedFunction(function, schema, evalType=kind)(rows["id"])
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)
