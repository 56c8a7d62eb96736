"""Stages a plan: executors read its splits, and their rows come to a branch of their own.

The tasks write the files by themselves where they can, and Iceberg's Spark writer does otherwise (decision 32).

The branch keeps the files from anybody's ``expire_snapshots`` until they are published. It is created first
and written to by name (``<table>.branch_<name>``), so that the rows can never land on the main branch, as they
would under ``spark.wap.branch`` in a table whose ``write.wap.enabled`` somebody has just removed.

Sorts rows by what Iceberg's writer tells partitions apart by, where Spark does not (``planner.tiering.layout``).

The transforms are Iceberg's own functions, which every catalog of its has in Spark.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyarrow.fs import FileSystem
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from connectors.iceberg.create import NAME_MAPPING
from connectors.iceberg.types import parsed_schema
from connectors.spark.errors import java_classes, java_errors
from connectors.spark.metadata import (
    TableState,
    identifier,
    load_table,
    quoted,
    read_state,
    survey,
)
from connectors.spark.publish.append_files import append_files, remove_files
from connectors.spark.publish.data_folder import data_folder
from connectors.spark.publish.parquet_files import ParquetFile
from connectors.spark.publish.splits import (
    SplitReader,
    SplitWriter,
    Task,
    TaskReport,
    TaskReports,
    TaskReportsParam,
    map_in_arrow,
)
from connectors.table_facts import with_units
from planner.errors import FederationError, InternalError, SnapshotExpired, TieringConflict
from planner.names import TableName
from planner.ports import Decoder, Log
from planner.reading.shares import share_out
from planner.schema import TableSchema
from planner.seam.binding import Binding, parse_binding
from planner.seam.cut import Pin
from planner.seam.snapshots import STAGE_BRANCH_PREFIX
from planner.seam.watermark import Outcomes
from planner.tiering.layout import Layout, RowKey, RowOrder, own_order, plan_layout
from planner.tiering.plan import TieringPlan
from planner.tiering.triggers import parse_options
from planner.tiering.write_plan import SparkWriter, WritingFacts, choose_writer, write_options

FOREVER_MS = 2**63 - 1

#: Summary key of a staged snapshot: which run wrote it.
RUN_KEY = "thermocline.run"

_COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"

_REF_ATTEMPTS = 10

_REF_BACKOFF_S = 0.1


def new_run() -> str:
    """Name a run. The name has its time, so a dead tierer's branch is recognised as stale."""
    # A random node: version 1 would otherwise put this machine's network address into the table.
    return str(uuid.uuid1(node=uuid.uuid4().int >> 80 | 1 << 40))


def started_s(run: str) -> float:
    """The time of a run's name, in seconds since 1970."""
    # UUID time counts 100 ns since 1582-10-15 (RFC 9562, section 5.1).
    return (uuid.UUID(run).time - 0x01B21DD213814000) / 1e7


def branch_of(run: str) -> str:
    return STAGE_BRANCH_PREFIX + run


