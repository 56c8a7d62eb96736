"""Tiering plans: which offsets one publish moves, cut into splits that executors read in parallel."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.errors import BadBinding
from planner.offsets import OffsetRange, OffsetVector, cut_up, fair_share
from planner.seam.binding import Binding, check_times, shape_mismatch
from planner.seam.cut import LogBounds, Pin, check_log
from planner.seam.watermark import Watermark


@dataclass(frozen=True, slots=True)
class TieringBudget:
    """How much one publish may move. Offsets bound rows from above; bytes need ``bytes_per_offset``.

    Where there are more than twice ``start_rows``, so many are moved: people soon see something of a long backfill.
    """

    max_rows: int = 20_000_000
    max_bytes: int = 8 * 1024**3
    split_rows: int = 1_000_000
    start_rows: int | None = None

    def __post_init__(self) -> None:
        if min(self.max_rows, self.max_bytes, self.split_rows, self.start_rows or 1) < 1:
            raise ValueError("budgets are at least 1")


@dataclass(frozen=True, slots=True)
class TieringPlan:
    """One publish: the splits to read, and the watermark before and after.

    ``splits`` together are exactly the offsets from ``start`` to ``next``. They may be empty: new partitions
    still enter the watermark. Those of a rebuild begin where the log does, and its rows replace all of the table's.
    ``reaches_end``: they leave no offset that the log had.
    """

    pin: Pin
    binding: Binding
    splits: tuple[OffsetRange, ...]
    start: Watermark
    next: OffsetVector
    epochs: OffsetVector
    bytes_per_offset: float = 1.0
    is_rebuild: bool = False
    reaches_end: bool = True

    @property
    def offsets(self) -> int:
        return sum(len(split) for split in self.splits)

    @property
    def advances(self) -> bool:
        return self.next != self.start.next


def plan_tiering(
    pin: Pin, bounds: LogBounds, budget: TieringBudget, *, bytes_per_offset: float = 1.0
) -> TieringPlan:
    """Choose the next offsets to tier, the same share of every partition's lag.

    A fair share keeps partitions level, so the tail of no single partition grows without bound while
    another is drained.

    Raises:
        BadBinding: as ``check_times``, where the shape moved: to accept that would not help.
        ShapeMismatch: the binding decodes differently than what was tiered so far. Not retryable: restore
            the properties, or move the shape on purpose.
        TailGap, LogTruncated, TopicRecreated, ClusterChanged: as ``plan_cut``.
    """
    if pin.binding is None or pin.watermark is None:
        raise ValueError(f"{pin.table} is not bound to a topic")
    if not pin.binding.gives_rows_of(pin.watermark.shape, pin.schema):
        check_times(str(pin.table), pin.schema, pin.binding)
        raise shape_mismatch(str(pin.table), pin.binding, pin.watermark.shape)
    untiered = check_log(pin.table, pin.watermark, bounds)
    allowed = max(1, min(budget.max_rows, int(budget.max_bytes / max(bytes_per_offset, 1e-9))))
    if budget.start_rows is not None and sum(map(len, untiered)) > 2 * budget.start_rows:
        allowed = min(allowed, budget.start_rows)
    if pin.binding.upsert is None:
        chosen = fair_share(untiered, allowed)
    else:
        chosen = _new_partitions_last(pin.watermark, untiered, allowed)
    splits = tuple(split for item in chosen for split in cut_up(item, budget.split_rows))
    return TieringPlan(
        pin=pin,
        binding=pin.binding,
        splits=splits,
        start=pin.watermark,
        next=OffsetVector.of((item.partition, item.stop) for item in chosen),
        epochs=bounds.epochs,
        bytes_per_offset=bytes_per_offset,
        reaches_end=sum(map(len, chosen)) == sum(map(len, untiered)),
    )


def _new_partitions_last(
    mark: Watermark, untiered: tuple[OffsetRange, ...], allowed: int
) -> tuple[OffsetRange, ...]:
    """Choose offsets of a keyed table: partitions that were added come once a publish has all that the others held.

    A key that moved to one has older changes in another partition. Published after a newer delete, which leaves no trace,
    they would bring its row back; published with it, the key is seen in two partitions.
    """
    named = tuple(each for each in untiered if mark.next.get(each.partition) is not None)
    added = tuple(each for each in untiered if mark.next.get(each.partition) is None)
    chosen = fair_share(named, allowed)
    if chosen != named:
        return chosen
    return (*chosen, *fair_share(added, max(1, allowed - sum(map(len, chosen)))))


def plan_rebuild(pin: Pin, bounds: LogBounds, split_rows: int) -> TieringPlan:
    """Choose all that the log of a keyed table holds: each living key is still in a compacted one.

    Neither a gap nor another shape is in the way, since no row of before stays.

    Raises:
        BadBinding: the table has a row for each record, and those that the log has lost would be gone.
        LogTruncated, TopicRecreated, ClusterChanged: as ``plan_cut``.
    """
    mark, binding = pin.watermark, pin.binding
    if mark is None or binding is None:
        raise ValueError(f"{pin.table} is not bound to a topic")
    if binding.upsert is None:
        raise BadBinding(
            f"{pin.table}: only a keyed table can be rebuilt: this one has a row for each record, and of those that the log has "
            f"lost nothing would be left.",
            table=str(pin.table),
        )
    starts = {each.partition: each.log_start for each in bounds.partitions}
    begun = {at: max(offset, starts.get(at, offset)) for at, offset in mark.next}
    begun = {**starts, **begun}
    untiered = check_log(pin.table, replace(mark, next=OffsetVector.of(begun.items())), bounds)
    retained = [
        OffsetRange(each.partition, starts[each.partition], each.stop) for each in untiered
    ]
    return TieringPlan(
        pin=pin,
        binding=binding,
        splits=tuple(split for item in retained for split in cut_up(item, split_rows)),
        start=mark,
        next=OffsetVector.of((item.partition, item.stop) for item in retained),
        epochs=bounds.epochs,
        is_rebuild=True,
    )
