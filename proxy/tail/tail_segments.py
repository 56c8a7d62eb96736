"""The segments of one tail, oldest first: they are read, lent and dropped. ``proxy.tail.generations`` fills and moves them."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from planner.evolution.writer_types import WriterIds
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.ports import SqlRelation
from proxy.engine.segments import Segments
from proxy.tail.segment import LeasedTail, Segment, SegmentEvent, bare_rows, relations
from proxy.tail.tail_ranges import Floor, TailRanges

if TYPE_CHECKING:
    from proxy.tail.newest_changes import NewestChanges


@dataclass(frozen=True, slots=True)
class Loan:
    """What one generation lends another of the same table: segments, and the offsets for which they are all rows.

    ``starts``, ``stops`` and ``epochs`` as in ``TailRanges``. ``rowless_ids`` are of records that have no row here.
    """

    segments: tuple[Segment, ...]
    starts: Mapping[int, int]
    stops: Mapping[int, int]
    epochs: Mapping[int, int]
    rowless_ids: WriterIds


class TailSegments(TailRanges):
    """Segments, and what they stand for. Thread-safe.

    Rows are added and deleted under ``writing``; statements never wait for it. ``keys`` are the columns of a keyed table's key:
    then rows are changes, and each has the offset of the one before.
    """

    def __init__(
        self, table: str, schema: pa.Schema, segments: Segments, keys: Sequence[str] = ()
    ) -> None:
        super().__init__()
        self.table = table
        #: Of the segments; what statements see of it, and what batches have that are added.
        self.schema = self.visible = schema
        self.newest: NewestChanges | None = None
        if keys:
            # Other tails need none of it.
            from proxy.tail.newest_changes import PREVIOUS, NewestChanges

            self.schema = schema.append(PREVIOUS)
            self.newest = NewestChanges(table, keys)
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
        #: Ids of all records, of those of ranges without rows, too.
        self._writer_ids: WriterIds = frozenset()
        #: Those of ranges that no segment may stand for.
        self._rowless_ids: WriterIds = frozenset()

    @contextlib.contextmanager
    def idle(self) -> Iterator[bool]:
        """Hold ``writing`` in this block unless another thread has it; yield whether it is held."""
        is_idle = self.writing.acquire(blocking=False)
        try:
            yield is_idle
        finally:
            if is_idle:
                self.writing.release()

    @property
    def keys_size(self) -> int:
        """Bytes of memory that the keys of changes take, beside their rows."""
        return 0 if self.newest is None else self.newest.size

    def _count(self, segment: Segment, rows: int, size: int) -> None:
        segment.rows += rows
        segment.size += size
        self.rows += rows
        self.size += size

    def ranges_of_ids(self) -> dict[int | None, list[OffsetRange]]:
        """Return the ranges of the segments that have rows of a schema's id, by this id; None: those that may have any."""
        by_id: dict[int | None, list[OffsetRange]] = {}
        with self.changed:
            for segment in self._order:
                for each in (None,) if segment.writer_ids is None else segment.writer_ids:
                    by_id.setdefault(each, []).extend(segment.ranges.values())
        return by_id

    def clear(self) -> None:
        """Drop everything. Leased segments go with their last lease."""
        with self.changed:
            segments, self._order = self._order, []
            self.rows = self.size = 0
            self._writer_ids = self._rowless_ids = frozenset()
            self._clear()
        if self.newest is not None:
            self.newest.clear()
        for segment in segments:
            self._drop(segment)

    def _drop(self, segment: Segment) -> None:
        with self.changed:
            segment.on(SegmentEvent.DROP)
            if segment.leases:
                return
            segment.on(SegmentEvent.FREE)
        self._free(segment)

    def _free(self, segment: Segment) -> None:
        if segment.owner is None:
            self._segments.drop(segment.name)
        else:
            segment.owner.give_back()

    def forget(self, watermark: Floor) -> None:
        """Drop the segments no cut at this watermark or a later one can need."""
        if self._drop_below(watermark):
            self._forget_keys()

    def _forget_keys(self) -> None:
        if self.newest is not None:
            with self.changed:
                starts = dict(self._starts)
            self.newest.forget(starts)

    def _drop_below(self, watermark: Floor) -> bool:
        """Drop those segments; say whether there were any."""
        dropped = False
        while True:
            with self.changed:
                if not self._order or any(
                    item.stop > watermark.offset(item.partition)
                    for item in self._order[0].ranges.values()
                ):
                    return dropped
                segment = self._order.pop(0)
                self._count(segment, -segment.rows, -segment.size)
                self._begin_at({item.partition: item.stop for item in segment.ranges.values()})
            self._drop(segment)
            dropped = True

    def trim(self, watermark: Floor) -> None:
        """Delete the rows below the watermark inside segments that stay.

        Leased segments stay whole, for statements of older cuts, and those after them, or there would be a hole.
        """
        with self.changed:
            unused = list(itertools.takewhile(lambda segment: segment.is_ours, self._order))
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
        if any(below):
            self._forget_keys()

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

    def acquire(
        self, ranges: Iterable[OffsetRange], names: Sequence[str] | None = None
    ) -> LeasedTail | None:
        """Lease the rows of ``ranges``, all columns or these; None while some are missing. Segments stay until it is closed."""
        needed = {item.partition: item for item in ranges}
        with self.changed:
            if not self._covers(needed.values()):
                return None
            leased = [each for each in self._order if each.ranges.keys() & needed.keys()]
            columns = names or self.visible.names
            rows = tuple(row for each in leased for row in relations(each, columns, needed))
            superseded = () if self.newest is None else self._superseded(leased, needed)
            # Which changes are rows is not known without reading them.
            is_counted = self.newest is None
            least_rows = (
                sum(bare_rows(segment, needed) for segment in leased) if is_counted else 0
            )
            for segment in leased:
                segment.leases += 1
        tail = LeasedTail(rows, least_rows, superseded)
        tail.callback(self.give_back, leased)
        return tail

    def _superseded(
        self, leased: Sequence[Segment], needed: Mapping[int, OffsetRange]
    ) -> tuple[SqlRelation, ...]:
        from proxy.tail.newest_changes import PREVIOUS, superseded

        columns = (KAFKA_PARTITION, KAFKA_OFFSET, PREVIOUS.name)
        changes = (row for each in leased for row in relations(each, columns, needed))
        return tuple(map(superseded, changes))

    def give_back(self, segments: Sequence[Segment]) -> None:
        """End a lease of each of these."""
        with self.changed:
            for segment in segments:
                segment.leases -= 1
            free = [each for each in segments if each.is_dropped and not each.leases]
            for segment in free:
                segment.on(SegmentEvent.FREE)
        for segment in free:
            self._free(segment)

    # --- another generation of the table reads segments of this one ---

    def lend(self, timeout_s: float) -> Loan:
        """Lease all segments to a borrower, who gives back each. Waits so long at most for a thread that adds rows.

        The segment that takes rows is closed, or left out where such a thread is at work all the time.
        """
        is_idle = self.writing.acquire(timeout=timeout_s)
        try:
            with self.changed:
                segments, stops = list(self._order), dict(self._stops)
                if segments and not segments[-1].is_full:
                    if is_idle:
                        segments[-1].on(SegmentEvent.CLOSE)
                    else:
                        busy = segments.pop()
                        stops |= {at: item.start for at, item in busy.ranges.items()}
                lent = tuple(self._lent(segment) for segment in segments)
                starts, epochs = dict(self._starts), dict(self._epochs)
                return Loan(lent, starts, stops, epochs, self._rowless_ids)
        finally:
            if is_idle:
                self.writing.release()

    def _lent(self, segment: Segment) -> Segment:
        """Lease a segment to a borrower, from its owner. The caller holds ``changed``."""
        owner = segment.owner or _Owner(self, segment)
        owner.lease()
        return replace(segment, append_log=deque(), leases=0, owner=owner)


@dataclass(frozen=True, slots=True)
class _Owner:
    """See ``Owner``."""

    tail: TailSegments
    segment: Segment

    def lease(self) -> None:
        with self.tail.changed:
            self.segment.leases += 1

    def give_back(self) -> None:
        self.tail.give_back([self.segment])
