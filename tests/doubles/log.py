"""The log port in memory: a Kafka cluster's behaviour without a broker.

Offsets behave as Kafka's do: a transaction's marker takes one, open transactions hold the end back, compaction
and deletion leave holes, a recreated topic starts over under another id. Time, randomness and faults come in
through the constructor only.
"""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import attrgetter

import pyarrow as pa

from planner.errors import LogTruncated, LogUnavailable, UnknownTopic
from planner.offsets import NO_EPOCHS, OffsetRange, check_one_per_partition, joined
from planner.ports import LogBatch, TopicSource
from planner.schema import HEADERS_TYPE, RAW_SCHEMA, TIMESTAMPTZ
from planner.seam.cut import LogBounds, PartitionBounds
from planner.seam.range_check import check_ranges

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """What a producer writes. ``value`` None is a tombstone, ``timestamp_ms`` None is no timestamp."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    timestamp_ms: int | None = 0


class _State(Enum):
    OPEN = "open"
    COMMITTED = "committed"
    ABORTED = "aborted"


class MemoryTransaction:
    """A producer's transaction. Its records are readable once it is committed, never if it is aborted."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self.state = _State.OPEN
        self._touched: set[tuple[str, int]] = set()

    def append(self, topic: str, partition: int, record: MemoryRecord) -> int:
        """Write inside the transaction and return the record's offset."""
        self._touched.add((topic, partition))
        return self._log.append(topic, partition, record, transaction=self)

    def commit(self) -> None:
        self._end(_State.COMMITTED)

    def abort(self) -> None:
        self._end(_State.ABORTED)

    def _end(self, state: _State) -> None:
        if self.state is not _State.OPEN:
            raise ValueError(f"the transaction is {self.state.value} already")
        self.state = state
        self._log.end_transaction(self._touched)


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    record: MemoryRecord | None  # None: a transaction marker
    transaction: MemoryTransaction | None = None

    @property
    def is_open(self) -> bool:
        return self.transaction is not None and self.transaction.state is _State.OPEN

    @property
    def is_readable(self) -> bool:
        committed = self.transaction is None or self.transaction.state is _State.COMMITTED
        return self.record is not None and committed


@dataclass(slots=True)
class _Partition:
    start: int = 0
    next: int = 0
    #: Each leader's epoch and the first offset written under it, oldest first.
    leaders: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    entries: list[_Entry] = field(default_factory=list)

    @property
    def epoch(self) -> int:
        return self.leaders[-1][0]

    def elect(self) -> None:
        """Begin a new leader's epoch where the log ends now."""
        epoch = self.epoch + 1
        self.leaders = [item for item in self.leaders if item[1] < self.next]
        self.leaders.append((epoch, self.next))

    def epoch_of(self, offset: int) -> int:
        return max(epoch for epoch, start in self.leaders if start <= offset)

    def end_of(self, epoch: int) -> int:
        """Return where the log of an epoch ends, as OffsetForLeaderEpoch does (KIP-101)."""
        return min([start for later, start in self.leaders if later > epoch] or [self.next])

    @property
    def stable_end(self) -> int:
        """The last stable offset: no open transaction begins below it."""
        return next((entry.offset for entry in self.entries if entry.is_open), self.next)


@dataclass(slots=True)
class _Topic:
    topic_id: str
    partitions: list[_Partition]