@dataclass(eq=False)
class Stager:
    """The staging of one table. ``open_log`` and ``open_decoder`` are pickled and called on the executors.

    ``open_store`` returns Arrow's file system for a location of a pin's table, with its keys; None: there is none.
    """

    session: SparkSession
    table: TableName
    open_log: Callable[[], AbstractContextManager[Log]]
    open_decoder: Callable[[TableSchema, Binding], Decoder]
    open_store: Callable[[Pin, str], FileSystem | None]
    task_timeout_s: float
    max_task_offsets: int

    def __post_init__(self) -> None:
        # One for all runs: pyspark keeps every accumulator for the life of the process.
        self._reports = self.session.sparkContext.accumulator({}, TaskReportsParam())

    def write(self, plan: TieringPlan, run: str) -> tuple[Outcomes, int]:
        """Read all splits and commit their rows to the branch of ``run``; return outcomes and bytes read.

        Raises:
            TieringConflict: the table was replaced or its schema changed since the plan's pin.
            UnsupportedFile, BadBinding: as ``write_options``.
            UndecodableRecord, OffsetsExpired, LogTruncated, LogUnavailable: as the executors met them.
        """
        with java_errors(self.table):
            state = self._create_branch(plan, run)
            layout = plan_layout(
                plan.offsets,
                survey(self.table, state),
                bytes_per_offset=plan.bytes_per_offset,
                parallelism=self.session.sparkContext.defaultParallelism,
                max_task_offsets=self.max_task_offsets,
                order=own_order(plan.pin.schema, state.partitions, state.sort),
            )
            # An estimate may ask for fewer tasks than what a lost task may read again allows; never for more
            # than there are splits to share out.
            tasks = share_out(plan.splits, layout.tasks)
            reader = self._reader(plan, run, tasks)
            options = write_options(self.table, state.properties)
            loaded = load_table(self.session, self.table)
            folder = data_folder(self.session, loaded, partial(self.open_store, plan.pin))
            obstacle = folder.reason if isinstance(folder, SparkWriter) else None
            writer = choose_writer(
                WritingFacts(
                    parse_options(self.table, state.properties),
                    state.properties,
                    plan.pin.schema,
                    state.partitions,
                    state.is_sorted,
                    layout,
                    obstacle=obstacle,
                    codec=options["compression-codec"],
                )
            )
            self._reports.value = {}
            self._name_jobs()
            try:
                if isinstance(writer, SparkWriter) or isinstance(folder, SparkWriter):
                    self._write_by_spark(reader, layout, state.sort_id, options)
                else:
                    self._write_by_tasks(
                        SplitWriter(reader, self.table, folder, writer), loaded
                    )
                reports: TaskReports = self._reports.value
            finally:
                self._reports.value = {}
            return self._counted(
                plan, run, [reports.get((run, index)) for index in range(len(tasks))]
            )

    def _write_by_spark(
        self, reader: SplitReader, layout: Layout, sort_id: int, options: Mapping[str, str]
    ) -> None:
        """Have Iceberg's Spark writer write the rows and commit them."""
        schema = self.session.table(identifier(self.table)).schema
        rows = map_in_arrow(self._indexes(reader), reader, schema)
        if layout.order is not None:
            rows = in_order(
                rows, self.table, layout.order, shuffle=layout.distribution == "hash"
            )
            options = {
                **options,
                "use-table-distribution-and-ordering": "false",
                "output-sort-order-id": str(sort_id),
            }
        (
            rows.writeTo(identifier(self.table, branch_of(reader.run)))
            .option("distribution-mode", layout.distribution)
            .option("fanout-enabled", str(layout.fanout).lower())
            .options(**options)
            .option(f"snapshot-property.{RUN_KEY}", reader.run)
            .append()
        )

    def _write_by_tasks(self, writer: SplitWriter, loaded: Any) -> None:
        """Have the tasks write files, and commit those of the tasks that ended well: one report for each task."""
        indexes = self._indexes(writer.reader)
        try:
            map_in_arrow(indexes, writer, indexes.schema).collect()
        except BaseException:
            # Tasks that a failed one took along; Spark's own files are removed likewise.
            remove_files(loaded, self._written(writer))
            raise
        append_files(
            self.session,
            loaded,
            self._written(writer),
            branch=branch_of(writer.reader.run),
            summary={RUN_KEY: writer.reader.run},
        )

    def _written(self, writer: SplitWriter) -> list[ParquetFile]:
        reports: TaskReports = self._reports.value
        run = writer.reader.run
        return [file for key in sorted(reports) if key[0] == run for file in reports[key].files]

    def _indexes(self, reader: SplitReader) -> DataFrame:
        """One row and one Spark partition per task."""
        count = len(reader.tasks)
        return self.session.range(0, count, 1, count)

    def cancel(self) -> None:
        """Cancel the jobs of this table's thread on Spark, unless Spark has ended."""
        with contextlib.suppress(Py4JError, OSError):
            self.session.sparkContext.cancelJobGroup(str(self.table))

    def _name_jobs(self) -> None:
        """Tie this thread's jobs to the table: a pool of its own under FAIR scheduling, and a group to cancel."""
        context = self.session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", str(self.table))
        context.setJobGroup(str(self.table), f"tier {self.table}", interruptOnCancel=False)

    def drop(self, run: str) -> None:
        # Best effort: a branch that stays is stale later, and no reader sees it.
        with contextlib.suppress(FederationError), java_errors(self.table):
            remove_branches(self.session, self.table, (branch_of(run),))

    def drop_stale(self, older_than_s: float, now_s: float) -> tuple[str, ...]:
        """Remove the branches of runs that started more than ``older_than_s`` ago; return their names."""
        with java_errors(self.table):
            state = self._state()
            stale = tuple(
                name
                for name in sorted(state.refs)
                if name.startswith(STAGE_BRANCH_PREFIX) and _age_s(name, now_s) > older_than_s
            )
            remove_branches(self.session, self.table, stale)
        return stale

    def _state(self) -> TableState:
        return _state(self.session, load_table(self.session, self.table))

    def _create_branch(self, plan: TieringPlan, run: str) -> TableState:
        for attempt in range(_REF_ATTEMPTS):
            loaded = load_table(self.session, self.table)
            state = _state(self.session, loaded)
            head = check_same_table(plan, state)
            write_options(self.table, state.properties)  # refuses before anything is written
            try:
                (
                    loaded.manageSnapshots()
                    .createBranch(branch_of(run), head)
                    # A table's default age for references would count from the head, which may be old.
                    .setMaxRefAgeMs(branch_of(run), FOREVER_MS)
                    .commit()
                )
            except Py4JError as error:
                if not _may_retry(error, attempt):
                    raise
                time.sleep(_REF_BACKOFF_S)
            else:
                return state
        raise AssertionError

    def _reader(self, plan: TieringPlan, run: str, tasks: tuple[Task, ...]) -> SplitReader:
        schema = plan.pin.schema
        names = tuple(self.session.table(identifier(self.table)).schema.fieldNames())
        if names != schema.names:
            raise _schema_changed(plan)
        return SplitReader(
            run=run,
            tasks=tasks,
            schema=schema,
            binding=plan.binding,
            topic_id=plan.start.topic_id,
            open_log=self.open_log,
            open_decoder=self.open_decoder,
            reports=self._reports,
            timeout_s=self.task_timeout_s,
        )

    def _counted(
        self, plan: TieringPlan, run: str, reports: Sequence[TaskReport | None]
    ) -> tuple[Outcomes, int]:
        """Add up the reports, which must be of every task and agree with the rows in the files."""
        total, handed_over, log_bytes = Outcomes(), 0, 0
        for report in reports:
            if report is None:
                raise InternalError(
                    f"{self.table}: a task ended without a report; nothing was published.",
                    table=str(self.table),
                )
            total += report.outcomes
            handed_over += report.rows
            log_bytes += report.log_bytes
        state = self._state()
        staged = staged_snapshot(plan, state, run)
        written = state.history.snapshots[staged].count("added-records") or 0
        if written != handed_over:
            raise InternalError(
                f"{self.table}: executors handed over {handed_over} rows and the staged files hold {written}; "
                f"nothing was published.",
                table=str(self.table),
            )
        return total, log_bytes


