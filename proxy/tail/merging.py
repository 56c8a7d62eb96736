"""Which segments of a tail are packed as one, and what that one stands for."""

from __future__ import annotations

from collections.abc import Sequence

from planner.offsets import OffsetRange
from proxy.tail.segment import Segment, SegmentState


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
        for partition, item in segment.ranges.items():
            start = ranges.get(partition, item).start
            ranges[partition] = OffsetRange(partition, start, item.stop)
    return ranges
