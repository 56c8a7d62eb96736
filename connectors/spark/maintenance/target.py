"""Takes the steps of ``planner.maintenance.steps`` at one table, by Iceberg's own Spark actions and Java library.

Each step decides again on the newest metadata where another commit may have made it wrong, and is one commit, or a few
that each stand alone: a process that dies loses the step that ran.
"""

from __future__ import annotations

import contextlib
import shutil
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from connectors import failpoints
from connectors.spark.errors import java_classes, translated
from connectors.spark.maintenance.filters import partition_filter
from connectors.spark.maintenance.orphans import (
    SafeToRemove,
    remove_orphans,
    store_clock_ms,
)
from connectors.spark.maintenance.row_expiry import RowExpirer
from connectors.spark.metadata import (
    TableState,
    each,
    java,
    load_state,
    load_table,
    read_state,
    renewed_publish,
)
from connectors.spark.publish.publish import WatermarkCommits
from connectors.spark.publish.stage import (
    STALE_STAGE_S,
    new_run,
    remove_branches,
    stale_branches,
)
from connectors.spark.session import MAINTENANCE_POOL
from connectors.store.locations import local_path
from connectors.table_facts import Evidence, with_statistics
from planner.errors import (
    BadBinding,
    ColdStoreUnavailable,
    FederationError,
    TieringConflict,
    Unavailable,
)
from planner.maintenance.expiry import GC_ENABLED
from planner.maintenance.facts import MAINTAIN_KEY, Neighbour
from planner.maintenance.options import ORPHAN_BYTES, ORPHANS_MS, OWN_VERSIONS
from planner.maintenance.steps import (
    ORPHAN_AGE_MS,
    PREVIOUS_VERSIONS,
    Compaction,
    Expiry,
    LogLength,
    ManifestRewrite,
    OrphanRemoval,
    RowExpiry,
    Step,
    StepResult,
    WatermarkRenewal,
)
from planner.names import TableName
from planner.seam.resolver import base_watermark, line_above, resolve
from planner.seam.watermark import Watermark

#: What a rewrite may need of a local disk for each byte it reads: the new files, and what Spark sorts.
_DISK_BYTES = 3
#: How far our clock may be ahead of the store's before it decides nothing.
_MAX_SKEW_MS = 60_000
#: Of a rewrite whose files another writer changed since it began; and of orphans that nothing tells.
_VALIDATION = "org.apache.iceberg.exceptions.ValidationException"
_COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"
_BULK_DELETION = "org.apache.iceberg.io.BulkDeletionFailureException"