def check_same_table(plan: TieringPlan, state: TableState) -> int:
    """Return the table's head; refuse when it is not the table any more that the rows were decoded for.

    Raises:
        TieringConflict: plan again.
    """
    if state.table_uuid != plan.pin.table_uuid or state.head is None:
        raise TieringConflict(
            f"{plan.pin.table}: the table was dropped and created again since this tiering was planned; plan "
            f"again.",
            table=str(plan.pin.table),
        )
    if state.schema_id != plan.pin.schema.schema_id or not _decodes_alike(plan, state):
        # The rows were decoded without the new column or name. Published, they would stay NULL there although their
        # records have a value.
        raise _schema_changed(plan)
    return state.head


def _decodes_alike(plan: TieringPlan, state: TableState) -> bool:
    """Whether the names that records may use are still those of the plan: the schema id does not tell."""
    table = plan.pin.table
    schema = parsed_schema(table, state.schema, state.properties.get(NAME_MAPPING))
    binding = parse_binding(table, state.properties)
    if binding is not None:
        schema = with_units(schema, binding)
    return schema.fingerprint == plan.pin.schema.fingerprint


def staged_snapshot(plan: TieringPlan, state: TableState, run: str) -> int:
    """Return the id of the snapshot that ``run`` staged.

    Raises:
        SnapshotExpired: somebody removed the branch. Nothing was published; plan again.
    """
    staged = state.refs.get(branch_of(run))
    snapshot = state.history.snapshots.get(staged) if staged is not None else None
    if staged is None or snapshot is None or snapshot.summary.get(RUN_KEY) != run:
        raise SnapshotExpired(
            f"{plan.pin.table}: the branch {branch_of(run)} with the staged rows is gone; stage them again.",
            table=str(plan.pin.table),
            run=run,
        )
    return staged


