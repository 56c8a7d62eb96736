"""Consumers that read a topic's partitions, and a pool of warm ones.

Records come as columns (``RAW_SCHEMA``), made from confluent-kafka's messages.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from connectors.kafka.settings import (
    FOLLOWER_DEFAULTS,
    PROOF_SETTINGS,
    Properties,
    consumer_properties,
    refused,
)
from planner.names import topic_name
from planner.offsets import NO_EPOCHS, OffsetRange
from planner.ports import TopicSource
from planner.schema import HEADERS_TYPE, RAW_SCHEMA, TIMESTAMPTZ

#: Idle consumers of one kind that a pool keeps.
MAX_IDLE = 4
#: Messages taken at most for one batch. With more, the memory of their values leaves the processor's cache before it
#: is used again.
MAX_MESSAGES = 2_048
#: Messages there are at a time. Python looks for cycles among its objects whenever there are 700 more of those that can
#: be in one: with 2,048 messages that took a quarter of reading them.
_AT_ONCE = 512
#: Milliseconds beyond this do not fit microseconds in 64 bits (year 294247). A producer may write any number.
_MAX_MS = (2**63 - 1) // 1000
_TIMESTAMP_MS = pa.timestamp("ms", "UTC")


@dataclass(frozen=True, slots=True)
class Event:
    """An end of a partition, or an error. ``offset`` is None where the event has none."""

    error: KafkaError
    partition: int
    offset: int | None


@dataclass(frozen=True, slots=True)
class ConsumedBatch:
    """``records`` (``RAW_SCHEMA``) in the order they arrived, which is that of offsets within a partition.

    ``epochs``: of the last record of each partition that has one, the leader epoch it was written under.
    """

    records: pa.RecordBatch
    events: tuple[Event, ...]
    epochs: Mapping[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.events) or self.records.num_rows > 0


class TopicConsumer:
    """Reads the partitions it is assigned, and joins no group. Not thread-safe."""

    def __init__(self, properties: Properties, *, with_headers: bool) -> None:
        """Make the client; it connects later. Raises KafkaException: librdkafka does not accept a property."""
        self._consumer = Consumer(properties)
        self._with_headers = with_headers
        self._assigned: list[TopicPartition] = []

    def assign(
        self, topic: str, starts: Mapping[int, int], epochs: Mapping[int, int] = NO_EPOCHS
    ) -> None:
        """Read these partitions from these offsets, and no others. Raises KafkaException: the client refuses.

        Where the epoch of what lies below a start is given, the client asks the brokers before it reads, and after each
        change of leaders, whether the log still has it (KIP-320).
        """
        name = topic_name(topic)
        self._assigned = [
            TopicPartition(name, partition, start, leader_epoch=epochs[partition])
            if partition in epochs
            else TopicPartition(name, partition, start)
            for partition, start in starts.items()
        ]
        self._consumer.assign(self._assigned)

    def pause(self, topic: str, partitions: Iterable[int]) -> None:
        """Stop delivering these partitions; records fetched already may still come."""
        name = topic_name(topic)
        self._consumer.pause([TopicPartition(name, partition) for partition in partitions])

    def release(self) -> None:
        """Drop the assignment and the records fetched ahead, so that the next assignment starts clean."""
        # A partition stays paused through unassign and the next assign: it would never deliver again.
        self._consumer.resume(self._assigned)
        self._consumer.unassign()

    def take(self, wait_s: float, limit: int, *, with_key: bool) -> ConsumedBatch:
        """Wait for a record or an event, then take all that is there, at most ``limit`` of both together.

        ``consume`` alone always waits its whole timeout, so the first one is polled.
        """
        first = self._consumer.poll(max(0.0, wait_s))
        if first is None:
            return NOTHING
        lists = _Lists(with_key, self._with_headers)
        lists.add([first])
        left = min(limit, MAX_MESSAGES) - 1
        while left > 0:
            most = min(left, _AT_ONCE)
            # No other reference to these messages exists: they are freed before the next ones come.
            count = lists.add(self._consumer.consume(most, 0))
            left -= count
            if count < most:
                break
        return lists.batch()

    def close(self) -> None:
        self._consumer.close()


@dataclass(slots=True)
class _Lists:
    """The fields of messages, one list each, so that the messages themselves can go."""

    with_key: bool
    with_headers: bool
    partitions: list[int | None] = field(default_factory=list)
    offsets: list[int | None] = field(default_factory=list)
    milliseconds: list[int] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)

    def add(self, messages: list[Message]) -> int:
        """Add messages; return how many they are."""
        records = [message for message in messages if message.error() is None]
        if len(records) < len(messages):
            self.events += _events(messages)
        # map over the unbound methods: half the time of a comprehension, all of it under the interpreter lock.
        partitions = list(map(Message.partition, records))
        self.partitions += partitions
        self.offsets += map(Message.offset, records)
        self.milliseconds += [at for _, at in map(Message.timestamp, records)]
        self.values += map(Message.value, records)
        if self.with_key:
            self.keys += map(Message.key, records)
        if self.with_headers:
            self.headers += map(_headers, map(Message.headers, records))
        # The last message of each partition.
        for partition, message in dict(zip(partitions, records, strict=True)).items():
            epoch = message.leader_epoch()
            if partition is not None and epoch is not None and epoch >= 0:
                self.epochs[partition] = epoch
        return len(messages)

    def batch(self) -> ConsumedBatch:
        count = len(self.values)
        if not count:
            return ConsumedBatch(NO_RECORDS, tuple(self.events))
        columns = [
            pa.array(self.partitions, pa.int32()),
            pa.array(self.offsets, pa.int64()),
            timestamps(self.milliseconds),
            pa.array(self.keys, pa.binary()) if self.with_key else pa.nulls(count, pa.binary()),
            pa.array(self.headers, HEADERS_TYPE)
            if self.with_headers
            else pa.nulls(count, HEADERS_TYPE),
            pa.array(self.values, pa.binary()),
        ]
        records = pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)
        return ConsumedBatch(records, tuple(self.events), self.epochs)


class ConsumerPool:
    """Lends each consumer to one reader at a time. Thread-safe."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        #: Consumers that read headers are another kind.
        self._idle: dict[bool, list[TopicConsumer]] = {False: [], True: []}
        self._closed = False

    @contextlib.contextmanager
    def assigned(
        self,
        source: TopicSource,
        ranges: Sequence[OffsetRange],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Iterator[TopicConsumer]:
        """Lend a consumer that reads from the start of every range (``TopicConsumer.assign``).

        With ``epochs`` it is a new one: librdkafka 2.16 asks for the history of a position when it learns of the leader, and
        of one that it knows already it does not.

        After a failure the consumer is closed, since it may be in any state. Closing early (``GeneratorExit`` in the
        reader) is no failure: the records fetched ahead are dropped.
        """
        idle = self._idle[source.with_headers]
        with self._lock:
            reused = idle.pop() if idle and not epochs else None
        consumer = reused or self._new(
            consumer_properties(self._settings), with_headers=source.with_headers
        )
        try:
            starts = {item.partition: item.start for item in ranges}
            consumer.assign(source.topic, starts, epochs)
            yield consumer
        except GeneratorExit:
            self._give_back(consumer, idle)
            raise
        except BaseException:
            consumer.close()
            raise
        self._give_back(consumer, idle)

    @contextlib.contextmanager
    def proving(
        self, source: TopicSource, starts: Mapping[int, int], epochs: Mapping[int, int]
    ) -> Iterator[TopicConsumer]:
        """Make a consumer for the history of these positions, which reads as little as it can; closed afterwards."""
        properties = consumer_properties({**self._settings, **PROOF_SETTINGS})
        consumer = self._new(properties, with_headers=source.with_headers)
        try:
            consumer.assign(source.topic, starts, epochs)
            yield consumer
        finally:
            consumer.close()

    def following(self, *, with_headers: bool) -> TopicConsumer:
        """Return a new consumer for a reader that goes on; the caller closes it."""
        settings = {**FOLLOWER_DEFAULTS, **self._settings}
        return self._new(consumer_properties(settings), with_headers=with_headers)

    def close(self) -> None:
        """Close the idle consumers; those on loan are closed when they come back."""
        with self._lock:
            self._closed = True
            idle = [consumer for consumers in self._idle.values() for consumer in consumers]
            for consumers in self._idle.values():
                consumers.clear()
        for consumer in idle:
            consumer.close()

    def _new(self, properties: Properties, *, with_headers: bool) -> TopicConsumer:
        try:
            return TopicConsumer(properties, with_headers=with_headers)
        except KafkaException as error:
            raise refused(self._settings, str(error)) from error

    def _give_back(self, consumer: TopicConsumer, idle: list[TopicConsumer]) -> None:
        consumer.release()
        with self._lock:
            keep = not self._closed and len(idle) < MAX_IDLE
            if keep:
                idle.append(consumer)
        if not keep:
            consumer.close()


def timestamps(milliseconds: Sequence[int]) -> pa.Array:
    """Null where the record has none (KafkaProducer's NO_TIMESTAMP is -1) or microseconds cannot hold it."""
    if min(milliseconds) >= 0 and max(milliseconds) <= _MAX_MS:
        return pa.array(milliseconds, _TIMESTAMP_MS).cast(TIMESTAMPTZ)
    return pa.array(
        [1000 * at if 0 <= at <= _MAX_MS else None for at in milliseconds], TIMESTAMPTZ
    )


def _events(messages: Iterable[Message]) -> Iterable[Event]:
    for message in messages:
        error: KafkaError | None = message.error()
        partition = message.partition()
        if error is not None:
            yield Event(error, -1 if partition is None else partition, message.offset())


def _headers(pairs: Any) -> list[dict[str, Any]] | None:
    """Order and repeated keys are kept, and a null value stays null."""
    return None if pairs is None else [{"key": key, "value": value} for key, value in pairs]


NO_RECORDS = pa.RecordBatch.from_pylist([], RAW_SCHEMA)
NOTHING = ConsumedBatch(NO_RECORDS, ())
