"""Which offsets of a topic a tail holds: one unbroken range of each partition."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from planner.offsets import OffsetRange, OffsetVector


class Floor(Protocol):
    """First offset needed, per partition: a watermark, or the lowest of several."""

    def offset(self, partition: int) -> int: ...


@dataclass(frozen=True, slots=True)
class LogEnd:
    """Where a log ended at a time, in seconds since 1970: exclusive, of each partition with something ``above`` a watermark."""

    above: OffsetVector
    stops: Mapping[int, int]
    at_s: float


class TailRanges:
    """The range of each partition. Thread-safe; what begins with ``_`` is for those who hold ``changed``."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        #: Counts what changed other than by adding where the ranges end.
        self.version = 0
        self._starts: dict[int, int] = {}
        self._stops: dict[int, int] = {}
        #: A leader epoch under which the log had what is held, where one is known.
        self._epochs: dict[int, int] = {}
        #: Whether an offset had no record when it was read. It may have been a delete that a cleaner had removed by then.
        self.has_holes = False
        #: An end of the log to reach, and the last one that was reached in time to miss no delete.
        self._next_end: LogEnd | None = None
        self._last_end: LogEnd | None = None

    def stops(self) -> dict[int, int]:
        """First offset that is not held, per partition."""
        with self.changed:
            return dict(self._stops)

    def position(self) -> tuple[dict[int, int], dict[int, int]]:
        """First offset that is not held, and a leader epoch under which the log had all below it, per partition."""
        with self.changed:
            return dict(self._stops), dict(self._epochs)

    def unproven(
        self, epochs: Iterable[tuple[int, int]]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return the position where leaders have changed since: the log may have lost what is held.

        ``epochs`` are those of the leaders now.
        """
        with self.changed:
            rising = [at for at, epoch in epochs if self._epochs.get(at, epoch) < epoch]
            return {at: self._stops[at] for at in rising}, {
                at: self._epochs[at] for at in rising
            }

    def prove(self, offsets: Mapping[int, int], epochs: Iterable[tuple[int, int]]) -> None:
        """Note that under these leaders the log has what is held, as far as it still ends at ``offsets``."""
        with self.changed:
            for partition, epoch in epochs:
                if partition in offsets and self._stops.get(partition) == offsets[partition]:
                    self._epochs[partition] = epoch

    def ranges(self) -> tuple[OffsetRange, ...]:
        """What is held, sorted by partition."""
        with self.changed:
            starts = sorted(self._starts.items())
            return tuple(OffsetRange(at, start, self._stops[at]) for at, start in starts)

    def begins_after(self, needed: Iterable[OffsetRange]) -> bool:
        """Whether a wanted offset lies below what is held."""
        with self.changed:
            return any(item.start < self._starts.get(item.partition, 0) for item in needed)

    def ends_before(self, needed: Iterable[OffsetRange]) -> bool:
        """Whether there is a hole between what is held and what is wanted."""
        with self.changed:
            return any(
                item.partition in self._stops and item.start > self._stops[item.partition]
                for item in needed
            )

    def missing(self, needed: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Return what to add so that ``needed`` is covered. It begins neither before nor behind what is held."""
        with self.changed:
            return tuple(
                OffsetRange(item.partition, start, item.stop)
                for item in needed
                if (start := self._stops.get(item.partition, item.start)) < item.stop
            )

    def present(self, needed: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
        """Return what of ``needed`` is held; nothing of a partition of which more was held before."""
        with self.changed:
            return tuple(
                OffsetRange(item.partition, item.start, stop)
                for item in needed
                if self._starts.get(item.partition, item.stop) <= item.start
                and (stop := min(item.stop, self._stops[item.partition])) > item.start
            )

    def continues(self, ranges: Iterable[OffsetRange]) -> bool:
        """Whether ``ranges`` begin where what is held ends."""
        with self.changed:
            return all(self._stops.get(item.partition) == item.start for item in ranges)

    def begin(
        self, starts: Iterable[tuple[int, int]], epochs: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Hold an empty range at an offset of each partition that is not held yet.

        ``epochs`` are leaders' under which the log had what lies below.
        """
        by_partition = dict(epochs)
        with self.changed:
            for partition, offset in starts:
                if partition not in self._stops:
                    self._starts[partition] = self._stops[partition] = offset
                    if partition in by_partition:
                        self._epochs[partition] = by_partition[partition]
                    self.version += 1

    def extend_to(self, stops: Mapping[int, int], epochs: Mapping[int, int]) -> None:
        """Hold all below these offsets, of partitions that hold something; ``epochs`` as for ``begin``."""
        with self.changed:
            grown = [
                OffsetRange(at, self._stops[at], stop)
                for at, stop in stops.items()
                if stop > self._stops[at]
            ]
            self._end_at(grown, epochs)

    def aim_at(self, end: LogEnd) -> None:
        """Take ``end`` for the next one to reach, unless there is one above the same watermark."""
        with self.changed:
            if self._next_end is None or self._next_end.above != end.above:
                self._next_end = end

    def reach_end(self, above: OffsetVector) -> None:
        """Note that all below the next end is held, if it is. The caller knows that no delete was missed."""
        with self.changed:
            end = self._next_end
            if end is None or end.above != above:
                return
            if all(self._stops.get(at, 0) >= stop for at, stop in end.stops.items()):
                self._last_end, self._next_end = end, None

    def whole_s(self, above: OffsetVector) -> float:
        """Return a time, in seconds since 1970, before which each change above a watermark was read; 0.0: nothing tells."""
        with self.changed:
            end = self._last_end
            return end.at_s if end is not None and end.above == above else 0.0

    def _note_holes(self, ranges: Sequence[OffsetRange], rows: int) -> None:
        """Note that ``ranges`` are added with so many rows."""
        self.has_holes = self.has_holes or rows < sum(map(len, ranges))

    def _covers(self, needed: Iterable[OffsetRange]) -> bool:
        return all(
            item.partition in self._stops
            and self._starts[item.partition] <= item.start
            and item.stop <= self._stops[item.partition]
            for item in needed
        )

    def _begin_at(self, starts: Mapping[int, int]) -> None:
        for partition, start in starts.items():
            self._starts[partition] = max(self._starts[partition], start)

    def _end_at(self, ranges: Iterable[OffsetRange], epochs: Mapping[int, int]) -> None:
        for item in ranges:
            if item.partition not in self._stops:
                self._starts[item.partition] = item.start
                self.version += 1
            self._stops[item.partition] = item.stop
            # Not of others: nothing is read of them under that leader.
            if item.partition in epochs:
                self._epochs[item.partition] = epochs[item.partition]
        self.changed.notify_all()

    def _clear(self) -> None:
        self._starts.clear()
        self._stops.clear()
        self._epochs.clear()
        self.has_holes = False
        self._next_end = self._last_end = None
        self.version += 1


def extend(ranges: dict[int, OffsetRange], following: Iterable[OffsetRange]) -> None:
    """Stand for the offsets of ``following`` too: in each partition they begin where ``ranges`` ends, by partition."""
    for item in following:
        start = ranges.get(item.partition, item).start
        ranges[item.partition] = OffsetRange(item.partition, start, item.stop)
