"""Publishes what is staged of a keyed table: one row delta of the deletes of one branch and the rows of another; or, of a
rebuild, the rows alone in place of all others.

Iceberg's own checks know nothing of keys: two tierers that insert the same keys, none of them in cold, would both commit. The
validator of ``WatermarkCommits`` refuses the second, ``planner.tiering.keyed`` rows that others changed, and Iceberg files that a
rewrite took away or gave a vector. No conflict filter is set: one that is narrower than what is written lets two vectors of one
file through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from connectors.spark.metadata import TableState, each, java
from connectors.spark.publish.append_files import LeadingMetrics
from connectors.spark.publish.publish import SOURCE_SNAPSHOT
from connectors.spark.publish.stage import deletes_branch_of, staged_snapshot
from planner.errors import InternalError, SnapshotExpired
from planner.names import TableName
from planner.ports import Staged
from planner.seam.snapshots import Snapshot
from planner.tiering.keyed import RowCount


def replace_staged(
    session: SparkSession, staged: Staged, transaction: Any, state: TableState
) -> Any:
    """Return a row delta of what is staged; an append without files where nothing is, and an overwrite of all for a rebuild.

    Raises:
        SnapshotExpired: a branch was removed. Nothing was published; plan again.
        InternalError: a staged delete does not name its data file.
    """
    deletes, rows = _deletes(staged, state), _rows(staged, state)
    table = transaction.table()
    if staged.plan.is_rebuild:
        everything = java(session).org.apache.iceberg.expressions.Expressions.alwaysTrue()
        update = transaction.newOverwrite().overwriteByRowFilter(everything)
        add = update.addFile
    elif deletes is None and rows is None:
        return transaction.newAppend()
    else:
        update = transaction.newRowDelta().validateFromSnapshot(staged.base)
        add = update.addRows
    if rows is not None:
        metrics = LeadingMetrics(session, table)
        for file in each(table.snapshot(rows.snapshot_id).addedDataFiles(table.io())):
            add(metrics.completed(file))
        update.set(SOURCE_SNAPSHOT, str(rows.snapshot_id))
    if deletes is not None:
        changes = table.snapshot(deletes.snapshot_id)
        for file in each(changes.removedDeleteFiles(table.io())):
            update.removeDeletes(file.copy())
        locate = java(
            session
        ).org.apache.iceberg.util.ContentFileUtil.referencedDataFileLocation
        files = []
        for file in each(changes.addedDeleteFiles(table.io())):
            update.addDeletes(file.copy())
            files.append(_location(locate, file, staged.plan.pin.table))
        update.validateDataFilesExist(files).validateDeletedFiles()
    return update


def verify_rows(staged: Staged, state: TableState, published: Snapshot) -> None:
    """Check that the table has as many rows as what is staged leaves of the head's.

    Raises:
        TieringConflict, InternalError: as ``RowCount``.
        SnapshotExpired: as ``replace_staged``.
    """
    table = staged.plan.pin.table
    head = state.history.snapshots[state.head or 0]
    count = RowCount.of(table, head, _deletes(staged, state), _rows(staged, state))
    if staged.plan.is_rebuild:
        count = replace(count, hit=count.before)
    count.check(table, published)


def _rows(staged: Staged, state: TableState) -> Snapshot | None:
    if not staged.outcomes.rows:
        return None
    snapshot_id = staged_snapshot(staged.plan.pin.table, state, staged.reference)
    return state.history.snapshots[snapshot_id]


def _deletes(staged: Staged, state: TableState) -> Snapshot | None:
    """Return the snapshot of deletes; None where no row had one of the keys."""
    if not staged.plan.splits:
        return None
    name = deletes_branch_of(staged.reference)
    snapshot_id = state.refs.get(name)
    if snapshot_id is None:
        raise SnapshotExpired(
            f"{staged.plan.pin.table}: the branch {name} with the staged deletes is gone; stage them again.",
            table=str(staged.plan.pin.table),
            run=staged.reference,
        )
    return None if snapshot_id == staged.base else state.history.snapshots[snapshot_id]


def _location(locate: Callable[[Any], Any], file: Any, table: TableName) -> str:
    location = locate(file)
    if location is None:
        raise InternalError(
            f"{table}: a staged delete does not name the one file it deletes from; nothing was published.",
            table=str(table),
        )
    return str(location)