class MemoryLog:
    """``planner.ports.Log`` over lists. Thread-safe.

    Faults: ``on_measure`` is called before each measurement, ``on_batch`` before each batch of a fetch; they
    may raise, or change the log as a broker would change under a reader.
    """

    def __init__(
        self,
        *,
        cluster_id: str = "memory",
        batch_rows: int = 1024,
        on_measure: Callable[[], None] | None = None,
        on_batch: Callable[[], None] | None = None,
    ) -> None:
        self._cluster_id = cluster_id
        self._batch_rows = batch_rows
        self._on_measure = on_measure or (lambda: None)
        self._on_batch = on_batch or (lambda: None)
        self._lock = threading.RLock()
        #: Notified when a partition grew or no longer answers as before.
        self._changed = threading.Condition(self._lock)
        self._topics: dict[str, _Topic] = {}
        self._ids = itertools.count(1)
        self._answers = True

    def measure(self, topics: Sequence[str]) -> dict[str, LogBounds]:
        """See ``planner.ports.Log.measure``."""
        self._on_measure()
        with self._lock:
            return {topic: self._bounds(topic) for topic in topics}

    def fetch(
        self,
        source: TopicSource,
        ranges: Sequence[OffsetRange],
        *,
        timeout_s: float,  # nothing here waits
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Generator[pa.RecordBatch, None, None]:
        """See ``planner.ports.Log.fetch``."""
        target = [item for item in ranges if len(item)]
        if not target:
            return
        self.check_history(source, {item.partition: item.start for item in target}, epochs)
        check_one_per_partition(target)
        with self._lock:
            result = self._bounds(source.topic)
        expected = source.topic_id or result.topic_id
        check_ranges(result, target, expected)
        for item in target:
            at = item.start
            while at < item.stop:
                self._on_batch()
                with self._lock:
                    entries = self._read(source.topic, item.partition, at, item.stop)
                at = entries[-1].offset + 1 if len(entries) == self._batch_rows else item.stop
                if entries:
                    yield _batch(item.partition, entries, source)
        self.check(source.topic, target, expected)

    def follow(
        self,
        source: TopicSource,
        starts: Mapping[int, int],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> MemoryFollowing:
        """See ``planner.ports.Log.follow``."""
        return MemoryFollowing(self, source, starts, epochs)

    def check_history(
        self, source: TopicSource, offsets: Mapping[int, int], epochs: Mapping[int, int]
    ) -> None:
        """See ``planner.ports.Log.check_history``."""
        with self._lock:
            partitions = self._topic(source.topic).partitions
            for at, offset in offsets.items():
                if at not in epochs or at >= len(partitions):
                    continue
                end = partitions[at].end_of(epochs[at])
                if end < offset:
                    raise LogTruncated(
                        f"{source.topic}/{at}: the log lost records below offset {offset}.",
                        topic=source.topic,
                        partition=at,
                    )

    def epoch_at(self, topic: str, partition: int, offset: int) -> int:
        """Return the leader's epoch that a record was written under."""
        with self._lock:
            return self._topic(topic).partitions[partition].epoch_of(offset)

    def check(self, topic: str, ranges: Sequence[OffsetRange], topic_id: str) -> None:
        """Raise what is wrong with having read ``ranges``, as ``fetch``."""
        with self._lock:
            check_ranges(self._bounds(topic), ranges, topic_id)

    def readable(
        self, topic: str, topic_id: str, reached: Mapping[int, int], timeout_s: float
    ) -> list[tuple[OffsetRange, list[_Entry]]]:
        """Return what the partitions hold above ``reached``, a batch of each; wait for some if there is none."""
        with self._changed:
            result = self._above(topic, topic_id, reached)
            if not result and self._changed.wait(timeout_s):
                result = self._above(topic, topic_id, reached)
        if result:
            self._on_batch()
        return result

    def _above(
        self, topic: str, topic_id: str, reached: Mapping[int, int]
    ) -> list[tuple[OffsetRange, list[_Entry]]]:
        bounds = self._bounds(topic)
        ends = {item.partition: item.log_end for item in bounds.partitions}
        at = [OffsetRange(partition, start, start) for partition, start in reached.items()]
        check_ranges(bounds, at, topic_id)
        items = []
        for partition, start in reached.items():
            if start < ends[partition]:
                entries = self._read(topic, partition, start, ends[partition])
                full = len(entries) == self._batch_rows
                stop = entries[-1].offset + 1 if full else ends[partition]
                items.append((OffsetRange(partition, start, stop), entries))
        return items

    def create_topic(self, topic: str, partitions: int = 1) -> str:
        """Create a topic and return its id, which no other topic ever has."""
        with self._lock:
            if topic in self._topics:
                raise ValueError(f"topic {topic} exists")
            topic_id = f"topic-{next(self._ids)}"
            self._topics[topic] = _Topic(topic_id, [_Partition() for _ in range(partitions)])
            return topic_id

    def delete_topic(self, topic: str) -> None:
        with self._lock:
            del self._topics[topic]

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow to ``total`` partitions; the new ones are empty."""
        with self._lock:
            partitions = self._topics[topic].partitions
            partitions += [_Partition() for _ in range(total - len(partitions))]

    def append(
        self,
        topic: str,
        partition: int,
        record: MemoryRecord,
        *,
        transaction: MemoryTransaction | None = None,
    ) -> int:
        """Write one record and return its offset."""
        with self._lock:
            return self._put(topic, partition, record, transaction)

    def begin(self) -> MemoryTransaction:
        return MemoryTransaction(self)

    def end_transaction(self, touched: Iterable[tuple[str, int]]) -> None:
        """Write the marker of a transaction to each partition it touched; called by the transaction."""
        with self._lock:
            for topic, partition in sorted(touched):
                self._put(topic, partition, None, None)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the log start up to ``before``, as retention and DeleteRecords do."""
        with self._lock:
            value = self._topics[topic].partitions[partition]
            value.start = max(value.start, min(before, value.next))
            value.entries = [entry for entry in value.entries if entry.offset >= value.start]

    def compact(self, topic: str, partition: int, *, deletes: bool = False) -> None:
        """Keep the newest record of each key; the last entry and what is not stable yet stay.

        With ``deletes``, which are old enough, these go, too.
        """
        with self._lock:
            bounds = self._topics[topic].partitions[partition]
            clean = [entry for entry in bounds.entries if entry.offset < bounds.stable_end]
            newest = {
                entry.record.key: entry.offset
                for entry in clean
                if entry.is_readable and entry.record is not None
            }
            bounds.entries = [
                entry
                for entry in bounds.entries
                if entry.offset >= bounds.stable_end
                or entry.offset == bounds.next - 1
                or (
                    entry.record is not None
                    and newest.get(entry.record.key) == entry.offset
                    and not (deletes and entry.record.value is None)
                )
            ]

    def truncate(self, topic: str, partition: int, end: int) -> None:
        """Lose everything from ``end`` on and elect a new leader, as an unclean election does."""
        with self._lock:
            value = self._topics[topic].partitions[partition]
            value.entries = [entry for entry in value.entries if entry.offset < end]
            value.next = min(value.next, end)
            value.start = min(value.start, value.next)
            value.elect()

    def elect(self, topic: str, partition: int) -> None:
        """Elect a new leader that has all records."""
        with self._lock:
            self._topics[topic].partitions[partition].elect()

    def stop(self) -> None:
        """Let no broker answer until ``start``."""
        self._answers = False
        with self._changed:
            self._changed.notify_all()

    def start(self) -> None:
        self._answers = True

    def _topic(self, topic: str) -> _Topic:
        if not self._answers:
            raise LogUnavailable(
                f"{topic}: the Kafka brokers do not answer; retry when they do.", topic=topic
            )
        value = self._topics.get(topic)
        if value is None:
            raise UnknownTopic(f"the Kafka cluster has no topic {topic}.", topic=topic)
        return value

    def _bounds(self, topic: str) -> LogBounds:
        value = self._topic(topic)
        return LogBounds(
            self._cluster_id,
            topic,
            value.topic_id,
            tuple(
                PartitionBounds(index, item.start, item.stable_end, item.epoch, item.next)
                for index, item in enumerate(value.partitions)
            ),
        )

    def _put(
        self,
        topic: str,
        partition: int,
        record: MemoryRecord | None,
        transaction: MemoryTransaction | None,
    ) -> int:
        value = self._topics[topic].partitions[partition]
        self._changed.notify_all()
        offset = value.next
        value.entries.append(_Entry(offset, record, transaction))
        value.next += 1
        return offset

    def _read(self, topic: str, partition: int, start: int, stop: int) -> list[_Entry]:
        """At most one batch; fewer than that means the range ends here."""
        partitions = self._topic(topic).partitions
        entries = partitions[partition].entries if partition < len(partitions) else []
        first = bisect.bisect_left(entries, start, key=attrgetter("offset"))
        below = itertools.takewhile(
            lambda entry: entry.offset < stop, itertools.islice(entries, first, None)
        )
        return list(
            itertools.islice(
                (partitions for partitions in below if partitions.is_readable), self._batch_rows
            )
        )


class MemoryFollowing:
    """``planner.ports.LogSubscription`` over a ``MemoryLog``."""

    def __init__(
        self,
        log: MemoryLog,
        source: TopicSource,
        starts: Mapping[int, int],
        epochs: Mapping[int, int],
    ) -> None:
        self._log = log
        self._epochs = dict(epochs)
        self._source = source
        self._topic_id = source.topic_id or log.measure([source.topic])[source.topic].topic_id
        self._reached = dict(starts)
        self._lock = threading.Lock()
        self._unconfirmed: tuple[OffsetRange, ...] = ()

    def take(self, timeout_s: float) -> LogBatch | None:
        """See ``planner.ports.LogSubscription.take``."""
        topic = self._source.topic
        items = self._log.readable(topic, self._topic_id, self._reached, timeout_s)
        self._log.check_history(self._source, self._reached, self._epochs)
        if not items:
            return None
        epochs = {
            item.partition: self._log.epoch_at(topic, item.partition, entries[-1].offset)
            for item, entries in items
            if entries
        }
        self._epochs |= epochs
        ranges = tuple(item for item, _ in items)
        self._reached.update({item.partition: item.stop for item in ranges})
        batches = [_batch(item.partition, entries, self._source) for item, entries in items]
        with self._lock:
            self._unconfirmed += ranges
        return LogBatch(pa.concat_batches(batches), ranges, epochs)

    def begin_confirm(self) -> Callable[[], None]:
        """See ``planner.ports.LogSubscription.begin_confirm``."""
        with self._lock:
            ranges, self._unconfirmed = self._unconfirmed, ()
        return lambda: self._log.check(self._source.topic, joined(ranges), self._topic_id)

    def close(self) -> None:
        """Nothing is held."""


def _batch(partition: int, entries: list[_Entry], source: TopicSource) -> pa.RecordBatch:
    records = [entry.record for entry in entries if entry.record is not None]
    stamps = [
        None if record.timestamp_ms is None else record.timestamp_ms * 1000
        for record in records
    ]
    headers = [
        None
        if record.headers is None
        else [{"key": key, "value": value} for key, value in record.headers]
        for record in records
    ]
    count = len(records)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([partition] * count, pa.int32()),
            pa.array([entry.offset for entry in entries], pa.int64()),
            pa.array(stamps, TIMESTAMPTZ),
            pa.array(
                [record.key for record in records] if source.with_key else [None] * count,
                pa.binary(),
            ),
            pa.array(headers if source.with_headers else [None] * count, HEADERS_TYPE),
            pa.array([record.value for record in records], pa.binary()),
        ],
        schema=RAW_SCHEMA,
    )
