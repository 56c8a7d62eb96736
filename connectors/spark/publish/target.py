"""``planner.ports.TieringTarget`` on Spark and Iceberg's Java side: stages a plan on a branch, publishes what is staged."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial

from py4j.protocol import Py4JError
from pyarrow.fs import FileSystem
from pyspark.sql import SparkSession

from connectors import failpoints
from connectors.registry.following import SchemaFollower
from connectors.registry.shipping import Shipment
from connectors.spark.errors import java_errors
from connectors.spark.metadata import TableState, identifier, load_state, load_table, survey
from connectors.spark.publish.changes import folded, stage_deletes, stage_rows
from connectors.spark.publish.data_folder import TableFolder, data_folder
from connectors.spark.publish.publish import WatermarkCommits, append_staged, decide_publish
from connectors.spark.publish.row_delta import replace_staged, verify_rows
from connectors.spark.publish.splits import (
    SplitReader,
    SplitWriter,
    TaskReport,
    TaskReports,
    TaskReportsParam,
)
from connectors.spark.publish.stage import (
    branch_of,
    branches_of,
    check_same_table,
    create_branches,
    new_run,
    remove_branches,
    schema_changed,
    staged_snapshot,
    stale_branches,
    write_by_spark,
    write_by_tasks,
)
from connectors.spark.session import TIERING_POOL
from planner.errors import FederationError, InternalError, SchemasNeeded
from planner.names import TableName
from planner.ports import ColdStore, Decoder, Log, Staged
from planner.reading.shares import share_out
from planner.seam.cut import Pin
from planner.seam.watermark import Watermark
from planner.tiering.keyed import check_delete_properties
from planner.tiering.plan import TieringPlan
from planner.tiering.triggers import ColdSurvey
from planner.tiering.write_plan import (
    ParquetOptions,
    SparkWriter,
    WritePlan,
    WritingFacts,
    check_properties,
    plan_write,
)

# A million records take seconds; minutes are for a broker that restarts.
TASK_TIMEOUT_S = 600.0
#: What a lost task has to read again at most: half a minute's work. 40 bytes a row make a file of 160 MB.
TASK_OFFSETS = 4_000_000


@dataclass(eq=False)
class SparkTieringTarget:
    """One bound table. Not thread-safe; several targets may share a session.

    ``open_log`` and ``open_decoder`` are pickled and called on the executors; ``open_decoder`` with the ``answers`` of
    ``schemas``, where it is a table of a registry. ``open_store`` returns Arrow's file system
    for a location of the pinned table in an object store, with its keys; None: there is none.
    """

    session: SparkSession
    cold: ColdStore
    table: TableName
    open_log: Callable[[], AbstractContextManager[Log]]
    open_decoder: Callable[..., Decoder]
    open_store: Callable[[Pin, str], FileSystem | None]
    schemas: SchemaFollower | None = None
    task_timeout_s: float = TASK_TIMEOUT_S
    max_task_offsets: int = TASK_OFFSETS

    def __post_init__(self) -> None:
        # One for all runs: pyspark keeps every accumulator for the life of the process.
        self._reports = self.session.sparkContext.accumulator({}, TaskReportsParam())
        self._commits = WatermarkCommits(self.session, self.table)

    def pin(self) -> Pin:
        return self.cold.pin(self.table)

    def survey(self) -> ColdSurvey:
        with java_errors(self.table):
            return survey(self.table, load_state(self.session, self.table))

    def stage(self, plan: TieringPlan) -> Staged:
        """Read all splits and commit their rows to the branch of a new run; of a keyed table what they replace to another.

        Raises:
            TieringConflict: the table was replaced or its schema changed since the plan's pin.
            SchemasNeeded: records had schemas that the table has only now taken up.
            SchemaRegistryUnavailable, SchemaRegistryChanged, SchemaIncompatible: as ``SchemaFollower.take_up``.
            UnsupportedFile, BadBinding: as ``check_properties`` and ``check_delete_properties``.
            KeyInTwoPartitions: a keyed table's key has changes, or a row, in another partition.
            UndecodableRecord, OffsetsExpired, LogTruncated, LogUnavailable: as the executors met them.
        """
        run = new_run()
        total, base, schemas = TaskReport(), None, Shipment()
        if plan.splits:
            if self.schemas is not None:
                schemas = self.schemas.shipment(self.table, plan.binding)
            try:
                with java_errors(self.table):
                    total, base = self._write(plan, run, schemas)
            except BaseException:
                self._drop(run)
                raise
            if total.needs:
                self._drop(run)
                raise self._take_up(plan, total.needs)
        failpoints.reach("after_stage")
        return Staged(plan, run, total.outcomes, total.log_bytes, schemas.fingerprints, base)

    def _take_up(self, plan: TieringPlan, ids: frozenset[int]) -> SchemasNeeded:
        """Bring schemas that tasks met into the table; return why to plan again."""
        if self.schemas is None:
            raise InternalError(
                f"{self.table}: it is tiered without a schema registry, and its records need one.",
                table=str(self.table),
            )
        return self.schemas.take_up(self.table, plan.binding, ids)

    def _write(
        self, plan: TieringPlan, run: str, schemas: Shipment
    ) -> tuple[TaskReport, int | None]:
        """Return the sum of the tasks' reports, and the head it was staged on. With ``needs`` nothing is staged."""
        is_keyed = plan.binding.upsert is not None
        branches = branches_of(run) if is_keyed else (branch_of(run),)
        head = partial(self._head, plan)
        state = create_branches(self.session, self.table, branches, head)
        names = self.session.table(identifier(self.table)).schema.fieldNames()
        if tuple(names) != plan.pin.schema.names:
            raise schema_changed(plan)
        loaded = load_table(self.session, self.table)
        folder: TableFolder | SparkWriter = SparkWriter("changes of a key are brought together")
        if not is_keyed:
            folder = data_folder(self.session, loaded, partial(self.open_store, plan.pin))
        writing = plan_write(
            WritingFacts(
                schema=plan.pin.schema,
                offsets=plan.offsets,
                bytes_per_offset=plan.bytes_per_offset,
                survey=survey(self.table, state),
                properties=state.properties,
                partitions=state.partitions,
                sort_id=state.sort_id,
                sort=state.sort,
                parallelism=self.session.sparkContext.defaultParallelism,
                max_task_offsets=self.max_task_offsets,
                obstacle=folder.reason if isinstance(folder, SparkWriter) else None,
            )
        )
        # An estimate may ask for fewer tasks than what a lost task may read again allows; never for more
        # than there are splits to share out.
        tasks = share_out(plan.splits, writing.layout.tasks)
        reader = SplitReader(
            run=run,
            tasks=tasks,
            schema=plan.pin.schema,
            binding=plan.binding,
            topic_id=plan.start.topic_id,
            open_log=self.open_log,
            open_decoder=_with_schemas(self.open_decoder, schemas),
            reports=self._reports,
            timeout_s=self.task_timeout_s,
        )
        self._reports.value = {}
        # Ties this thread's jobs to the table: a group to cancel.
        context = self.session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", TIERING_POOL)
        context.setJobGroup(str(self.table), f"tier {self.table}", interruptOnCancel=False)
        try:
            if is_keyed:
                return self._write_changes(plan, reader, writing), state.head
            if isinstance(writing.writer, ParquetOptions) and isinstance(folder, TableFolder):
                writer = SplitWriter(reader, self.table, folder, writing.writer)
                write_by_tasks(self.session, loaded, writer)
            else:
                write_by_spark(self.session, self.table, reader, writing)
            total = self._total(reader)
        finally:
            self._reports.value = {}
        if not total.needs:
            self._check_staged(run, total.rows)
        return total, state.head

    def _write_changes(
        self, plan: TieringPlan, reader: SplitReader, writing: WritePlan
    ) -> TaskReport:
        with folded(self.session, self.table, plan, reader) as fold:
            total = self._total(reader)
            if total.needs:
                return total
            if not plan.is_rebuild:
                stage_deletes(self.session, self.table, reader.run, fold)
            stage_rows(self.table, reader.run, fold, writing)
        if fold.rows:
            self._check_staged(reader.run, fold.rows)
        return replace(total, outcomes=total.outcomes.folded(fold.rows, fold.deletes))

    def _head(self, plan: TieringPlan, state: TableState) -> int:
        """Return what the rows are staged on; refuse before anything is written."""
        head = check_same_table(plan, state)
        check_properties(self.table, state.properties)
        if plan.binding.upsert is not None:
            check_delete_properties(self.table, state.properties)
        return head

    def _total(self, reader: SplitReader) -> TaskReport:
        """Add up the reports, which must be of every task."""
        reports: TaskReports = self._reports.value
        total = TaskReport()
        for index in range(len(reader.tasks)):
            report = reports.get((reader.run, index))
            if report is None:
                raise InternalError(
                    f"{self.table}: a task ended without a report; nothing was published.",
                    table=str(self.table),
                )
            total += report
        return total

    def _check_staged(self, run: str, rows: int) -> None:
        state = load_state(self.session, self.table)
        snapshot_id = staged_snapshot(self.table, state, run)
        written = state.history.snapshots[snapshot_id].count("added-records") or 0
        if written != rows:
            raise InternalError(
                f"{self.table}: executors handed over {rows} rows and the staged files hold {written}; "
                f"nothing was published.",
                table=str(self.table),
            )

    def publish(self, staged: Staged) -> Watermark:
        failpoints.reach("before_publish")
        since, decide = staged.plan.start.run, partial(decide_publish, staged)
        if staged.plan.binding.upsert is None:
            change = partial(append_staged, self.session, staged)
            mark = self._commits.commit(staged.reference, since, decide, change)
        else:
            change = partial(replace_staged, self.session, staged)
            verify = partial(verify_rows, staged)
            mark = self._commits.commit(staged.reference, since, decide, change, verify)
        failpoints.reach("after_publish")
        return mark

    def discard(self, staged: Staged) -> None:
        self._drop(staged.reference)

    def _drop(self, run: str) -> None:
        # Best effort: a branch that stays is stale later, and no reader sees it.
        with contextlib.suppress(FederationError), java_errors(self.table):
            remove_branches(self.session, self.table, branches_of(run))

    def cancel(self) -> None:
        """Cancel the jobs of this table's thread on Spark, unless Spark has ended."""
        with contextlib.suppress(Py4JError, OSError):
            self.session.sparkContext.cancelJobGroup(str(self.table))

    def drop_stale(
        self, *, older_than_s: float, clock: Callable[[], float] = time.time
    ) -> tuple[str, ...]:
        """Remove stage branches of tierers that died; return their names.

        ``older_than_s`` must exceed the longest staging there is. A tierer that still lives finds its branch
        gone, publishes nothing and plans again.
        """
        with java_errors(self.table):
            stale = stale_branches(load_state(self.session, self.table), clock() - older_than_s)
            remove_branches(self.session, self.table, stale)
        return stale


def _with_schemas(
    open_decoder: Callable[..., Decoder], schemas: Shipment
) -> Callable[..., Decoder]:
    return partial(open_decoder, answers=schemas.answers) if schemas.answers else open_decoder
