"""Deletes the rows before a boundary, in the commit that moves it (``planner.maintenance.retention``).

Files whose rows are all too old go whole, by their statistics or their partition. Where others have such rows, Spark's DELETE
is staged on a branch that no reader sees, and the commit takes what it wrote: so it is one of metadata alone, decided
anew where a publish was first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from connectors import failpoints
from connectors.iceberg.create import NAME_MAPPING
from connectors.iceberg.types import parsed_schema
from connectors.spark.errors import java_errors
from connectors.spark.metadata import (
    TableState,
    each,
    identifier,
    java,
    load_state,
    load_table,
    quoted,
    renewed_publish,
)
from connectors.spark.publish.append_files import LeadingMetrics
from connectors.spark.publish.publish import WatermarkCommits
from connectors.spark.publish.stage import branch_of, create_branches, new_run, remove_branches
from connectors.table_facts import Evidence, with_statistics, with_units
from planner.errors import BadBinding, FederationError, TieringConflict
from planner.maintenance.retention import aged
from planner.maintenance.steps import RowExpiry
from planner.names import TableName
from planner.seam.binding import parse_binding
from planner.seam.resolver import base_watermark, resolve
from planner.seam.watermark import Watermark

_FIRST = "another writer changed files with rows that are too old, or added some, while their deletion was prepared"


@dataclass(frozen=True, slots=True)
class OldFiles:
    """Data files with rows that are too old, as Java's ``DataFile``: those that have no others, and the rest."""

    whole: Sequence[Any]
    mixed: Sequence[Any]

    @property
    def size(self) -> int:
        return sum(file.fileSizeInBytes() for file in (*self.whole, *self.mixed))


@dataclass(frozen=True, slots=True)
class StagedDelete:
    """A DELETE on the branch of a run, from snapshot ``base`` to ``tip``; ``paths`` are the files that it looked into."""

    base: int
    tip: int
    paths: frozenset[str]


