"""Commits a watermark as one Iceberg transaction (docs/internals/watermark.md); the publish of staged files is one such.

Every attempt decides on the newest metadata and commits on exactly these. Iceberg may apply a transaction again on newer
ones: a validator inside refuses that, then the whole is decided and built again.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from connectors import failpoints
from connectors.spark.errors import SparkLost, java_classes, java_errors
from connectors.spark.metadata import TableState, each, java_snapshot, load_table, read_state
from connectors.spark.publish.append_files import LeadingMetrics
from connectors.spark.publish.history_facts import SparkEvidence
from connectors.spark.publish.stage import branches_of, check_same_table, staged_snapshot
from connectors.table_facts import Evidence, with_statistics
from planner.errors import (
    CatalogUnavailable,
    FederationError,
    InternalError,
    StalePlan,
    TieringConflict,
    Unavailable,
)
from planner.names import TableName
from planner.ports import Staged
from planner.seam.binding import Binding, parse_binding
from planner.seam.snapshots import NEVER_EXPIRES_MS, TAG, Snapshot, WatermarkEntries
from planner.seam.watermark import Watermark, parse_watermark
from planner.tiering.keyed import check_rows_of
from planner.tiering.plan import TieringPlan
from planner.tiering.publish import advance, check_publish, check_schemas

#: Set so that expiry knows a published file is not only the staged snapshot's (Iceberg's SnapshotSummary).
SOURCE_SNAPSHOT = "source-snapshot-id"
# Ten lost commits in a row mean a busier writer than any we know of.
_ATTEMPTS = 10
_BACKOFF_S = 0.05
_MAX_BACKOFF_S = 2.0

#: Takes the newest metadata and returns the watermark to commit on them; raises to refuse.
Decide = Callable[[TableState, Evidence], Watermark]
#: Takes a transaction and the state it builds on; adds what changes. Returns the update that makes the snapshot, uncommitted.
Change = Callable[[Any, TableState], Any]
#: Takes the state and the snapshot that is about to be committed on it; raises to refuse.
Verify = Callable[[TableState, Snapshot], None]

_VALIDATION = "org.apache.iceberg.exceptions.ValidationException"


class WatermarkCommits:
    """The commits of one table."""

    def __init__(self, session: SparkSession, table: TableName) -> None:
        self._session = session
        self._table = table
        self._evidence: dict[tuple[object, ...], Any] = {}
        self._read: tuple[str, TableState] | None = None
        ensure_callback_server_started(session.sparkContext._gateway)  # type: ignore[no-untyped-call]

    def commit(
        self,
        run: str,
        since: str,
        decide: Decide,
        change: Change,
        verify: Verify | None = None,
    ) -> Watermark:
        """Commit ``change`` with its watermark; return the watermark that then holds.

        ``run`` is the watermark's, ``since`` that of the one it follows. The stage branches of ``run`` go, if there are some.

        Raises:
            As ``decide``, ``change`` and ``verify``.
            TieringConflict: Iceberg refuses ``change`` after what other writers committed.
            CatalogUnavailable: it did not take the commit. If it still applies it later, the next plan starts
                from there.
        """
        last: FederationError | None = None
        for attempt in range(_ATTEMPTS):
            if attempt:
                # Jitter keeps two tierers that collided from colliding again.
                wait_s = min(_BACKOFF_S * 2**attempt, _MAX_BACKOFF_S)
                time.sleep(wait_s * random.uniform(0.5, 1))  # noqa: S311
            try:
                with java_errors(self._table):
                    return self._try(run, since, decide, change, verify)
            except _BuiltOnOldState:
                last = None
            except StalePlan:
                # The conflict may be this run's own commit, if its answer was lost.
                landed = self._landed(run, since)
                if landed is None:
                    raise
                return landed
            except SparkLost:
                # Nothing can be looked up here any more; the next plan starts from what was committed.
                raise
            except Unavailable as error:
                # Committed or not may be unknown: the next attempt looks before it does anything.
                last = error
            except InternalError:
                # A retry does not mend a bug; one look tells whether it struck after the commit.
                with contextlib.suppress(FederationError):
                    landed = self._landed(run, since)
                    if landed is not None:
                        return landed
                raise
        raise last or CatalogUnavailable(
            f"{self._table}: other writers committed first {_ATTEMPTS} times in a row; try again.",
            table=str(self._table),
        )

    def _landed(self, run: str, since: str) -> Watermark | None:
        with java_errors(self._table):
            return landed_watermark(self._state(self._begin()), run, since)

    def _try(
        self, run: str, since: str, decide: Decide, change: Change, verify: Verify | None
    ) -> Watermark:
        transaction = self._begin()
        state = self._state(transaction)
        landed = landed_watermark(state, run, since)
        if landed is not None:
            return landed
        evidence = SparkEvidence(self._session, self._table, transaction, self._evidence)
        mark = decide(state, evidence)
        check = _AncestryCheck(lambda head: self._check_base(state, head, transaction))
        try:
            update = change(transaction, state)
            _add_watermark(transaction, update.validateWith(check), mark, state)
            if verify is not None:
                verify(state, java_snapshot(transaction.table().currentSnapshot()))
            failpoints.reach("before_commit")
            transaction.commitTransaction()
        except (Py4JError, PySparkException) as error:
            if check.refusal is not None:
                raise check.refusal from error
            if _VALIDATION in java_classes(error):
                raise TieringConflict(
                    f"{self._table}: another writer changed the table while this was staged; nothing was changed, plan "
                    f"again.",
                    table=str(self._table),
                ) from error
            raise
        finally:
            check.let_go()
        return mark

    def _begin(self) -> Any:
        return load_table(self._session, self._table).newTransaction()

    def _state(self, transaction: Any) -> TableState:
        """What the transaction builds on: the newest metadata, and newer when Iceberg applies it again.

        A metadata file never changes, so the one read last is not read again: with some hundred snapshots that
        takes as long as the commit.
        """
        metadata = transaction.startMetadata()
        location = metadata.metadataFileLocation()
        if self._read is not None and location == self._read[0]:
            return self._read[1]
        state = read_state(self._session, metadata)
        self._read = None if location is None else (location, state)
        return state

    def _check_base(self, state: TableState, head: int | None, transaction: Any) -> None:
        if head != state.head or self._state(transaction) != state:
            raise _BuiltOnOldState


def _add_watermark(transaction: Any, update: Any, mark: Watermark, state: TableState) -> None:
    """Add the text to a snapshot's ``update``, the mirror and the tag; drop the branches of the watermark's run."""
    entries = WatermarkEntries.of(mark)
    for key, text in entries.summary.items():
        update.set(key, text)
    update.commit()
    properties = transaction.updateProperties()
    for key, text in entries.properties.items():
        properties.set(key, text)
    properties.commit()
    snapshot_id = transaction.table().currentSnapshot().snapshotId()
    refs = transaction.manageSnapshots()
    (refs.replaceTag if TAG in state.refs else refs.createTag)(TAG, snapshot_id)
    refs.setMaxRefAgeMs(TAG, NEVER_EXPIRES_MS)
    for name in branches_of(mark.run):
        if name in state.refs:
            refs.removeBranch(name)
    refs.commit()


def decide_publish(staged: Staged, state: TableState, evidence: Evidence) -> Watermark:
    """Return the watermark of a publish on ``state``.

    Raises:
        TieringConflict, ForeignCommit, WatermarkMissing, WatermarkUnreadable: as ``check_same_table``, ``check_publish``.
        SchemaRegistryChanged: as ``check_schemas``.
    """
    plan = staged.plan
    head = check_same_table(plan, state)
    binding = parse_binding(plan.pin.table, state.properties)
    check_schemas(plan.pin.table, staged.schemas, binding)
    _check_same_binding(plan, binding)
    history = with_statistics(state.history, head, evidence)
    check_publish(plan, history, head)
    is_keyed = plan.binding.upsert is not None and not plan.is_rebuild
    if is_keyed and staged.base is not None:
        check_rows_of(staged.base, history, head, plan.pin.table)
    return advance(plan, staged.outcomes, run=staged.reference, head=head)


def append_staged(
    session: SparkSession, staged: Staged, transaction: Any, state: TableState
) -> Any:
    """Return an append of the staged files.

    Raises:
        SnapshotExpired: as ``staged_snapshot``.
    """
    append = transaction.newAppend()
    if staged.plan.splits:
        source = staged_snapshot(staged.plan.pin.table, state, staged.reference)
        table = transaction.table()
        metrics = LeadingMetrics(session, table)
        for file in each(table.snapshot(source).addedDataFiles(table.io())):
            append.appendFile(metrics.completed(file))
        append.set(SOURCE_SNAPSHOT, str(source))
    return append


class _BuiltOnOldState(Exception):
    """The table moved after the decision."""


class _AncestryCheck:
    """``org.apache.iceberg.SnapshotAncestryValidator`` (Iceberg 1.12) as a Python object.

    Java's transaction refers to it, and its check to the transaction: a cycle through two processes' memory that no
    collector sees. The caller must release it, or every publish leaves its table's whole metadata in the driver.
    """

    def __init__(self, check: Callable[[int | None], None]) -> None:
        self._check: Callable[[int | None], None] | None = check
        self.refusal: Exception | None = None

    def validate(self, ancestors: Any) -> bool:
        """Return whether the commit may build on ``ancestors``, newest first."""
        head = next((snapshot.snapshotId() for snapshot in each(ancestors)), None)
        self.refusal = None
        try:
            if self._check is None:
                raise InternalError("A commit was checked after its end.")  # noqa: TRY301
            self._check(head)
        except Exception as error:  # noqa: BLE001 - Java cannot carry it; ``commit`` raises it again
            self.refusal = error
        return self.refusal is None

    def errorMessage(self) -> str:
        return str(self.refusal)

    def let_go(self) -> None:
        """Drop all references to Java objects, a refusal's frames included."""
        self._check = self.refusal = None

    class Java:
        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)


def landed_watermark(state: TableState, run: str, since: str) -> Watermark | None:
    """Return the watermark of the commit of ``run`` if the table has it.

    Walks back to the commit of the run ``since``; a broken chain is looked up in the tag.
    """
    marks = map(parse_watermark, _texts(state))
    mark = next((mark for mark in marks if mark.run in (run, since)), None)
    return mark if mark is not None and mark.run == run else None


def _texts(state: TableState) -> Iterator[str]:
    history = state.history
    for snapshot in history.line(state.head):
        if snapshot.watermark_text is not None and snapshot.operation != "replace":
            yield snapshot.watermark_text
        parent_id = snapshot.parent_id
        if parent_id is not None and parent_id not in history.snapshots and history.mirror:
            yield history.mirror


def _check_same_binding(plan: TieringPlan, binding: Binding | None) -> None:
    # What the watermark says is compared by itself.
    planned = plan.binding.under(None)
    if binding is None or (binding.address, binding.shape) != (planned.address, planned.shape):
        raise TieringConflict(
            f"{plan.pin.table}: the table's binding changed since this tiering was planned; plan again.",
            table=str(plan.pin.table),
        )