def remove_branches(session: SparkSession, table: TableName, names: tuple[str, ...]) -> None:
    """Remove those of the branches that exist, in one commit."""
    for attempt in range(_REF_ATTEMPTS):
        loaded = load_table(session, table)
        present = [name for name in names if name in loaded.refs()]
        if not present:
            return
        update = loaded.manageSnapshots()
        for name in present:
            update.removeBranch(name)
        try:
            update.commit()
        except Py4JError as error:
            if not _may_retry(error, attempt):
                raise
            time.sleep(_REF_BACKOFF_S)
        else:
            return


def _may_retry(error: Exception, attempt: int) -> bool:
    return _COMMIT_FAILED in java_classes(error) and attempt + 1 < _REF_ATTEMPTS


def _state(session: SparkSession, loaded: Any) -> TableState:
    return read_state(session, loaded.operations().current())


def _age_s(branch: str, now_s: float) -> float:
    try:
        return now_s - started_s(branch.removeprefix(STAGE_BRANCH_PREFIX))
    except ValueError:
        return 0.0  # not one of ours, whatever its prefix


def _schema_changed(plan: TieringPlan) -> TieringConflict:
    return TieringConflict(
        f"{plan.pin.table}: the table's schema changed since this tiering was planned; plan again.",
        table=str(plan.pin.table),
    )


_FUNCTIONS = {
    "year": "years",
    "month": "months",
    "day": "days",
    "hour": "hours",
    "bucket": "bucket",
    "truncate": "truncate",
}


def in_order(rows: DataFrame, table: TableName, order: RowOrder, *, shuffle: bool) -> DataFrame:
    """Return ``rows`` sorted within each of Spark's partitions, which have all rows of a table's partition after a shuffle."""
    keys = [_value(key, table) for key in order.partition]
    if shuffle:
        rows = rows.repartition(*keys)
    return rows.sortWithinPartitions(*keys, *(_directed(key, table) for key in order.sort))


def _value(key: RowKey, table: TableName) -> Column:
    """What is the same for two rows only if they are of one partition."""
    return _own(key).cast("string") if key.is_plain_float else _transformed(key, table)


def _directed(key: RowKey, table: TableName) -> Column:
    value = _transformed(key, table)
    if key.descending:
        return value.desc_nulls_first() if key.nulls_first else value.desc_nulls_last()
    return value.asc_nulls_first() if key.nulls_first else value.asc_nulls_last()


def _transformed(key: RowKey, table: TableName) -> Column:
    if key.transform == "identity":
        return _own(key)
    value = _own(key)
    if key.is_uuid_bucket:
        # Its hash is that of its bytes (Iceberg spec, "32-bit Hash Requirements").
        value = F.unhex(F.replace(value, F.lit("-")))
    arguments = () if key.number is None else (F.lit(key.number),)
    name = quoted((table.catalog, "system", _FUNCTIONS[key.transform]))
    return F.call_function(name, *arguments, value)


def _own(key: RowKey) -> Column:
    return F.col(quoted(key.path))
