"""A window: the ranges of offsets that are compared at once, with one key per offset over all its partitions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange, check_one_per_partition

#: With more, a fetch gets too little of each partition: brokers answer with a megabyte of one at a time.
MAX_SIDE_BY_SIDE = 64


@dataclass(frozen=True, slots=True)
class Window:
    """Ranges, one per partition. Key ``k`` is the ``k``-th offset of all ranges laid end to end."""

    ranges: tuple[OffsetRange, ...]

    def __post_init__(self) -> None:
        check_one_per_partition(self.ranges)

    def keys(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return the key of each row; every row must lie inside the ranges."""
        partitions = pa.array([item.partition for item in self.ranges], pa.int32())
        shifts = pa.array(
            [base - item.start for base, item in zip(self._bases(), self.ranges, strict=True)],
            pa.int64(),
        )
        shift = shifts.take(pc.index_in(_column(rows, KAFKA_PARTITION), value_set=partitions))
        return pc.add(_column(rows, KAFKA_OFFSET), shift)

    def spans(self, keys: pa.Array) -> Iterator[OffsetRange]:
        """Turn sorted keys back into offsets, those that follow each other joined."""
        bounds = list(zip(self._bases(), self.ranges, strict=True))
        at = 0
        for start, stop in _runs(keys):
            while start < stop:
                while start >= bounds[at][0] + len(bounds[at][1]):
                    at += 1
                base, item = bounds[at]
                end = min(stop, base + len(item))
                shift = item.start - base
                yield OffsetRange(item.partition, start + shift, end + shift)
                start = end

    def _bases(self) -> Iterator[int]:
        return itertools.accumulate((len(item) for item in self.ranges[:-1]), initial=0)


def plan_fetches(
    ranges: Sequence[OffsetRange], max_offsets: int
) -> Iterator[tuple[OffsetRange, ...]]:
    """Group ranges into fetches of at most ``max_offsets`` offsets, and one more for each range.

    A publish moves all partitions on, and each of its files may hold rows of all of them. Ranges alike in their
    offsets are therefore cut side by side: every file is read by few fetches, where one partition after the other
    would read it once for each.
    """
    spans = sorted(item for item in ranges if len(item))
    if _are_alike(spans):
        return _side_by_side(spans, max_offsets)
    return _one_by_one(spans, max_offsets)


def _are_alike(ranges: Sequence[OffsetRange]) -> bool:
    """Whether bounds on offsets that fit all ranges separate their files from others."""
    if not 1 < len(ranges) <= MAX_SIDE_BY_SIDE:
        return False
    span = max(item.stop for item in ranges) - min(item.start for item in ranges)
    return span * len(ranges) <= 2 * sum(map(len, ranges))


def _side_by_side(
    ranges: Sequence[OffsetRange], max_offsets: int
) -> Iterator[tuple[OffsetRange, ...]]:
    """Take the same share of every range at each step."""
    steps = -(-sum(map(len, ranges)) // max_offsets)
    for step in range(steps):
        bounds = ((item, len(item) * step, len(item) * (step + 1)) for item in ranges)
        cut = (
            OffsetRange(item.partition, item.start + first // steps, item.start + last // steps)
            for item, first, last in bounds
        )
        group = tuple(item for item in cut if len(item))
        if group:
            yield group


def _one_by_one(
    ranges: Sequence[OffsetRange], max_offsets: int
) -> Iterator[tuple[OffsetRange, ...]]:
    """Cut large ranges, put small ones together."""
    group: list[OffsetRange] = []
    left = max_offsets
    for item in ranges:
        start = item.start
        while start < item.stop:
            stop = min(item.stop, start + left)
            group.append(OffsetRange(item.partition, start, stop))
            left -= stop - start
            start = stop
            if not left:
                yield tuple(group)
                group, left = [], max_offsets
    if group:
        yield tuple(group)


def _runs(keys: pa.Array) -> Iterator[tuple[int, int]]:
    """Yield half-open runs of sorted keys; found by whole-column comparison, so that many cost little."""
    if not len(keys):
        return
    breaks = pc.indices_nonzero(pc.greater(pc.subtract(keys[1:], keys[:-1]), 1)).to_pylist()
    firsts = [0, *(at + 1 for at in breaks)]
    lasts = [*breaks, len(keys) - 1]
    for first, last in zip(firsts, lasts, strict=True):
        yield keys[first].as_py(), keys[last].as_py() + 1


def _column(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    column = rows.column(name)
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
