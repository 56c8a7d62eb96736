"""Takes the steps of ``planner.maintenance.steps`` at one table, by Iceberg's own Spark actions and Java library.

Each step decides again on the newest metadata where another commit may have made it wrong, and is one commit, or a few
that each stand alone: a process that dies loses the step that ran.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from connectors import failpoints
from connectors.spark.errors import java_classes, translated
from connectors.spark.maintenance.filters import partition_filter
from connectors.spark.maintenance.orphans import (
    SafeToRemove,
    remove_orphans,
    store_clock_ms,
)
from connectors.spark.metadata import (
    TableState,
    each,
    java,
    last_publish,
    load_state,
    load_table,
    read_state,
)
from connectors.spark.publish.publish import WatermarkCommits
from connectors.spark.publish.stage import (
    STALE_STAGE_S,
    new_run,
    remove_branches,
    stale_branches,
)
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
from planner.maintenance.facts import MAINTAIN_KEY
from planner.maintenance.options import ORPHANS_MS, OWN_VERSIONS
from planner.maintenance.steps import (
    ORPHAN_AGE_MS,
    PREVIOUS_VERSIONS,
    Compaction,
    Expiry,
    LogLength,
    ManifestRewrite,
    OrphanRemoval,
    Step,
    StepResult,
    WatermarkRenewal,
)
from planner.names import TableName
from planner.seam.resolver import base_watermark, line_above, resolve
from planner.seam.watermark import LastPublish, Outcomes, Watermark

#: What a rewrite may need of a local disk for each byte it reads: the new files, and what Spark sorts.
_DISK_SHARE = 3
#: How far our clock may be ahead of the store's before it decides nothing.
_MAX_SKEW_MS = 60_000
#: Of a rewrite whose files another writer changed since it began; and of orphans that nothing tells.
_VALIDATION = "org.apache.iceberg.exceptions.ValidationException"
_COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"


@dataclass(eq=False)
class SparkMaintenance:
    """One bound table. Not thread-safe; several may share a session. ``locations`` tells where all tables lie and write.

    ``groups_at_once`` bounds the groups of files that are rewritten at one time; None: as many as there are cores.
    """

    session: SparkSession
    table: TableName
    locations: Callable[[], Mapping[TableName, Sequence[str]]]
    clock: Callable[[], float] = time.time
    groups_at_once: int | None = None

    def __post_init__(self) -> None:
        self._commits = WatermarkCommits(self.session, self.table)

    def take(self, step: Step) -> StepResult:
        """Take one step.

        Raises:
            TieringConflict: another writer was first; nothing was changed, the next look decides again.
            BadBinding: nothing tells which files are orphans.
            ColdStoreUnavailable: there is too little room on the disk, or the store's clock is behind ours.
            ForeignCommit, WatermarkMissing, WatermarkUnreadable: as ``resolve``.
            CatalogUnavailable, UnknownTable.
        """
        began_s = time.monotonic()
        # One pool for all of maintenance, beside that of each table that is tiered (FAIR scheduling).
        self.session.sparkContext.setLocalProperty("spark.scheduler.pool", "maintenance")
        try:
            files, size = self._take(step)
        except FederationError:
            raise
        except Exception as error:
            refusal = refused_by_iceberg(self.table, step, java_classes(error))
            raise refusal or translated(self.table, error) from error
        return StepResult(files, size, time.monotonic() - began_s)

    def _take(self, step: Step) -> tuple[int, int]:
        match step:
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
            case OrphanRemoval():
                return self._remove_orphans()

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
        options = {
            "target-file-size-bytes": rules.target_bytes,
            "max-file-group-size-bytes": rules.budget_bytes,
            "delete-file-threshold": rules.max_delete_files,
            "max-concurrent-file-group-rewrites": self.groups_at_once
            or self.session.sparkContext.defaultParallelism,
        }
        if max_files is not None:
            options["max-files-to-rewrite"] = max_files
        for key, value in options.items():
            action.option(key, str(value))
        action.option("remove-dangling-deletes", "true" if step.has_deletes else "false")
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
        free = shutil.disk_usage(folder).free
        if free < _DISK_SHARE * size:
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
        publish = last_publish(state) or LastPublish(
            max(state.committed_ms.values()), None, Outcomes()
        )
        return mark.renewed(publish, run=run, head=head)

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
        loaded.expireSnapshots().expireOlderThan(step.before_ms).commit()
        failpoints.reach("after_expiry")
        after = load_state(self.session, self.table).history.snapshots
        return len(state.history.snapshots.keys() - after.keys()), 0

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

    def _remove_orphans(self) -> tuple[int, int]:
        loaded = load_table(self.session, self.table)
        now_ms = self._check_clock(loaded)
        safe = SafeToRemove.of(self.table, str(loaded.location()), self.locations())
        count = remove_orphans(self.session, self.table, safe, now_ms - ORPHAN_AGE_MS)
        self._set({ORPHANS_MS: str(now_ms)})
        return count, 0

    def _set(self, properties: Mapping[str, str]) -> None:
        update = load_table(self.session, self.table).updateProperties()
        for key, value in properties.items():
            update.set(key, value)
        update.commit()

    def _actions(self) -> Any:
        spark_actions = java(self.session).org.apache.iceberg.spark.actions.SparkActions
        return spark_actions.get(self.session._jsparkSession)

    def cancel(self) -> None:
        """Cancel what runs on Spark: its process is about to end."""
        self.session.sparkContext.cancelAllJobs()


def refused_by_iceberg(
    table: TableName, step: Step, classes: Collection[str]
) -> FederationError | None:
    """Say why Iceberg did not take a step, by the classes of what it threw; None: another fault."""
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
