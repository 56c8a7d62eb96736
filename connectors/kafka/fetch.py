"""Read assigned ranges to their stops: when a partition is finished, and when a read has failed.

A partition is finished when (docs/internals/seam.md has the reasons)

1. a record at offset ``stop - 1`` or above was delivered; one at or above the stop is dropped, or
2. an end-of-partition event arrived with an offset at or above the stop.

Offsets below the stop may hold no record (transaction markers, aborted data, compaction), so neither counting
nor waiting for ``stop - 1`` alone would end. ``position()`` is never asked: it stalls in front of compacted
offsets. A range that does neither before the deadline fails the read; it is never returned short.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError

from connectors.kafka.consumer import NO_RECORDS, Event, TopicConsumer
from connectors.kafka.errors import Meaning, is_truncation, meaning, translate
from planner.errors import LogUnavailable
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.ports import TopicSource

#: Rows and bytes after which a batch is handed on: large enough for Arrow, small enough to free messages early.
BATCH_ROWS = 16_384
BATCH_BYTES = 16 * 1024 * 1024
# Between two checks of the clock while nothing arrives.
_POLL_S = 0.2


class OutOfRange(Exception):
    """The brokers refuse an offset of the ranges. Measure the bounds to see which one and why.

    ``is_truncation``: the client found that the log lost records below a partition's position.
    """

    def __init__(self, error: KafkaError, partition: int) -> None:
        super().__init__(error.name())
        self.partition = partition
        self.is_truncation = is_truncation(error)


@dataclass(slots=True)
class WaitBudget:
    """How long a read may still wait. The clock stands still while the caller works on a batch."""

    left_s: float


@dataclass(slots=True)
class Rows:
    size_bytes: int = 0
    _batches: list[pa.RecordBatch] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(batch.num_rows for batch in self._batches)

    def add(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._batches.append(batch)
            # Not ``nbytes``, which walks every column: these batches are no slices of larger ones.
            self.size_bytes += batch.get_total_buffer_size()

    def take(self) -> pa.RecordBatch:
        batches, self._batches, self.size_bytes = self._batches, [], 0
        if len(batches) < 2:
            return batches[0] if batches else NO_RECORDS
        return pa.concat_batches(batches)


def read(
    consumer: TopicConsumer,
    source: TopicSource,
    ranges: Sequence[OffsetRange],
    budget: WaitBudget,
    *,
    on_silence: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges the consumer is assigned to.

    Calls ``on_silence`` when nothing arrived for a while; an error from it ends the read.

    Raises:
        OutOfRange: a start is below the log start or above the log end.
        UnknownTopic, LogUnavailable: see ``planner.ports.Log.fetch``.
    """
    topic = source.topic
    stops = {item.partition: item.stop for item in ranges}
    reached = {item.partition: item.start for item in ranges}
    rows = Rows()
    while reached:
        began = time.monotonic()
        wait_s = min(_POLL_S, budget.left_s)
        batch = consumer.take(wait_s, BATCH_ROWS - len(rows), with_key=source.with_key)
        if not batch:
            on_silence()
        pieces = []
        for stretch in stretches(batch.records):
            pieces.append(stretch.below(stops[stretch.partition]))
            if stretch.partition in reached:
                reached[stretch.partition] = stretch.last + 1
        rows.add(_joined(pieces, batch.records))
        take_events(batch.events, topic, reached)
        finished = [partition for partition, at in reached.items() if at >= stops[partition]]
        for partition in finished:
            del reached[partition]
        if finished and reached:
            # Records above the stops of these partitions would only crowd out the others.
            consumer.pause(topic, finished)
        budget.left_s -= time.monotonic() - began
        if reached and budget.left_s <= 0:
            raise _unreached(topic, reached, stops)
        if len(rows) >= BATCH_ROWS or rows.size_bytes >= BATCH_BYTES:
            yield rows.take()
    if len(rows):
        yield rows.take()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive records of one partition. Their offsets rise."""

    partition: int
    #: The highest offset.
    last: int
    count: int
    _begin: int
    _among: pa.RecordBatch

    def below(self, stop: int) -> pa.RecordBatch:
        records = self._among.slice(self._begin, self.count)
        if self.last < stop:
            return records
        offsets = records.column(KAFKA_OFFSET)
        return records.slice(0, pc.sum(pc.less(offsets, stop)).as_py())


def stretches(records: pa.RecordBatch) -> Iterator[Stretch]:
    """Split the records by partition, in the order they arrived."""
    partitions, offsets = records.column(KAFKA_PARTITION), records.column(KAFKA_OFFSET)
    begin = 0
    for end in pc.run_end_encode(partitions).run_ends.to_pylist():
        partition, last = partitions[begin].as_py(), offsets[end - 1].as_py()
        yield Stretch(partition, last, end - begin, begin, records)
        begin = end


def _joined(pieces: list[pa.RecordBatch], whole: pa.RecordBatch) -> pa.RecordBatch:
    """Join the remaining slices of ``whole``; mostly they are all of it."""
    if sum(piece.num_rows for piece in pieces) == whole.num_rows:
        return whole
    return pa.concat_batches(pieces)


def take_events(events: Iterable[Event], topic: str, reached: dict[int, int]) -> None:
    """Note the ends of partitions, and raise errors that do not pass by waiting.

    Raises OutOfRange, UnknownTopic, LogUnavailable: see ``read``.
    """
    for event in events:
        if event.error.code() == KafkaError._PARTITION_EOF:
            partition, offset = event.partition, event.offset
            if partition in reached and offset is not None:
                reached[partition] = max(reached[partition], offset)
            continue
        match meaning(event.error):
            case Meaning.WAIT:
                continue
            case Meaning.OUT_OF_RANGE | Meaning.TRUNCATED:
                raise OutOfRange(event.error, event.partition)
            case _:
                raise translate(event.error, topic)


def _unreached(topic: str, reached: dict[int, int], stops: dict[int, int]) -> LogUnavailable:
    partition, at = min(reached.items())
    return LogUnavailable(
        f"{topic}/{partition}: target unreachable: records up to offset {stops[partition]} must be read, "
        f"nothing beyond {at} arrived in time; retry when the partition's leader answers.",
        topic=topic,
        partition=partition,
        reached=at,
        stop=stops[partition],
    )
