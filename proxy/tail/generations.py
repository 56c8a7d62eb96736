"""The decoded tail of one table, schema, shape and topic: segments, and which offsets they stand for."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import pyarrow as pa

from planner.errors import FederationError
from planner.evolution.writer_types import WriterIds
from planner.offsets import NO_EPOCHS, OffsetRange
from planner.ports import all_ids
from planner.schema import size_of
from proxy.tail.segment import (
    Segment,
    SegmentEvent,
    SegmentState,
    ends,
    merged,
    packable,
    without_newest,
)
from proxy.tail.tail_ranges import extend
from proxy.tail.tail_segments import TailSegments

#: A segment is full at this many rows, or at a third of the whole tail. Tiering frees whole segments, so large ones
#: stay too long; and every segment costs a statement a part of its plan.
SEGMENT_ROWS = 100_000
#: At most so many segments are closed before they are full because an id comes up: that is for schemas that change now
#: and then.
_MOST_FIRST_OF_ID = 16
#: Largest share of the tail in one packed segment. Statements over fewer segments are planned faster, but the first
#: segment, which tiering took over in part, is read through the ranges of a cut.
_PACKED_SHARE = 8


#: Returns the ids of the schemas that what was read since the last call was written with.
MetIds = Callable[[], WriterIds]


class Generation(TailSegments):
    """Segments, oldest first, and the unbroken offset range of each partition in them. Thread-safe.

    Rows are added under ``writing``; statements never wait for it. ``changed`` is locked for moments and notified.
    """

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

    # --- growing; the caller holds ``writing`` ---

    def add(
        self,
        ranges: Sequence[OffsetRange],
        batches: Iterable[pa.RecordBatch],
        confirm: Callable[[], None] = lambda: None,
        epochs: Mapping[int, int] = NO_EPOCHS,
        writer_ids: MetIds = lambda: None,
    ) -> None:
        """Append the rows of ``ranges``: all become visible, or none. ``confirm`` may still refuse them.

        ``epochs`` are leaders' under which the log has them.
        """
        met: WriterIds = frozenset()
        with contextlib.ExitStack() as stack:
            batches = stack.enter_context(self._linked(batches))
            segment: Segment | None = None
            rows = size = 0
            for batch in batches:
                met = all_ids(met, writer_ids())
                if not batch.num_rows:
                    continue
                if segment is None:
                    segment = stack.enter_context(self._writable(met))
                    append = stack.enter_context(
                        self._segments.appending(segment.name, self.schema)
                    )
                append(batch)
                rows += batch.num_rows
                size += size_of(batch)
            met = all_ids(met, writer_ids())
            confirm()
        with self.changed:
            self._writer_ids = all_ids(self._writer_ids, met)
            if segment is None:
                self._rowless_ids = all_ids(self._rowless_ids, met)
            else:
                segment.writer_ids = all_ids(segment.writer_ids, met)
                self._count(segment, rows, size)
                extend(segment.ranges, ranges)
                if not segment.has_deletes:
                    segment.append_log.append((segment.rows, dict(segment.ranges)))
                if segment not in self._order:
                    self._order.append(segment)
                if segment.rows >= max(SEGMENT_ROWS, self.rows // 3):
                    segment.on(SegmentEvent.CLOSE)
            self._note_holes(ranges, rows)
            self._end_at(ranges, epochs)

    def add_much(
        self,
        ranges: Sequence[OffsetRange],
        batches: Iterable[pa.RecordBatch],
        epochs: Mapping[int, int] = NO_EPOCHS,
        writer_ids: MetIds = lambda: None,
    ) -> None:
        """As ``add``, in segments of their own, which may go to disk while the rest is still coming."""
        with self._linked(batches) as linked:
            self._add_much(ranges, iter(linked), epochs, writer_ids)

    @contextlib.contextmanager
    def _linked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Iterable[pa.RecordBatch]]:
        """Yield the batches; of a keyed table with the change before each, which counts for later ones where nothing fails."""
        if self.newest is None:
            yield batches
            return
        with self.newest.adding(batches) as linked:
            yield linked

    def _add_much(
        self,
        ranges: Sequence[OffsetRange],
        rest: Iterator[pa.RecordBatch],
        epochs: Mapping[int, int],
        writer_ids: MetIds,
    ) -> None:
        stops = {item.partition: item.start for item in ranges}
        try:
            while (segment := self._filled(rest, stops, writer_ids)) is not None:
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
            self._rowless_ids = all_ids(self._rowless_ids, writer_ids())
            if arrived:
                rest_of_ranges = (
                    OffsetRange(item.partition, stops[item.partition], item.stop)
                    for item in ranges
                )
                extend(arrived[-1].ranges, rest_of_ranges)
                for segment in (*self._order[-1:], *arrived):
                    segment.on(SegmentEvent.CLOSE)
            self._order += arrived
            rows = sum(segment.rows for segment in arrived)
            self.rows += rows
            self.size += sum(segment.size for segment in arrived)
            self._note_holes(ranges, rows)
            self._end_at(ranges, epochs)

    def _filled(
        self, batches: Iterator[pa.RecordBatch], stops: dict[int, int], writer_ids: MetIds
    ) -> Segment | None:
        """Fill one segment, and move ``stops`` behind its rows; None when there are no more."""
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return None
        segment = self._created(writer_ids())
        starts = dict(stops)
        try:
            with self._segments.appending(segment.name, self.schema) as append:
                for batch in itertools.chain([first], batches):
                    append(batch)
                    segment.rows += batch.num_rows
                    segment.size += size_of(batch)
                    stops.update(ends(batch))
                    segment.writer_ids = all_ids(segment.writer_ids, writer_ids())
                    if segment.rows >= max(SEGMENT_ROWS, self.rows // 3):
                        break
        except BaseException:
            self._segments.drop(segment.name)
            raise
        with self.changed:
            self._writer_ids = all_ids(self._writer_ids, segment.writer_ids)
        segment.ranges = {
            at: OffsetRange(at, starts[at], stop)
            for at, stop in stops.items()
            if stop > starts[at]
        }
        return segment

    @contextlib.contextmanager
    def _writable(self, writer_ids: WriterIds) -> Iterator[Segment]:
        """The segment that takes rows of these ids; a new one is dropped again if it gets none."""
        with self.changed:
            last = next((s for s in self._order[-1:] if s.state is SegmentState.OPEN), None)
            if last is not None and self._comes_up(writer_ids):
                last.on(SegmentEvent.CLOSE)
                last = None
            if last is not None:
                last.on(SegmentEvent.BEGIN)
        if last is not None:
            try:
                yield last
            finally:
                with self.changed:
                    last.on(SegmentEvent.END)
            return
        segment = self._created(writer_ids)
        try:
            yield segment
        except BaseException:
            self._segments.drop(segment.name)
            raise

    def _created(self, writer_ids: WriterIds) -> Segment:
        """Create an empty segment for rows of these ids."""
        segment = Segment(self._segments.create(self.schema), writer_ids=writer_ids)
        segment.is_first_of_id = self._comes_up(writer_ids)
        return segment

    def _comes_up(self, writer_ids: WriterIds) -> bool:
        """Whether an id is new here, and there are no more of them than schemas that change bring."""
        if writer_ids is None or self._writer_ids is None or writer_ids <= self._writer_ids:
            return False
        every = (*self._order, *self._arriving)
        firsts = sum(segment.is_first_of_id for segment in every)
        return bool(every) and firsts < _MOST_FIRST_OF_ID

    def borrow(self, segment: Segment, epochs: Mapping[int, int]) -> None:
        """Add a segment of another generation, whose ranges begin where this one ends, or below.

        ``epochs`` are leaders' under which the log has them. The caller holds ``writing``.
        """
        with self.changed:
            for last in self._order[-1:]:
                last.on(SegmentEvent.CLOSE)
            self._order.append(segment)
            self.rows += segment.rows
            self.size += segment.size
            self._writer_ids = all_ids(self._writer_ids, segment.writer_ids)
        self.extend_to({at: item.stop for at, item in segment.ranges.items()}, epochs)

    # --- moving ---

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
            name = self._segments.copy_to_disk(segment.source(self.schema.names))
            moved = replace(
                segment,
                name=name,
                append_log=deque(),
                leases=0,
                state=SegmentState.SPILLED,
                owner=None,
                expressions=None,
            )
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
                names = self.schema.names
                name = self._segments.pack([segment.source(names) for segment in chosen])
            except FederationError:
                if any(segment.is_dropped for segment in chosen):
                    return True
                raise
            size = sum(segment.size for segment in chosen)
            rows = sum(segment.rows for segment in chosen)
            packed = Segment(name, ranges, rows, size, state=SegmentState.PACKED)
            packed.writer_ids = reduce(all_ids, (segment.writer_ids for segment in chosen))
            packed.is_first_of_id = chosen[0].is_first_of_id
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
