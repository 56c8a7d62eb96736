"""Which ranges of a tail a statement's conditions leave: those on partition and offset, which every record has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.pruning import Bounds, Condition, ScanFilter, prune

#: Columns that say where a record is.
PLACES = frozenset((KAFKA_PARTITION, KAFKA_OFFSET))


def needed_ranges(ranges: Sequence[OffsetRange], rows: ScanFilter) -> tuple[OffsetRange, ...]:
    """Return the ranges that may hold a wanted record, whole."""
    if not ranges:
        return ()
    none = pa.repeat(0, len(ranges))
    bounds = {
        KAFKA_PARTITION: Bounds.exact(
            pa.array([item.partition for item in ranges], pa.int32())
        ),
        KAFKA_OFFSET: Bounds(
            lower=pa.array([item.start for item in ranges], pa.int64()),
            upper=pa.array([item.stop - 1 for item in ranges], pa.int64()),
            nulls=none,
            nans=none,
            rows=pa.array([len(item) for item in ranges], pa.int64()),
        ),
    }

    def bounds_of(condition: Condition) -> Iterator[tuple[Bounds, Condition]]:
        if condition.column in bounds:
            yield bounds[condition.column], condition

    mask = prune(rows, bounds_of)
    if mask is None:
        return tuple(ranges)
    return tuple(item for item, keep in zip(ranges, mask.to_pylist(), strict=True) if keep)
