"""One tail of a server: its generation, its follower and its status; and which tails have a follower."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from planner.errors import DeadlineExceeded, FederationError, LogUnavailable, UndecodableRecord
from planner.names import TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.seam.binding import decoded_schema, decoding_key
from planner.seam.cut import HotSlice, TableCut
from planner.seam.seam_table import TailFacts
from planner.seam.watermark import Watermark
from proxy.engine.segments import Segments
from proxy.tail.budget import OutcomeTally, TailLimits, TailState
from proxy.tail.follower import Follower
from proxy.tail.generations import Generation
from proxy.tail.reader.source import TailSource, TopicReader
from proxy.tail.segment import LeasedTail

#: A statement fetches up to this many offsets by itself, as a whole or not at all. More may take longer than it can
#: wait, so they are followed from the first one: what has arrived stays when the statement ends.
FETCHED_RECORDS = 1_000_000


@dataclass(frozen=True, slots=True)
class FollowSettings:
    """Which tails are followed, and for how long.

    ``tables`` are always followed. Others are followed from the first statement until ``idle_s`` without one, at most
    ``max_tables`` at a time. Rows that tiering took over stay for tickets up to ``keep_s`` old.
    """

    tables: tuple[TableName, ...] = ()
    idle_s: float = 600.0
    max_tables: int = 64
    keep_s: float = 10.0


class PinsInUse:
    """The watermarks of one table seen in the last ``keep_s`` seconds, for tickets, and always the last one seen.

    One thread at a time may note, any may read.
    """

    def __init__(self, keep_s: float) -> None:
        self._keep_s = keep_s
        self._used_at: dict[OffsetVector, float] = {}
        self._lowest: dict[int, int] = {}

    def note(self, watermark: Watermark, now: float) -> None:
        """Note a pin in use; ``now`` is a monotonic time."""
        if len(self._used_at) == 1 and watermark.next in self._used_at:
            # Every statement between two publishes but the first few.
            self._used_at[watermark.next] = now
            return
        self._used_at.pop(watermark.next, None)
        self._used_at = {
            used: at for used, at in self._used_at.items() if now - at < self._keep_s
        } | {watermark.next: now}
        first, *others = map(OffsetVector.as_dict, self._used_at)
        # A partition that is not in a watermark is newer: all of it is needed.
        self._lowest = {
            partition: min([offset, *(other.get(partition, 0) for other in others)])
            for partition, offset in first.items()
        }

    def offset(self, partition: int) -> int:
        """First offset a cut of these pins can need."""
        return self._lowest.get(partition, 0)


@dataclass
class FollowedTable:
    """One generation with its follower and counts. ``began_s``: when it was made, in seconds since 1970."""

    table: TableName
    source: TailSource
    reader: TopicReader
    generation: Generation
    tally: OutcomeTally
    limits: TailLimits
    pins: PinsInUse
    used_at: float
    began_s: float
    #: The generation under another schema that this one begins with, until the first statement.
    ancestor: FollowedTable | None = None
    follower: Follower | None = None
    #: The newest log ends that statements measured.
    ends: dict[int, int] = field(default_factory=dict)

    def begin(self, missing: Sequence[OffsetRange], watermark: Watermark) -> None:
        """Hold what has nothing yet from where ``missing`` begins, or from the watermark."""
        starts = dict(watermark.next) | {item.partition: item.start for item in missing}
        below = epochs_below(missing, self.generation, watermark)
        self.generation.begin(starts.items(), below.items())

    def clear(self) -> None:
        """Drop all rows, when no thread adds any; they are read anew."""
        with self.generation.writing:
            self.generation.clear()


def generation_of(source: TailSource, segments: Segments) -> Generation:
    """Return an empty generation for what is read of a topic."""
    upsert = source.binding.upsert
    keys = () if upsert is None else [each.name for each in upsert.columns(source.schema)]
    schema = decoded_schema(source.schema, source.binding)
    return Generation(source.table, schema, segments, keys)


def key_of(cut: TableCut) -> tuple[object, ...] | None:
    """Name a generation by everything its rows depend on; None: the cut has no tail."""
    schema, hot, binding = cut.cold.schema, cut.hot, cut.binding
    if hot is None or binding is None:
        return None
    decoding = decoding_key(schema, binding)
    return (cut.table, cut.table_uuid, schema.schema_id, decoding, hot.topic_id)


def ancestor_of(
    key: tuple[object, ...], entries: Mapping[tuple[object, ...], FollowedTable]
) -> FollowedTable | None:
    """Return the last of ``entries`` whose key differs in the schema alone: it has the same records."""
    records = _records(key)
    same = (entries[each] for each in reversed(tuple(entries)) if _records(each) == records)
    return next(same, None)


def _records(key: tuple[object, ...]) -> tuple[object, ...]:
    table, uuid, _, decoding, topic_id = key
    return table, uuid, str(decoding).partition(".")[2], topic_id


def needed(ranges: Sequence[OffsetRange], watermark: Watermark) -> tuple[OffsetRange, ...]:
    """Start at the watermark, so that a statement that reads less shares its tail with those that read all."""
    return tuple(
        OffsetRange(
            item.partition, min(item.start, watermark.offset(item.partition)), item.stop
        )
        for item in ranges
    )


def epochs_below(
    missing: Sequence[OffsetRange], generation: Generation, watermark: Watermark
) -> dict[int, int]:
    """Return leader epochs under which the log had what lies below ``missing``, where they are known."""
    stops, epochs = generation.position()
    tiered = watermark.epochs.as_dict()
    result = {}
    for item in missing:
        at = item.partition
        if at in epochs and stops.get(at) == item.start:
            result[at] = epochs[at]
        elif at in tiered and watermark.offset(at) == item.start:
            result[at] = tiered[at]
    return result


def older(epochs: Mapping[int, int], hot: HotSlice) -> dict[int, int]:
    """Return those that are not the leaders' any more: a leader only adds to its log."""
    now = hot.epochs.as_dict()
    return {at: epoch for at, epoch in epochs.items() if epoch < now.get(at, epoch)}


