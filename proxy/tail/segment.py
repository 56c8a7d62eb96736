"""One native table of a tail, its offset ranges, and the rows that a statement reads of several tables."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.ports import SqlRelation
from proxy.tail.tail_ranges import extend

#: Batches remembered: a statement's cut is a few batches older than its follower at most.
_STEPS = 32


class SegmentState(Enum):
    """Where a segment is in its life."""

    OPEN = "takes more rows"
    WRITING = "a transaction adds rows to it"
    FULL = "takes no more rows"
    PACKED = "takes no more rows, compressed in memory"
    SPILLED = "takes no more rows, in the scratch database on disk"
    DROPPED = "no part of the tail any more; statements that lease it read on"
    FREED = "its table is gone"


class SegmentEvent(Enum):
    """What happens to a segment. Packing and spilling make a new one in that state, and drop the old."""

    BEGIN = "a transaction begins to add rows"
    END = "that transaction ended, one way or the other"
    CLOSE = "it shall take no more rows"
    DROP = "its rows are needed no more, or are elsewhere"
    FREE = "nobody leases it"


_TAKES_NO_MORE = frozenset({SegmentState.FULL, SegmentState.PACKED, SegmentState.SPILLED})

#: What may happen to a segment in each state, and the state after it. Nothing else may.
TRANSITIONS: Mapping[SegmentState, Mapping[SegmentEvent, SegmentState]] = {
    SegmentState.OPEN: {
        SegmentEvent.BEGIN: SegmentState.WRITING,
        SegmentEvent.CLOSE: SegmentState.FULL,
        SegmentEvent.DROP: SegmentState.DROPPED,
    },
    # The caller of DROP or CLOSE holds ``Generation.writing``, or skips the segment: its rows are not counted yet.
    SegmentState.WRITING: {SegmentEvent.END: SegmentState.OPEN},
    **{
        state: {SegmentEvent.CLOSE: state, SegmentEvent.DROP: SegmentState.DROPPED}
        for state in _TAKES_NO_MORE
    },
    SegmentState.DROPPED: {SegmentEvent.FREE: SegmentState.FREED},
    SegmentState.FREED: {},
}


@dataclass(eq=False)
class Segment:
    """One native table. ``ranges`` is what it stands for; ``size`` are bytes as Arrow held them.

    Its generation's ``changed`` guards all of it.
    """

    name: str
    ranges: dict[int, OffsetRange] = field(default_factory=dict)
    rows: int = 0
    size: int = 0
    #: After each of the last batches: how many rows were ever added, and their ranges. Empty once rows were deleted:
    #: row numbers no longer count from the first.
    append_log: deque[tuple[int, dict[int, OffsetRange]]] = field(
        default_factory=lambda: deque(maxlen=_STEPS)
    )
    leases: int = 0
    #: Rows below these offsets of partitions are to be deleted, and may still be there.
    deleted_below: dict[int, int] = field(default_factory=dict)
    #: Rows were deleted once.
    has_deletes: bool = False
    state: SegmentState = SegmentState.OPEN

    def on(self, event: SegmentEvent) -> None:
        """Change the state as ``TRANSITIONS`` says.

        Raises:
            AssertionError: this cannot happen to it now; nothing has changed.
        """
        following = TRANSITIONS[self.state].get(event)
        if following is None:
            raise AssertionError(
                f"{event.name} happened to a segment that is {self.state.name}"
            )
        self.state = following

    def trim(self, offsets: Mapping[int, int]) -> None:
        """Stand for no rows below these offsets, which are to be deleted."""
        self.deleted_below |= offsets
        if offsets:
            self.has_deletes = True
            self.append_log.clear()
        self.ranges = {
            partition: OffsetRange(
                partition, max(item.start, offsets.get(partition, 0)), item.stop
            )
            for partition, item in self.ranges.items()
            if item.stop > offsets.get(partition, 0)
        }

    @property
    def is_full(self) -> bool:
        """Whether it takes no more rows, and is part of its tail."""
        return self.state in _TAKES_NO_MORE

    @property
    def is_movable(self) -> bool:
        """Whether its rows may be copied elsewhere: they are in memory, and no writer adds to them."""
        return self.state in (SegmentState.OPEN, SegmentState.FULL, SegmentState.PACKED)

    @property
    def is_dropped(self) -> bool:
        return self.state in (SegmentState.DROPPED, SegmentState.FREED)

    @property
    def is_trimmed(self) -> bool:
        """Whether there may be rows outside the ranges."""
        return bool(self.deleted_below)


class LeasedTail(ExitStack):
    """The rows of one cut's tail, as relations. Close it when the statement is over.

    ``least_rows``: a lower bound of their number that is known without reading them.
    """

    def __init__(self, relations: tuple[SqlRelation, ...], least_rows: int = 0) -> None:
        super().__init__()
        self.relations = relations
        self.least_rows = least_rows


def ends(batch: pa.RecordBatch) -> dict[int, int]:
    """First offset behind the rows of each partition."""
    places = pa.table(
        [batch.column(KAFKA_PARTITION), batch.column(KAFKA_OFFSET)], ["partition", "offset"]
    )
    ends = places.group_by("partition", use_threads=False).aggregate([("offset", "max")])
    return {row["partition"]: row["offset_max"] + 1 for row in ends.to_pylist()}


def without_newest(segments: Sequence[Segment], max_bytes: int) -> Sequence[Segment]:
    """Return ``segments``, in order, without the last ones that have ``max_bytes`` together at most."""
    left, last = max_bytes, len(segments)
    while last and segments[last - 1].size <= left:
        left, last = left - segments[last - 1].size, last - 1
    return segments[:last]


def packable(segments: Sequence[Segment], max_rows: int) -> Sequence[Segment]:
    """Return neighbours among ``segments`` to be packed as one: the oldest that can be, with those behind it, in order.

    Together they have at most ``max_rows`` rows; a larger one is packed by itself. Packed neighbours join them while
    they are no larger: few segments are left in the end, and a row is packed a few times at most. Empty: there is none.
    """
    first = next(
        (
            at
            for at, item in enumerate(segments)
            if _is_free(item) and item.state is not SegmentState.PACKED
        ),
        None,
    )
    if first is None:
        return ()
    rows, last = segments[first].rows, first + 1
    while (
        last < len(segments)
        and _is_free(segments[last])
        and rows + segments[last].rows <= max_rows
    ):
        rows, last = rows + segments[last].rows, last + 1
    while (
        first
        and _is_free(segments[first - 1])
        and segments[first - 1].rows <= min(rows, max_rows - rows)
    ):
        first -= 1
        rows += segments[first].rows
    return segments[first:last]


def _is_free(segment: Segment) -> bool:
    return segment.is_full and segment.is_movable and not segment.is_trimmed


def merged(segments: Sequence[Segment]) -> dict[int, OffsetRange]:
    """Return the ranges of neighbours together: in each partition one begins where the one before ends."""
    ranges: dict[int, OffsetRange] = {}
    for segment in segments:
        extend(ranges, segment.ranges.values())
    return ranges