@dataclass(eq=False)
class SparkMaintenance:
    """One bound table. Not thread-safe but ``cancel``; several may share a session. ``neighbours`` tells the other tables.

    ``is_beside`` a tierer: a step takes half of the cores at most, where there are four or more.
    """

    session: SparkSession
    table: TableName
    neighbours: Callable[[TableName], Iterable[Neighbour]]
    clock: Callable[[], float] = time.time
    is_beside: bool = False

    def __post_init__(self) -> None:
        self._commits = WatermarkCommits(self.session, self.table)
        self._tag = f"thermocline-maintain-{uuid.uuid4().hex}"
        self._is_cancelled = False
        self._orphan_bytes = 0

    def take(self, step: Step) -> StepResult:
        """Take one step.

        Raises:
            TieringConflict: another writer was first; nothing was changed, the next look decides again.
            BadBinding: nothing tells which files are orphans, or another name has the table at another metadata file.
            ColdStoreUnavailable: there is too little room on the disk, or the store does not delete.
            Unavailable: the store's clock is behind ours.
            ForeignCommit, WatermarkMissing, WatermarkUnreadable: as ``resolve``.
            CatalogUnavailable, UnknownTable.
        """
        began_s = time.monotonic()
        context = self.session.sparkContext
        # Tiering goes first (``connectors.spark.session``). Iceberg sets a group of its own for its jobs, and leaves the tag.
        context.setLocalProperty("spark.scheduler.pool", MAINTENANCE_POOL)
        context.addJobTag(self._tag)
        try:
            files, size = self._take(step)
        except FederationError:
            raise
        except Exception as error:
            refusal = refused_by_iceberg(self.table, step, java_classes(error))
            raise refusal or translated(self.table, error) from error
        finally:
            with contextlib.suppress(Py4JError, OSError):
                context.removeJobTag(self._tag)
        return StepResult(files, size, time.monotonic() - began_s)

    def _take(self, step: Step) -> tuple[int, int]:
        match step:
            case RowExpiry():
                self._check_clock(load_table(self.session, self.table))
                expirer = RowExpirer(self.session, self.table, self._commits, self._check_room)
                return expirer.expire(step)
            case Compaction():
                return self._compact(step)
            case ManifestRewrite():
                return self._rewrite_manifests()
            case LogLength(versions=versions, own=own):
                self._set({PREVIOUS_VERSIONS: str(versions), OWN_VERSIONS: str(own)})
                return 0, 0
            case WatermarkRenewal():
                self._renew()
                return 0, 0
            case Expiry():
                return self._expire(step)
            case OrphanRemoval(max_step_s=max_step_s):
                return self._remove_orphans(max_step_s)

    # --- rewrites ---

    def _compact(self, step: Compaction) -> tuple[int, int]:
        loaded = load_table(self.session, self.table)
        self._check_room(loaded, step.cost_bytes)
        rules = step.rules
        action = self._actions().rewriteDataFiles(loaded)
        action = action.sort() if loaded.sortOrder().isSorted() else action.binPack()
        partitions = [backlog.partition for backlog in step.backlogs]
        selected = partition_filter(self.session, loaded, partitions)
        max_files = step.max_files
        if selected is not None:
            action.filter(selected)
        elif max_files is None:
            # Iceberg chooses among all partitions, and no more than what was to be rewritten.
            max_files = sum(backlog.files for backlog in step.backlogs)
        cores = self.session.sparkContext.defaultParallelism
        options = {
            "target-file-size-bytes": rules.target_bytes,
            "max-file-group-size-bytes": rules.group_bytes(
                cores // 2 if self.is_beside else None
            ),
            "delete-file-threshold": rules.max_delete_files,
            "max-concurrent-file-group-rewrites": 1 if self.is_beside else cores,
        }
        if max_files is not None:
            options["max-files-to-rewrite"] = max_files
        for key, value in options.items():
            action.option(key, str(value))
        action.option("remove-dangling-deletes", "true" if step.drops_deletes else "false")
        action.snapshotProperty(MAINTAIN_KEY, new_run())
        result = action.execute()
        failpoints.reach("after_rewrite")
        return result.rewrittenDataFilesCount(), result.rewrittenBytesCount()

    def _rewrite_manifests(self) -> tuple[int, int]:
        action = self._actions().rewriteManifests(load_table(self.session, self.table))
        action.snapshotProperty(MAINTAIN_KEY, new_run())
        manifests = list(each(action.execute().rewrittenManifests()))
        failpoints.reach("after_rewrite")
        return len(manifests), sum(manifest.length() for manifest in manifests)

    def _check_room(self, loaded: Any, size: int) -> None:
        """Stop before a local disk is full; an object store has room."""
        folder = local_path(str(loaded.location()))
        if folder is None:
            return
        try:
            free = shutil.disk_usage(folder).free
        except OSError:
            # A disk of the executors' machines: it tells of itself when it is full.
            return
        if free < _DISK_BYTES * size:
            raise ColdStoreUnavailable(
                f"{self.table}: {free:,} bytes are free where the table lies, and rewriting {size:,} bytes may need three "
                f"times as many; make room there. Nothing was changed.",
                table=str(self.table),
            )

    # --- the watermark ---

    def _renew(self) -> None:
        state, run = load_state(self.session, self.table), new_run()
        before = base_watermark(state.history, self._head(state))
        since = run if before is None else before.run
        self._commits.commit(run, since, partial(self._renewed, run), _no_rows)

    def _renewed(self, run: str, state: TableState, evidence: Evidence) -> Watermark:
        head = self._head(state)
        history = with_statistics(state.history, head, evidence)
        mark = resolve(history, head, table=str(self.table))
        return mark.renewed(renewed_publish(state), run=run, head=head)

    def _head(self, state: TableState) -> int:
        if state.head is None:
            raise TieringConflict(
                f"{self.table}: the table was made anew.", table=str(self.table)
            )
        return state.head

    # --- removals ---

    def _expire(self, step: Expiry) -> tuple[int, int]:
        """Expire by Java: after pyiceberg's expiry a snapshot has no parent id, and older pins no watermark."""
        loaded = load_table(self.session, self.table)
        self._check_clock(loaded)
        self._check_copies()
        stale = stale_branches(
            load_state(self.session, self.table), self.clock() - STALE_STAGE_S
        )
        if stale:
            remove_branches(self.session, self.table, stale)
        failpoints.reach("before_expiry")
        loaded = load_table(self.session, self.table)
        state = read_state(self.session, loaded.operations().current())
        if line_above(state.history, self._head(state)):
            raise TieringConflict(
                f"{self.table}: another writer committed above the watermark; nothing was expired, plan again.",
                table=str(self.table),
            )
        if step.head not in {each.snapshot_id for each in state.history.line(state.head)}:
            # What is the head now may be older than what the plan leaves, and servers answer from it.
            raise TieringConflict(
                f"{self.table}: the table was rolled back since its expiry was planned; nothing was expired, plan again.",
                table=str(self.table),
            )
        loaded.expireSnapshots().expireOlderThan(step.before_ms).commit()
        failpoints.reach("after_expiry")
        after = load_state(self.session, self.table).history.snapshots
        return len(state.history.snapshots.keys() - after.keys()), 0

    def _check_copies(self) -> None:
        """Refuse where another name has the table at another metadata file: what expires here may be live there."""
        names = [str(other.name) for other in self.neighbours(self.table) if other.is_copy]
        if names:
            raise BadBinding(
                f"{self.table}: the same table is registered as {' and '.join(names)}, at another metadata file, so nothing tells "
                f"which files are live there; nothing was expired. Take one of the names out of its catalog.",
                table=str(self.table),
            )

    def _check_clock(self, loaded: Any) -> int:
        """Return the store's time in milliseconds; refuse where ours is ahead: what is young would look old."""
        now_ms = store_clock_ms(self.session, self.table, loaded)
        ahead_ms = int(self.clock() * 1000) - now_ms
        if ahead_ms > _MAX_SKEW_MS:
            raise Unavailable(
                f"{self.table}: this machine's clock is {ahead_ms // 1000:,} s ahead of the store's; nothing was removed. "
                f"Set it right.",
                table=str(self.table),
            )
        return now_ms

    def _remove_orphans(self, max_step_s: int) -> tuple[int, int]:
        until_s = time.monotonic() + max_step_s
        loaded = load_table(self.session, self.table)
        now_ms = self._check_clock(loaded)
        safe = SafeToRemove.of(self.table, str(loaded.location()), self.neighbours(self.table))

        def is_over() -> bool:
            return self._is_cancelled or time.monotonic() >= until_s

        before_ms = now_ms - ORPHAN_AGE_MS
        removed = remove_orphans(self.session, self.table, safe, before_ms, is_over)
        self._orphan_bytes += removed.bytes
        if removed.is_all:
            self._set({ORPHANS_MS: str(now_ms), ORPHAN_BYTES: str(self._orphan_bytes)})
            self._orphan_bytes = 0
        return removed.files, removed.bytes

    def _set(self, properties: Mapping[str, str]) -> None:
        update = load_table(self.session, self.table).updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        update.commit()

    def _actions(self) -> Any:
        spark_actions = java(self.session).org.apache.iceberg.spark.actions.SparkActions
        return spark_actions.get(self.session._jsparkSession)

    def cancel(self) -> None:
        """Make a running step end soon: its jobs alone, unless Spark has ended."""
        self._is_cancelled = True
        with contextlib.suppress(Py4JError, OSError):
            self.session.sparkContext.cancelJobsWithTag(self._tag)


def refused_by_iceberg(
    table: TableName, step: Step, classes: Collection[str]
) -> FederationError | None:
    """Say why Iceberg did not take a step, by the classes of what it threw; None: another fault."""
    if _BULK_DELETION in classes:
        return ColdStoreUnavailable(
            f"{table}: the store did not delete all orphans; look whether its rights let the tierer delete.",
            table=str(table),
        )
    if _VALIDATION in classes and isinstance(step, OrphanRemoval):
        # ``DeleteOrphanFiles`` checks no other writer: it would refuse the same again.
        return BadBinding(
            f"{table}: Iceberg looks for no orphans here: {GC_ENABLED} is false, or the table's metadata names its files by "
            f"another scheme or host than the folder does; no orphans were removed.",
            table=str(table),
        )
    if _VALIDATION in classes or _COMMIT_FAILED in classes:
        return TieringConflict(
            f"{table}: another writer changed the table while it was maintained; nothing was changed, plan again.",
            table=str(table),
        )
    return None


def _no_rows(transaction: Any, _state: TableState) -> Any:
    return transaction.newAppend()
