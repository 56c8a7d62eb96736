"""The decoded tail of one table, schema, shape and topic: segments, and which offsets they stand for."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from planner.errors import FederationError
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import NO_EPOCHS, OffsetRange
from planner.schema import size_of
from proxy.engine.segments import Segments
from proxy.tail.segment import (
    LeasedTail,
    Segment,
    SegmentEvent,
    SegmentState,
    bare_rows,
    ends,
    merged,
    packable,
    relations,
    without_newest,
)
from proxy.tail.tail_ranges import Floor, TailRanges, extend

#: A segment is full at this many rows, or at a third of the whole tail. Tiering frees whole segments, so large ones
#: stay too long; and every segment costs a statement a part of its plan.
SEGMENT_ROWS = 100_000
#: Largest share of the tail in one packed segment. Statements over fewer segments are planned faster, but the first
#: segment, which tiering took over in part, is read through the ranges of a cut.
_PACKED_SHARE = 8


class Generation(TailRanges):
    """Segments, oldest first, and the unbroken offset range of each partition in them. Thread-safe.

    Rows are added under ``writing``; statements never wait for it. ``changed`` is locked for moments and notified.
    """

    def __init__(self, table: str, schema: pa.Schema, segments: Segments) -> None:
        super().__init__()
        self.table = table
        self.schema = schema
        self.writing = threading.Lock()
        #: Freed: the caller gets the table's generation again.
        self.is_retired = False
        self.rows = 0
        self.size = 0
        self._segments = segments
        #: A segment is moved elsewhere by one thread at a time.
        self._moving = threading.Lock()
        self._order: list[Segment] = []
        #: Filled by a large fetch under way: no statement reads them yet.
        self._arriving: list[Segment] = []

    @property
    def disk_size(self) -> int:
        """Bytes, as Arrow held them, of the rows that were moved to disk."""
        return self._size_in(SegmentState.SPILLED)

    @property
    def packed_size(self) -> int:
        """The same of those that were packed in memory."""
        return self._size_in(SegmentState.PACKED)

    def _size_in(self, state: SegmentState) -> int:
        with self.changed:
            return sum(segment.size for segment in self._order if segment.state is state)

    @property
    def memory_size(self) -> int:
        return self.size - self.disk_size

    @contextlib.contextmanager
    def idle(self) -> Iterator[bool]:
        """Hold ``writing`` in this block unless another thread has it; yield whether it is held."""
        is_idle = self.writing.acquire(blocking=False)
        try:
            yield is_idle
        finally:
            if is_idle:
                self.writing.release()

    # --- growing; the caller holds ``writing`` ---

    def add(
        self,
        ranges: Iterable[OffsetRange],
        batches: Iterable[pa.RecordBatch],
        confirm: Callable[[], None] = lambda: None,
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        """Append the rows of ``ranges``: all become visible, or none. ``confirm`` may still refuse them.

        ``epochs`` are leaders' under which the log has them.
        """
        with contextlib.ExitStack() as stack:
            segment: Segment | None = None
            rows = size = 0
            for batch in batches:
                if not batch.num_rows:
                    continue
                if segment is None:
                    segment = stack.enter_context(self._writable())
                    append = stack.enter_context(
                        self._segments.appending(segment.name, self.schema)
                    )
                append(batch)
                rows += batch.num_rows
                size += size_of(batch)
            confirm()
        with self.changed:
            if segment is not None:
                self._count(segment, rows, size)
                extend(segment.ranges, ranges)
                if not segment.has_deletes:
                    segment.append_log.append((segment.rows, dict(segment.ranges)))
                if segment not in self._order:
                    self._order.append(segment)
                if segment.rows >= max(SEGMENT_ROWS, self.rows // 3):
                    segment.on(SegmentEvent.CLOSE)
            self._end_at(ranges, epochs)

    def add_much(
        self,
        ranges: Iterable[OffsetRange],
        batches: Iterable[pa.RecordBatch],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> None:
        """As ``add``, in segments of their own, which may go to disk while the rest is still coming."""
        stops = {item.partition: item.start for item in ranges}
        rest = iter(batches)
        try:
            while (segment := self._filled(rest, stops)) is not None:
                with self.changed:
                    self._arriving.append(segment)
        except BaseException:
            with self.changed:
                arrived, self._arriving = self._arriving, []
            for segment in arrived:
                self._drop(segment)
            raise
        with self.changed:
            arrived, self._arriving = self._arriving, []
            if arrived:
                rest_of_ranges = (
                    OffsetRange(item.partition, stops[item.partition], item.stop)
                    for item in ranges
                )
                extend(arrived[-1].ranges, rest_of_ranges)
                for segment in (*self._order[-1:], *arrived):
                    segment.on(SegmentEvent.CLOSE)
            self._order += arrived
            self.rows += sum(segment.rows for segment in arrived)
            self.size += sum(segment.size for segment in arrived)
            self._end_at(ranges, epochs)

    def _filled(
        self, batches: Iterator[pa.RecordBatch], stops: dict[int, int]
    ) -> Segment | None:
        """Fill one segment, and move ``stops`` behind its rows; None when there are no more."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return None
        segment = Segment(self._segments.create(self.schema))
        starts = dict(stops)
        try:
            with self._segments.appending(segment.name, self.schema) as append:
                for batch in itertools.chain([first], batches):
                    append(batch)
                    segment.rows += batch.num_rows
                    segment.size += size_of(batch)
                    stops.update(ends(batch))
                    if segment.rows >= max(SEGMENT_ROWS, self.rows // 3):
                        break
        except BaseException:
            self._segments.drop(segment.name)
            raise
        segment.ranges = {
            at: OffsetRange(at, starts[at], stop)
            for at, stop in stops.items()
            if stop > starts[at]
        }
        return segment

    @contextlib.contextmanager
    def _writable(self) -> Iterator[Segment]:
        """The segment that takes rows; a new one is dropped again if it gets none."""
        with self.changed:
            last = next((s for s in self._order[-1:] if s.state is SegmentState.OPEN), None)
            if last is not None:
                last.on(SegmentEvent.BEGIN)
        if last is not None:
            try:
                yield last
            finally:
                with self.changed:
                    last.on(SegmentEvent.END)
            return
        segment = Segment(self._segments.create(self.schema))
        try:
            yield segment
        except BaseException:
            self._segments.drop(segment.name)
            raise

    def _count(self, segment: Segment, rows: int, size: int) -> None:
        segment.rows += rows
        segment.size += size
        self.rows += rows
        self.size += size

    # --- shrinking; the caller holds ``writing`` ---

    def forget(self, watermark: Floor) -> None:
        """Drop the segments no cut at this watermark or a later one can need."""
        while True:
            with self.changed:
                if not self._order or any(
                    item.stop > watermark.offset(item.partition)
                    for item in self._order[0].ranges.values()
                ):
                    return
                segment = self._order.pop(0)
                self._count(segment, -segment.rows, -segment.size)
                self._begin_at({item.partition: item.stop for item in segment.ranges.values()})
            self._drop(segment)

    def trim(self, watermark: Floor) -> None:
        """Delete the rows below the watermark inside segments that stay.

        Leased segments stay whole, for statements of older cuts, and those after them, or there would be a hole.
        """
        with self.changed:
            unused = list(itertools.takewhile(lambda segment: not segment.leases, self._order))
            below = [
                {
                    partition: watermark.offset(partition)
                    for partition, item in segment.ranges.items()
                    if item.start < watermark.offset(partition)
                }
                for segment in unused
            ]
            # First, so that no statement counts on rows that go now.
            for segment, offsets in zip(unused, below, strict=True):
                ranges = segment.ranges
                self._begin_at({at: min(to, ranges[at].stop) for at, to in offsets.items()})
                segment.trim(offsets)
            for segment in unused:
                if not segment.ranges:
                    self._order.remove(segment)
                    self._count(segment, -segment.rows, -segment.size)
        for segment in unused:
            if not segment.ranges:
                self._drop(segment)
            elif segment.is_trimmed:
                self._delete(segment)

    def _delete(self, segment: Segment) -> None:
        """Delete the rows below the offsets noted, those included that could not be deleted before."""
        below = " OR ".join(
            f"({KAFKA_PARTITION} = {partition} AND {KAFKA_OFFSET} < {offset})"
            for partition, offset in segment.deleted_below.items()
        )
        gone = self._segments.delete(segment.name, below)
        with self.changed:
            segment.deleted_below = {}
            self._count(segment, -gone, -(segment.size * gone // max(segment.rows, 1)))

    def spill(self) -> bool:
        """Move the oldest segment in memory to disk; False when there is none.

        Statements that lease it go on with the copy in memory, which goes with their last lease.
        """
        with self._moving:
            with self.changed:
                every = (*self._order, *self._arriving)
                segment = next((item for item in every if item.is_movable), None)
                if segment is None:
                    return False
                # The last one is closed, too: it may be a third of the tail.
                segment.on(SegmentEvent.CLOSE)
            name, on_disk = self._segments.copy_to_disk(segment.name), SegmentState.SPILLED
            moved = replace(segment, name=name, append_log=deque(), leases=0, state=on_disk)
            with self.changed:
                among = self._order if segment in self._order else self._arriving
                among[among.index(segment)] = moved
            self._drop(segment)
            return True

    def close_last(self) -> None:
        """Close the last segment if it has its share of the tail: then it is packed once, mostly."""
        with self.changed:
            rows = max(SEGMENT_ROWS, self.rows // _PACKED_SHARE)
            if self._order and self._order[-1].rows >= rows:
                self._order[-1].on(SegmentEvent.CLOSE)

    def clear(self) -> None:
        """Drop everything. Leased segments go with their last lease."""
        with self.changed:
            segments, self._order = self._order, []
            self.rows = self.size = 0
            self._clear()
        for segment in segments:
            self._drop(segment)

    def _drop(self, segment: Segment) -> None:
        with self.changed:
            segment.on(SegmentEvent.DROP)
            if segment.leases:
                return
            segment.on(SegmentEvent.FREE)
        self._segments.drop(segment.name)

    # --- packing; the holder of ``writing`` goes on beside it ---

    def pack(self, newest_bytes: int = 0) -> bool:
        """Put one compressed copy in the place of the oldest full segments; False when there are none to pack.

        The newest segments, of ``newest_bytes`` as Arrow at most, stay as they are.
        Statements that lease them go on with them. If they are trimmed or dropped during it, the copy is thrown away.

        Raises:
            FederationError: memory is out. Nothing has changed.
        """
        with self._moving:
            with self.changed:
                for segment in self._arriving:
                    segment.on(SegmentEvent.CLOSE)  # not the one that is being filled
                rows = sum(segment.rows for segment in (*self._order, *self._arriving))
                limit = max(SEGMENT_ROWS, rows // _PACKED_SHARE)
                older = without_newest(self._order, newest_bytes)
                chosen = packable(older, limit) or packable(self._arriving, limit)
                ranges = merged(chosen)
            if not chosen:
                return False
            try:
                name = self._segments.pack([segment.name for segment in chosen])
            except FederationError:
                if any(segment.is_dropped for segment in chosen):
                    return True
                raise
            size = sum(segment.size for segment in chosen)
            rows = sum(segment.rows for segment in chosen)
            packed = Segment(name, ranges, rows, size, state=SegmentState.PACKED)
            with self.changed:
                is_same = self._replaced(chosen, packed)
            for segment in chosen if is_same else [packed]:
                self._drop(segment)
            return True

    def _replaced(self, chosen: Sequence[Segment], packed: Segment) -> bool:
        """Put ``packed`` in the place of neighbours, unless they changed. The caller holds ``changed``."""
        among = self._order if chosen[0] in self._order else self._arriving
        at = among.index(chosen[0]) if chosen[0] in among else 0
        is_same = among[at : at + len(chosen)] == list(chosen) and not any(
            segment.is_trimmed for segment in chosen
        )
        if is_same and merged(chosen) == packed.ranges:
            among[at : at + len(chosen)] = [packed]
            return True
        return False

    def acquire(
        self, ranges: Iterable[OffsetRange], names: Sequence[str] | None = None
    ) -> LeasedTail | None:
        """Lease the rows of ``ranges``, all columns or these; None while some are missing. Segments stay until it is closed."""
        needed = {item.partition: item for item in ranges}
        with self.changed:
            if not self._covers(needed.values()):
                return None
            leased = [each for each in self._order if each.ranges.keys() & needed.keys()]
            columns = names or self.schema.names
            rows = tuple(row for each in leased for row in relations(each, columns, needed))
            least_rows = sum(bare_rows(segment, needed) for segment in leased)
            for segment in leased:
                segment.leases += 1
        tail = LeasedTail(rows, least_rows)
        tail.callback(self._give_back, leased)
        return tail

    def _give_back(self, segments: list[Segment]) -> None:
        with self.changed:
            for segment in segments:
                segment.leases -= 1
            free = [each for each in segments if each.is_dropped and not each.leases]
            for segment in free:
                segment.on(SegmentEvent.FREE)
        for segment in free:
            self._segments.drop(segment.name)
