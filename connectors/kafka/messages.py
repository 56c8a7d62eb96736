"""Consuming through confluent-kafka: a Python object per record.

For records with headers, which librdkafka's structs do not hold, and where its functions cannot be reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from connectors.kafka.consuming import (
    NO_RECORDS,
    NOTHING,
    ConsumedBatch,
    Event,
    raw_batch,
    timestamps,
)
from connectors.kafka.settings import Properties
from planner.schema import HEADERS_TYPE

#: Messages taken in one call, which holds the interpreter lock.
MAX_MESSAGES = 2_048


class MessageConsumer:
    """``connectors.kafka.consuming.Consuming``."""

    def __init__(self, properties: Properties, *, with_headers: bool) -> None:
        """Connect to nobody yet.

        Raises:
            KafkaException: librdkafka does not accept a property.
        """
        self._consumer = Consumer(properties)
        self._with_headers = with_headers
        self._assigned: list[TopicPartition] = []

    def assign(self, topic: str, starts: Mapping[int, int]) -> None:
        """See ``Consuming.assign``."""
        self._assigned = [TopicPartition(topic, *start) for start in starts.items()]
        self._consumer.assign(self._assigned)

    def pause(self, topic: str, partitions: Iterable[int]) -> None:
        """See ``Consuming.pause``."""
        self._consumer.pause([TopicPartition(topic, partition) for partition in partitions])

    def release(self) -> None:
        """See ``Consuming.release``."""
        # A partition stays paused through unassign and the next assign: it would never deliver again [ran].
        self._consumer.resume(self._assigned)
        self._consumer.unassign()

    def take(self, wait_s: float, limit: int, *, with_key: bool) -> ConsumedBatch:
        """See ``Consuming.take``. ``consume`` alone always waits its whole timeout."""
        first = self._consumer.poll(max(0.0, wait_s))
        if first is None:
            return NOTHING
        more = min(limit, MAX_MESSAGES) - 1
        messages = [first, *(self._consumer.consume(more, 0) if more else ())]
        records = [message for message in messages if message.error() is None]
        batch = self._columns(records, with_key=with_key) if records else NO_RECORDS
        if len(records) == len(messages):
            return ConsumedBatch(batch, ())
        return ConsumedBatch(batch, tuple(_events(messages)))

    def close(self) -> None:
        """See ``Consuming.close``."""
        self._consumer.close()

    def _columns(self, records: list[Message], *, with_key: bool) -> pa.RecordBatch:
        # map over the unbound methods: half the time of a comprehension, all of it under the interpreter lock.
        return raw_batch(
            pa.array(map(Message.partition, records), pa.int32()),
            pa.array(map(Message.offset, records), pa.int64()),
            timestamps([at for _, at in map(Message.timestamp, records)]),
            pa.array(map(Message.key, records), pa.binary()) if with_key else None,
            pa.array([_headers(message.headers()) for message in records], HEADERS_TYPE)
            if self._with_headers
            else None,
            pa.array(map(Message.value, records), pa.binary()),
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