@dataclass(eq=False)
class RowExpirer:
    """One bound table. Not thread-safe. ``check_room`` takes the Java table and how many bytes are written anew at most."""

    session: SparkSession
    table: TableName
    commits: WatermarkCommits
    check_room: Callable[[Any, int], None]

    def expire(self, step: RowExpiry) -> tuple[int, int]:
        """Return how many files had such rows, and their bytes.

        Raises:
            TieringConflict: another writer was first, or the boundary is there or beyond already. Nothing was changed.
            ColdStoreUnavailable: there is too little room on the disk.
            ForeignCommit, WatermarkMissing, WatermarkUnreadable, CatalogUnavailable: as ``WatermarkCommits.commit``.
        """
        state, run = load_state(self.session, self.table), new_run()
        head = self._head(state)
        files = self._old_files(step, head)
        before = base_watermark(state.history, head)
        since = run if before is None else before.run
        try:
            staged = self._stage(step, run) if files.mixed else None
            failpoints.reach("before_expired_rows")
            self.commits.commit(
                run,
                since,
                partial(self._decided, step, run),
                partial(self._change, step, run, staged),
            )
        except BaseException:
            # As far as that goes: one that stays is stale in a day.
            with contextlib.suppress(FederationError), java_errors(self.table):
                remove_branches(self.session, self.table, (branch_of(run),))
            raise
        return len(files.whole) + len(files.mixed), files.size

    def _stage(self, step: RowExpiry, run: str) -> StagedDelete:
        branch = branch_of(run)
        state = create_branches(self.session, self.table, (branch,), self._head)
        base = self._head(state)
        files, loaded = self._old_files(step, base), load_table(self.session, self.table)
        self.check_room(loaded, sum(file.fileSizeInBytes() for file in files.mixed))
        # Spark would read the whole ones, to write nothing. Without any, it is a snapshot of today's names: Spark goes by those of
        # the branch's newest, where the column's may be another column's.
        delete = loaded.newDelete()
        for file in files.whole:
            delete.deleteFile(file)
        delete.toBranch(branch).commit()
        name = identifier(self.table, branch)
        column = quoted((self._column(step, loaded),))
        self.session.sql(f"DELETE FROM {name} WHERE {column} < {_literal(step)}")  # noqa: S608
        tip = load_state(self.session, self.table).refs[branch]
        return StagedDelete(base, tip, frozenset(str(file.location()) for file in files.mixed))

    def _decided(
        self, step: RowExpiry, run: str, state: TableState, evidence: Evidence
    ) -> Watermark:
        head = self._head(state)
        history = with_statistics(state.history, head, evidence)
        mark = resolve(history, head, table=str(self.table))
        if not step.boundary.is_after(mark.boundary):
            raise self._conflict("its rows before that time were deleted by another maintainer")
        binding = parse_binding(self.table, state.properties)
        if binding is None:
            raise BadBinding(
                f"{self.table}: the table is not bound to a topic any more.",
                table=str(self.table),
            )
        schema = parsed_schema(self.table, state.schema, state.properties.get(NAME_MAPPING))
        schema = with_units(schema, binding)
        publish = renewed_publish(state)
        return aged(mark, step.boundary, publish, schema, binding, (run, head))

    def _change(
        self,
        step: RowExpiry,
        run: str,
        staged: StagedDelete | None,
        transaction: Any,
        state: TableState,
    ) -> Any:
        """Return the update that deletes the rows, of the newest files."""
        files = self._old_files(step, self._head(state))
        paths = frozenset[str]() if staged is None else staged.paths
        if any(str(file.location()) not in paths for file in files.mixed):
            raise self._conflict(_FIRST)
        if staged is not None:
            return self._with_staged(files, run, staged, transaction, state)
        if not files.whole:
            return transaction.newAppend()
        delete = transaction.newDelete()
        for file in files.whole:
            delete.deleteFile(file)
        return delete

    def _with_staged(
        self,
        files: OldFiles,
        run: str,
        staged: StagedDelete,
        transaction: Any,
        state: TableState,
    ) -> Any:
        """Take over what a DELETE wrote, on a head that only appends lead to from where it began."""
        history = state.history
        if state.refs.get(branch_of(run)) != staged.tip:
            raise self._conflict(
                "the branch with the deletion of rows that are too old is gone"
            )
        for snapshot in history.line(state.head):
            if snapshot.snapshot_id == staged.base:
                break
            if snapshot.operation != "append":
                # What was staged would bring rows back that it deleted.
                raise self._conflict(_FIRST)
        else:
            raise self._conflict(
                "it was rolled back while the deletion of rows that are too old was prepared"
            )
        delta, loaded = transaction.newRowDelta(), transaction.table()
        metrics, io = LeadingMetrics(self.session, loaded), loaded.io()
        gone = {str(file.location()): file for file in files.whole}
        for snapshot in history.line(staged.tip):
            if snapshot.snapshot_id == staged.base:
                break
            written = loaded.snapshot(snapshot.snapshot_id)
            gone |= {str(file.location()): file for file in each(written.removedDataFiles(io))}
            for file in each(written.addedDataFiles(io)):
                delta.addRows(metrics.completed(file))
            for file in each(written.addedDeleteFiles(io)):
                delta.addDeletes(file)
            for file in each(written.removedDeleteFiles(io)):
                delta.removeDeletes(file)
        for file in gone.values():
            delta.removeRows(file)
        return delta

    def _old_files(self, step: RowExpiry, head: int) -> OldFiles:
        """Look up the data files of a snapshot that may have rows before the boundary.

        Of the newest one by today's names alone: where a snapshot is named, Iceberg compares by the names of then, and by
        today's, which another column may have. Another than the newest is refused when it comes to the commit.
        """
        loaded = load_table(self.session, self.table)
        expressions = java(self.session).org.apache.iceberg.expressions
        older = expressions.Expressions.lessThan(self._column(step, loaded), _value(step))
        strict = expressions.StrictMetricsEvaluator(loaded.schema(), older)
        scan = loaded.newScan()
        if int(loaded.currentSnapshot().snapshotId()) != head:
            scan = scan.useSnapshot(head)
        scan = scan.filter(older).includeColumnStats()
        whole: list[Any] = []
        mixed: list[Any] = []
        for task in each(scan.planFiles()):
            # What the partition leaves to be tested of its rows.
            is_by_partition = str(task.residual().op()) == "TRUE"
            file = task.file()
            (whole if is_by_partition or strict.eval(file) else mixed).append(file)
        return OldFiles(whole, mixed)

    def _column(self, step: RowExpiry, loaded: Any) -> str:
        """Return what the boundary's column is called today."""
        name = loaded.schema().findColumnName(step.boundary.field_id)
        if name is None:
            raise self._conflict(f"the column {step.column.name} was dropped")
        return str(name)

    def _head(self, state: TableState) -> int:
        if state.head is None:
            raise self._conflict("it was made anew")
        return state.head

    def _conflict(self, why: str) -> TieringConflict:
        return TieringConflict(
            f"{self.table}: {why}; no row was deleted, plan again.", table=str(self.table)
        )


def _value(step: RowExpiry) -> int:
    """Return the boundary as Iceberg's expressions take it for the column's type."""
    limit = step.boundary.limit(step.column)
    return int(limit.cast(pa.int32() if pa.types.is_date(limit.type) else pa.int64()).as_py())


def _literal(step: RowExpiry) -> str:
    """Return it as Spark's SQL has it."""
    limit = step.boundary.limit(step.column)
    kind = (
        "DATE"
        if pa.types.is_date(limit.type)
        else "TIMESTAMP"
        if limit.type.tz
        else "TIMESTAMP_NTZ"
    )
    return f"{kind} '{limit.as_py().isoformat()}'"
