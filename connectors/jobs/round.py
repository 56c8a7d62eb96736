"""One round of tiering, over any log and any target."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from planner.errors import BadBinding, FederationError, SchemasNeeded
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.ports import Log, Staged, TieringTarget, TopicSource
from planner.seam.cut import LogBounds, Pin, check_topic
from planner.seam.watermark import Outcomes, Watermark
from planner.tiering.plan import TieringBudget, TieringPlan, plan_rebuild, plan_tiering


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Result of one round. ``published`` is False when the watermark was at the log's end, or the table was not due.

    ``lag`` is the number of offsets above ``watermark`` when the log was measured. ``log_bytes`` is the size of the
    tiered records' values in the log.
    """

    plan: TieringPlan
    watermark: Watermark
    published: bool
    outcomes: Outcomes
    lag: int
    stage_s: float = 0.0
    publish_s: float = 0.0
    log_bytes: int = 0

    def offsets_in(self, seconds: float) -> int:
        """How many offsets take so long at this round's pace; at least one."""
        return max(1, int(seconds * self.plan.offsets / max(self.stage_s, 1e-3)))


def always(_pin: Pin, _bounds: LogBounds) -> bool:
    return True


def accept(_staged: Staged) -> None:
    """Publish all that is staged."""


def tier_once(
    log: Log,
    target: TieringTarget,
    budget: TieringBudget,
    *,
    bytes_per_offset: float = 1.0,
    is_due: Callable[[Pin, LogBounds], bool] = always,
    check: Callable[[Staged], None] = accept,
) -> RoundResult:
    """Pin, measure, plan, stage, publish.

    ``is_due`` decides by the new measurement: another tierer may have published since. ``check`` raises where what was staged
    is not to be published.

    Raises:
        TieringConflict, SnapshotExpired: nothing changed; the next round plans again.
        LogTruncated: also where the log lost what is tiered, or what was read for this round.
        ShapeMismatch, TailGap, LogTruncated, TopicRecreated, ClusterChanged: as ``plan_tiering``.
        UndecodableRecord, OffsetsExpired, LogUnavailable: as executors met them; nothing changed.
        BadBinding: the table is not bound, or to another topic than its watermark's.
        As ``ColdStore.pin`` and ``TieringTarget.publish``.
    """
    pin, bounds = _measured(log, target)
    plan = plan_tiering(pin, bounds, budget, bytes_per_offset=bytes_per_offset)
    ends = {each.partition: each.log_end for each in bounds.partitions}
    if not plan.advances or not is_due(pin, bounds):
        return RoundResult(plan, plan.start, False, Outcomes(), _lag(ends, plan.start))
    source = TopicSource(bounds.topic, bounds.topic_id)
    _check_history(log, source, plan.start.next, plan.start.epochs, bounds)
    return _carried_out(log, target, plan, bounds, check)


def rebuild_once(log: Log, target: TieringTarget, split_rows: int) -> RoundResult:
    """Replace all rows of a keyed table by those of its log.

    Schemas that the table lacks are taken up first, and the rebuild is planned again.

    Raises:
        As ``tier_once``, but for what lies below the log's start.
    """
    while True:
        pin, bounds = _measured(log, target)
        # Each time some ids more are in the ledger.
        with contextlib.suppress(SchemasNeeded):
            return _carried_out(log, target, plan_rebuild(pin, bounds, split_rows), bounds)


def _measured(log: Log, target: TieringTarget) -> tuple[Pin, LogBounds]:
    """Pin a bound table and measure its log. Raises as ``tier_once``."""
    pin = target.pin()
    if pin.binding is None:
        raise not_bound(pin.table)
    if pin.watermark is not None:
        # Before a request for the topic, which may not exist.
        check_topic(pin.table, pin.watermark, pin.binding.topic)
    return pin, log.measure([pin.binding.address])[pin.binding.address]


def _carried_out(
    log: Log,
    target: TieringTarget,
    plan: TieringPlan,
    bounds: LogBounds,
    check: Callable[[Staged], None] = accept,
) -> RoundResult:
    """Stage a plan and publish it; ``bounds`` are those it was made by."""
    ends = {each.partition: each.log_end for each in bounds.partitions}
    source = TopicSource(bounds.topic, bounds.topic_id)
    began_s = time.monotonic()
    staged = target.stage(plan)
    staged_s = time.monotonic()
    try:
        # Executors read one after another: what they read is of one log if it still has what it had when it was planned.
        now = log.measure([bounds.topic])[bounds.topic]
        _check_history(log, source, plan.next, bounds.epochs, now)
        check(staged)
        watermark = target.publish(staged)
    except FederationError:
        target.discard(staged)
        raise
    lag, publish_s = _lag(ends, watermark), time.monotonic() - staged_s
    took_s = (staged_s - began_s, publish_s)
    return RoundResult(plan, watermark, True, staged.outcomes, lag, *took_s, staged.log_bytes)


def _check_history(
    log: Log,
    source: TopicSource,
    offsets: Iterable[tuple[int, int]],
    epochs: OffsetVector,
    now: LogBounds,
) -> None:
    """Check, where leaders have changed, that the log still has what it had below ``offsets`` under ``epochs``.

    Raises:
        LogTruncated: it has not, and may have other records there (an unclean leader election).
    """
    before, current = epochs.as_dict(), now.epochs.as_dict()
    later = {at for at, epoch in before.items() if epoch < current.get(at, epoch)}
    changed = {at: offset for at, offset in offsets if at in later}
    if changed:
        log.check_history(source, changed, {at: before[at] for at in changed})


def not_bound(table: TableName) -> BadBinding:
    return BadBinding(
        f"{table}: the table is not bound to a topic; bind one with `thermocline create`.",
        table=str(table),
    )


def _lag(ends: dict[int, int], watermark: Watermark) -> int:
    return sum(end - watermark.offset(partition) for partition, end in ends.items())
