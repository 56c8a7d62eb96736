"""One round of tiering, over any log and any target."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from planner.cut import LogBounds, Pin, check_topic
from planner.errors import BadBinding, FederationError
from planner.names import TableName
from planner.ports import Log, TieringTarget
from planner.tiering import TieringBudget, TieringPlan, plan_tiering
from planner.watermark import Outcomes, Watermark


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


def tier_once(
    log: Log,
    target: TieringTarget,
    budget: TieringBudget,
    *,
    bytes_per_offset: float = 1.0,
    is_due: Callable[[Pin, LogBounds], bool] = always,
    clock: Callable[[], float] = time.monotonic,
) -> RoundResult:
    """Pin, measure, plan, stage, publish.

    ``is_due`` decides by the new measurement: another tierer may have published meanwhile.

    Raises:
        TieringConflict, SnapshotExpired: nothing changed; the next round plans again.
        ShapeMismatch, TailGap, LogTruncated, TopicRecreated, ClusterChanged: as ``plan_tiering``.
        UndecodableRecord, OffsetsExpired, LogUnavailable: as executors met them; nothing changed.
        BadBinding: the table is not bound, or to another topic than its watermark's.
        As ``ColdStore.pin`` and ``TieringTarget.publish``.
    """
    pin = target.pin()
    if pin.binding is None:
        raise not_bound(pin.table)
    if pin.watermark is not None:
        # Before a request for the topic, which may not exist.
        check_topic(pin.table, pin.watermark, pin.binding.topic)
    bounds = log.measure([pin.binding.address])[pin.binding.address]
    plan = plan_tiering(pin, bounds, budget, bytes_per_offset=bytes_per_offset)
    ends = {part.partition: part.log_end for part in bounds.partitions}
    if not plan.advances or not is_due(pin, bounds):
        return RoundResult(plan, plan.start, False, Outcomes(), _lag(ends, plan.start))
    began_s = clock()
    staged = target.stage(plan)
    staged_s = clock()
    try:
        watermark = target.publish(staged)
    except FederationError:
        target.discard(staged)
        raise
    return RoundResult(
        plan=plan,
        watermark=watermark,
        published=True,
        outcomes=staged.outcomes,
        lag=_lag(ends, watermark),
        stage_s=staged_s - began_s,
        publish_s=clock() - staged_s,
        log_bytes=staged.log_bytes,
    )


def not_bound(table: TableName) -> BadBinding:
    return BadBinding(
        f"{table}: the table is not bound to a topic; bind one with `thermocline create`.",
        table=str(table),
    )


def _lag(ends: dict[int, int], watermark: Watermark) -> int:
    return sum(end - watermark.offset(partition) for partition, end in ends.items())