def leased(
    generation: Generation,
    ranges: Sequence[OffsetRange],
    names: Sequence[str] | None,
    any_rows: int | None,
) -> LeasedTail | None:
    """Lease all of ``ranges``, or what is there of them where that has ``any_rows``; None while there is less."""
    tail = generation.acquire(ranges, names)
    if tail is not None or any_rows is None:
        return tail
    tail = generation.acquire(generation.present(ranges), names)
    if tail is not None and tail.least_rows < any_rows:
        tail.close()
        return None
    return tail


def state_of(entry: FollowedTable, now_s: float) -> TailState:
    stops = entry.generation.stops()
    lag = sum(max(0, end - stops.get(at, 0)) for at, end in list(entry.ends.items()))
    rate = None if entry.follower is None else entry.follower.rate.per_s(now_s)
    return TailState(
        table=entry.table,
        topic=entry.source.topic,
        schema_id=entry.source.schema.schema_id,
        is_followed=entry.follower is not None,
        ranges=entry.generation.ranges(),
        lag=lag,
        rest_s=0.0 if not lag else lag / rate if rate else None,
        rows=entry.generation.rows,
        size=entry.generation.size,
        packed=entry.generation.packed_size,
        on_disk=entry.generation.disk_size,
        error=None if entry.follower is None else entry.follower.error,
        outcomes=entry.tally.total,
    )


def facts_of(entry: FollowedTable | None, now_s: float) -> TailFacts:
    """Return what is read of a tail, and how fast; None: no statement has named it yet."""
    if entry is None:
        return TailFacts({})
    rate = None if entry.follower is None else entry.follower.rate.per_s(now_s)
    return TailFacts(entry.generation.stops(), rate)


def is_small_fetch(
    generation: Generation, only: Sequence[OffsetRange], ranges: Sequence[OffsetRange]
) -> bool:
    """Whether to read ``only`` alone: a statement fetches it by itself, and not what ``ranges`` lack."""
    is_less = len(only) < len(ranges) and not is_too_much(only)
    return is_less and is_too_much(generation.missing(ranges))


def is_too_much(ranges: Iterable[OffsetRange]) -> bool:
    """Whether ranges have more offsets than one statement fetches by itself."""
    return sum(map(len, ranges)) > FETCHED_RECORDS


def surely_fits(
    generation: Generation, missing: tuple[OffsetRange, ...], limits: TailLimits
) -> bool:
    """Whether the limits leave room, as far as offsets tell before the fetch: they bound rows, not bytes."""
    offsets = sum(map(len, missing))
    return (
        generation.rows + offsets <= limits.max_rows and generation.size * 2 <= limits.max_bytes
    )


def raise_undecodable(error: FederationError | None, ranges: Sequence[OffsetRange]) -> None:
    """Raise at once for a record that did not decode: it will not decode for the statement either."""
    if isinstance(error, UndecodableRecord):
        partition, offset = error.facts["partition"], cast("int", error.facts["offset"])
        if any(at.partition == partition and at.start <= offset < at.stop for at in ranges):
            raise type(error)(error.message, **error.facts) from error


def late_fetch(
    entry: FollowedTable, missing: Sequence[OffsetRange], error: DeadlineExceeded
) -> DeadlineExceeded:
    offsets = sum(map(len, missing))
    return DeadlineExceeded(
        f"{entry.table}: the statement's time was over before the {offsets:,} offsets that its tail lacked were read. "
        f"They are read on: try again.",
        **error.facts,
        table=str(entry.table),
        offsets=offsets,
    )


def unreached(entry: FollowedTable, missing: Sequence[OffsetRange]) -> LogUnavailable:
    first = missing[0]
    return LogUnavailable(
        f"{entry.source.topic}/{first.partition}: target unreachable: records up to offset {first.stop} must be "
        f"read, nothing beyond {first.start} arrived in time; retry when the partition's leader answers.",
        topic=entry.source.topic,
        partition=first.partition,
        reached=first.start,
        stop=first.stop,
    )
