"""The cut: what one statement reads of one table, and the decision that makes it.

What the types promise:

1. Disjoint and complete. Cold holds exactly the offsets below the watermark, the hot ranges exactly those
   from the watermark to the end. No de-duplication by key is needed.
2. Cold is pinned before the log is measured, so the end cannot lie below the watermark of a healthy log.
3. No gap. If the log no longer has the watermark's offset, planning fails; an answer never has fewer rows.
4. Absent is not zero, except for a partition added after the watermark was written: it starts at 0, so
   that a loss in it shows as a gap (docs/seam-rules.md, T12).
5. Ends are exclusive offsets, not records: transaction markers and compaction leave holes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from planner.errors import (
    BadBinding,
    ClusterChanged,
    FederationError,
    LogTruncated,
    TailGap,
    TopicRecreated,
)
from planner.names import TableName, shell_word, topic_name
from planner.offsets import OffsetRange, OffsetVector
from planner.schema import TableSchema
from planner.seam.binding import TOPIC, Binding, shape_mismatch
from planner.seam.watermark import Watermark


@dataclass(frozen=True, slots=True)
class PinReference:
    """Names a pin, so that any replica can build it again.

    ``metadata_file`` is the last segment of its metadata file's address.
    """

    table: TableName
    table_uuid: str
    metadata_file: str
    snapshot_id: int | None
    schema_id: int


@dataclass(frozen=True, slots=True)
class Pin:
    """One table as the catalog showed it at one moment: everything read from one metadata file.

    ``snapshot_id`` is None when the table never had a snapshot. ``watermark`` is None exactly when
    ``binding`` is: an unbound table is served as plain cold rows. ``grace_s``: for how long maintenance leaves in place what
    it names, from the time on at which another is newer; None where we maintain nothing.
    """

    table: TableName
    table_uuid: str
    metadata_location: str
    snapshot_id: int | None
    schema: TableSchema
    binding: Binding | None = None
    watermark: Watermark | None = None
    comment: str | None = None
    grace_s: int | None = None

    def __post_init__(self) -> None:
        if (self.binding is None) != (self.watermark is None):
            raise ValueError("a pin has a binding exactly when it has a watermark")

    @property
    def reference(self) -> PinReference:
        file = self.metadata_location.rsplit("/", 1)[-1]
        schema_id = self.schema.schema_id
        return PinReference(self.table, self.table_uuid, file, self.snapshot_id, schema_id)


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """One partition as measured: offsets the log holds for committed readers.

    ``log_start`` is the first retained offset, ``log_end`` the last stable offset (exclusive),
    ``high_watermark`` the end for uncommitted readers where it was asked for: the distance between the two
    is what open transactions hold back (docs/internals/seam.md, T7).
    """

    partition: int
    log_start: int
    log_end: int
    leader_epoch: int | None = None
    high_watermark: int | None = None


@dataclass(frozen=True, slots=True)
class LogBounds:
    """One topic as measured in one round, sorted by partition."""

    cluster_id: str
    topic: str
    topic_id: str
    partitions: tuple[PartitionBounds, ...]

    @property
    def epochs(self) -> OffsetVector:
        """The leader epoch of each partition whose broker named it."""
        return OffsetVector.of(
            (each.partition, each.leader_epoch)
            for each in self.partitions
            if each.leader_epoch is not None
        )


@dataclass(frozen=True, slots=True)
class ColdSlice:
    """The cold rows of a cut: one snapshot, read with one schema. No snapshot: no rows."""

    table: TableName
    metadata_location: str
    snapshot_id: int | None
    schema: TableSchema


@dataclass(frozen=True, slots=True)
class HotSlice:
    """The tail of a cut. ``ranges`` start at the watermark; partitions with nothing new are left out.

    ``epochs`` are the leaders' epochs under which the ranges' stops were measured, of those partitions that have one.
    """

    topic: str
    topic_id: str
    ranges: tuple[OffsetRange, ...]
    epochs: OffsetVector = field(default_factory=OffsetVector)


@dataclass(frozen=True, slots=True)
class Increment:
    """The part of a cut that is new to a follower (``planner.seam.incremental``): offsets from ``after`` on.

    A partition absent from ``after`` was never seen. ``since_us``: records of that time or later, microseconds
    since 1970, UTC.
    """

    after: OffsetVector
    since_us: int | None = None

    @property
    def is_everything(self) -> bool:
        """Whether this leaves out nothing: no start, no minimum time."""
        return not len(self.after) and self.since_us is None


@dataclass(frozen=True, slots=True)
class TableCut:
    """What one statement reads of one table. ``hot`` is None where it reads cold rows only.

    ``increment`` narrows both sides; the slices stay those of the whole cut. ``until`` ends a cut that is older than
    its snapshot, below the snapshot's watermark: a partition absent from it has no rows. The tail's ranges end there
    by themselves.
    """

    table: TableName
    table_uuid: str
    cold: ColdSlice
    binding: Binding | None = None
    watermark: Watermark | None = None
    hot: HotSlice | None = None
    increment: Increment | None = None
    until: OffsetVector | None = None

    def __post_init__(self) -> None:
        if not (self.binding is None) == (self.watermark is None) == (self.hot is None):
            raise ValueError("binding, watermark and hot slice come together")
        if self.watermark is not None and self.hot is not None:
            starts = self.watermark.next.as_dict()
            for hot in self.hot.ranges:
                if hot.start != starts.get(hot.partition, 0):
                    raise ValueError(
                        f"the tail of partition {hot.partition} does not start at the watermark"
                    )

    @property
    def cold_reference(self) -> PinReference:
        """The pin it was made from."""
        file = self.cold.metadata_location.rsplit("/", 1)[-1]
        schema_id = self.cold.schema.schema_id
        return PinReference(self.table, self.table_uuid, file, self.cold.snapshot_id, schema_id)

    @property
    def end(self) -> OffsetVector:
        """First offset not in this cut, per partition of watermark or tail."""
        ends: dict[int, int] = {}
        if self.watermark is not None and self.hot is not None:
            ends.update(self.watermark.next)
            ends.update({hot.partition: hot.stop for hot in self.hot.ranges})
        return OffsetVector.of((p, self._ended(p, end)) for p, end in ends.items())

    @property
    def is_cold_whole(self) -> bool:
        """Whether every row of the snapshot is in the cut, including rows that came from no record."""
        if self.increment is not None and not self.increment.is_everything:
            return False
        if self.watermark is None or self.until is None:
            return True
        return all(self._ended(p, end) == end for p, end in self.watermark.next)

    @property
    def new_cold(self) -> tuple[OffsetRange, ...]:
        """Offsets below the watermark that are new to a follower; partitions with none are left out."""
        tiered = () if self.watermark is None else self.watermark.next
        return self._unseen((partition, 0, stop) for partition, stop in tiered)

    @property
    def new_hot(self) -> tuple[OffsetRange, ...]:
        """Offsets of the tail that are new to a follower; partitions with none are left out."""
        ranges = () if self.hot is None else self.hot.ranges
        if self.increment is None and self.until is None:
            # Most cuts. New ranges for 24 partitions would take 50 us of every statement.
            return tuple(span for span in ranges if span.start < span.stop)
        return self._unseen((span.partition, span.start, span.stop) for span in ranges)

    def _unseen(self, spans: Iterable[tuple[int, int, int]]) -> tuple[OffsetRange, ...]:
        after = {} if self.increment is None else self.increment.after.as_dict()
        return tuple(
            OffsetRange(partition, first, end)
            for partition, start, stop in spans
            if (first := max(start, after.get(partition, 0)))
            < (end := self._ended(partition, stop))
        )

    def _ended(self, partition: int, stop: int) -> int:
        return stop if self.until is None else min(stop, self.until.get(partition) or 0)


def plan_cut(pin: Pin, bounds: LogBounds | None) -> TableCut:
    """Split one table's history at its watermark.

    ``bounds`` must have been measured after ``pin`` was taken; None exactly when the pin is unbound.

    Raises:
        ClusterChanged, TopicRecreated: the log is not the one the watermark names.
        TailGap: the log starts above the watermark, records were lost before they were tiered.
        LogTruncated: the watermark is above the log end, or a partition of it is gone.
        ShapeMismatch: as ``check_same_changes``.
    """
    if pin.watermark is None or pin.binding is None or bounds is None:
        if pin.watermark is not None or bounds is not None:
            raise ValueError("bounds come with a bound table, and only then")
        return cold_cut(pin)
    check_same_changes(pin)
    ranges = check_log(pin.table, pin.watermark, bounds)
    hot_ranges = tuple(item for item in ranges if item.start < item.stop)
    measured = {each.partition: each.leader_epoch for each in bounds.partitions}
    epochs = OffsetVector.of(
        (item.partition, epoch)
        for item in hot_ranges
        if (epoch := measured[item.partition]) is not None
    )
    hot = HotSlice(bounds.topic, bounds.topic_id, hot_ranges, epochs)
    return replace(cold_cut(pin), hot=hot)


def cold_cut(pin: Pin) -> TableCut:
    """Cut the pinned snapshot alone, without the log. The cut ends at the watermark."""
    cold = ColdSlice(pin.table, pin.metadata_location, pin.snapshot_id, pin.schema)
    mark = pin.watermark
    hot = None if mark is None else HotSlice(mark.address, mark.topic_id, ())
    return TableCut(pin.table, pin.table_uuid, cold, pin.binding, mark, hot)


def check_same_changes(pin: Pin) -> None:
    """Check that a keyed table's tail has the keys of its rows: read in another way, a key would have two rows.

    Raises:
        ShapeMismatch: what decides on its rows was changed. The snapshot alone is as it was.
    """
    mark, binding = pin.watermark, pin.binding
    if binding is None or mark is None or binding.upsert is None:
        return
    if not binding.gives_rows_of(mark.shape, pin.schema):
        raise shape_mismatch(str(pin.table), binding, mark.shape)


def check_log(
    table: TableName, watermark: Watermark, bounds: LogBounds
) -> tuple[OffsetRange, ...]:
    """Return the untiered range of every partition of the log, empty ones included.

    Raises:
        ClusterChanged, TopicRecreated, TailGap, LogTruncated: see ``plan_cut``.
        BadBinding: as ``check_topic``.
    """
    if bounds.cluster_id != watermark.cluster_id:
        raise ClusterChanged(
            f"{table}: its watermark names Kafka cluster {watermark.cluster_id}, the configured brokers are "
            f"cluster {bounds.cluster_id}; offsets of one mean nothing on the other. Point the server at the "
            f"right brokers, or bind a new table.",
            table=str(table),
            expected=watermark.cluster_id,
            found=bounds.cluster_id,
        )
    check_topic(table, watermark, topic_name(bounds.topic))
    if bounds.topic_id != watermark.topic_id:
        raise TopicRecreated(
            f"{table}: its watermark names topic {watermark.address} with id {watermark.topic_id}, the log has "
            f"{bounds.topic} with id {bounds.topic_id}: the topic was deleted and created again, so its offsets "
            f"start over. Bind a new table to the new topic.",
            table=str(table),
            topic=bounds.topic,
            expected=watermark.topic_id,
            found=bounds.topic_id,
        )
    measured = {each.partition for each in bounds.partitions}
    for partition in watermark.next.partitions:
        if partition not in measured:
            raise LogTruncated(
                f"{table}: cold holds offsets of {watermark.address}/{partition} up to "
                f"{watermark.offset(partition)}, but the topic has no partition {partition}.",
                table=str(table),
                topic=watermark.address,
                partition=partition,
            )
    # Of 500 partitions a look at the vectors for each takes as long as all else.
    starts, epochs = watermark.next.as_dict(), watermark.epochs.as_dict()
    return tuple(
        _untiered(
            table,
            watermark,
            each,
            start=starts.get(each.partition, 0),
            tiered_epoch=epochs.get(each.partition),
        )
        for each in bounds.partitions
    )


def check_topic(table: TableName, watermark: Watermark, topic: str) -> None:
    """Make sure that the binding names the topic whose offsets the table holds.

    Raises:
        BadBinding: ``thermocline.topic`` was changed. Readers go on by the watermark's topic.
    """
    if topic != watermark.topic:
        raise BadBinding(
            f"{table}: property {TOPIC} names topic {topic}, but the table holds offsets of topic {watermark.topic}, by "
            f"its watermark, and offsets of one mean nothing on the other. Set {TOPIC} back to {watermark.topic}, and "
            f"bind a new table to {topic} (`thermocline create`).",
            table=str(table),
            property=TOPIC,
            expected=watermark.topic,
            found=topic,
        )


def _untiered(
    table: TableName,
    watermark: Watermark,
    bounds: PartitionBounds,
    *,
    start: int,
    tiered_epoch: int | None,
) -> OffsetRange:
    """Return what lies above the watermark's ``start``, whose leader's epoch was ``tiered_epoch``."""
    epoch = bounds.leader_epoch
    kind: type[FederationError] = LogTruncated
    epochs: dict[str, object] = {}
    if bounds.log_start > start:
        kind = TailGap
        way = f"gap accept {shell_word(table)}`: it gives the lost range up"
        if watermark.mode == "upsert":
            # A lost delete's row would stay.
            way = f"rebuild {shell_word(table)}`: it reads all that the log has again"
        what = (
            f"cold data ends at offset {start} but the log starts at {bounds.log_start}; "
            f"{bounds.log_start - start} offsets were removed before they were tiered. Raise the topic's retention.ms or "
            f"tier more often, then run `thermocline {way}."
        )
    elif start > bounds.log_end:
        what = (
            f"cold data ends at offset {start} but the log ends at {bounds.log_end}; the log lost records that cold "
            f"holds (an unclean leader election or a restored broker)."
        )
    elif tiered_epoch is not None and epoch is not None and epoch < tiered_epoch:
        epochs = {"epoch": epoch, "known_epoch": tiered_epoch}
        what = (
            f"the log's leader epoch is {epoch}, below {tiered_epoch} at the last tiering; the log was replaced by an "
            f"older copy."
        )
    else:
        return OffsetRange(bounds.partition, start, bounds.log_end)
    raise kind(
        f"{table}: {watermark.address}/{bounds.partition}: {what}",
        table=str(table),
        topic=watermark.address,
        partition=bounds.partition,
        watermark=start,
        log_start=bounds.log_start,
        log_end=bounds.log_end,
        **epochs,
    )
