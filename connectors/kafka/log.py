"""The log port over a real Kafka cluster."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Self

import pyarrow as pa
from confluent_kafka import KafkaError

from connectors.kafka.bounds import BoundsReader
from connectors.kafka.consumer import MAX_MESSAGES, ConsumedBatch, ConsumerPool
from connectors.kafka.errors import lost_history, no_answer, refused_offsets
from connectors.kafka.fetch import OutOfRange, WaitBudget, read, stretches, take_events
from connectors.kafka.range_check import Guard
from connectors.kafka.settings import checked
from connectors.kafka.subscription import KafkaSubscription
from planner.errors import FederationError, LogUnavailable, Unavailable, UnknownTopic
from planner.names import cluster_of, topic_name
from planner.offsets import NO_EPOCHS, OffsetRange, check_one_per_partition
from planner.ports import TopicSource
from planner.seam.cut import LogBounds

MEASURE_TIMEOUT_S = 5.0
# Kafka's own rule for topic names (org.apache.kafka.common.internals.Topic).
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class KafkaLog:
    """``planner.ports.Log`` with librdkafka, for topics by their addresses (``planner.names``).

    Made from plain settings anywhere, a Spark executor included. It does not survive a fork.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        *,
        cluster: str = "",
        measure_timeout_s: float = MEASURE_TIMEOUT_S,
        with_high_watermark: bool = False,
    ) -> None:
        """``settings`` are librdkafka properties, ``cluster`` its name there. No broker needs to answer yet.

        Raises BadConfig: a property is unknown, malformed, missing, or one that Thermocline sets.
        """
        properties = checked(settings)
        self._cluster = cluster
        self._measure_timeout_s = measure_timeout_s
        self._bounds = BoundsReader(properties, with_high_watermark=with_high_watermark)
        self._consumers = ConsumerPool(properties)

    def measure(self, topics: Sequence[str]) -> dict[str, LogBounds]:
        for topic in topics:
            self._check_name(topic)
        if not topics:
            return {}
        return self._bounds.measure(topics, deadline=time.monotonic() + self._measure_timeout_s)

    def fetch(
        self,
        source: TopicSource,
        ranges: Sequence[OffsetRange],
        *,
        timeout_s: float,
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Generator[pa.RecordBatch, None, None]:
        """See ``planner.ports.Log.fetch``. The time the caller spends between batches does not count."""
        self._check_name(source.topic)
        spans = [item for item in ranges if len(item)]
        if not spans:
            return
        check_one_per_partition(spans)
        budget = WaitBudget(timeout_s)
        # Sent beside the first fetch, not before it; read when there is a batch to yield.
        guard = Guard(self._bounds, source, spans, timeout_s=timeout_s)
        try:
            with self._consumers.assigned(source, spans, epochs) as consumer:
                for batch in read(
                    consumer, source, spans, budget, on_silence=guard.check_before
                ):
                    guard.check_before()
                    yield batch
        except OutOfRange as error:
            guard.check_again(budget.left_s)
            raise _refusal(error, source.topic, spans) from error
        except LogUnavailable:
            # If the log cannot give the ranges at all, the caller gets that error.
            with contextlib.suppress(Unavailable):
                guard.check_again(0)
            raise
        guard.check_again(budget.left_s)

    def follow(
        self,
        source: TopicSource,
        starts: Mapping[int, int],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> KafkaSubscription:
        self._check_name(source.topic)
        consumer = self._consumers.following(with_headers=source.with_headers)
        return KafkaSubscription(consumer, self._bounds, source, starts, epochs)

    def check_history(
        self, source: TopicSource, offsets: Mapping[int, int], epochs: Mapping[int, int]
    ) -> None:
        """See ``planner.ports.Log.check_history``. Reads on from the offsets: only a fetch makes the client check.

        The time limit starts again with each proven partition, so more partitions may take longer.
        """
        self._check_name(source.topic)
        positions = [OffsetRange(partition, at, at) for partition, at in offsets.items()]
        guard = Guard(self._bounds, source, positions, timeout_s=self._measure_timeout_s)
        guard.check_before()
        deadline = time.monotonic() + self._measure_timeout_s
        unproven = dict(offsets)
        with self._consumers.proving(source, offsets, epochs) as consumer:
            while unproven:
                if (left_s := deadline - time.monotonic()) <= 0:
                    raise no_answer(source.topic, "no leader tells its log's history")
                batch = consumer.take(min(left_s, 0.2), MAX_MESSAGES, with_key=False)
                try:
                    take_events(batch.events, source.topic, dict(unproven))
                except OutOfRange as error:
                    raise _refusal(error, source.topic, positions) from error
                proven = unproven.keys() & _heard_of(batch)
                for partition in proven:
                    del unproven[partition]
                if proven:
                    # Otherwise their backlog would arrive before the other partitions' first records.
                    consumer.pause(source.topic, proven)
                    deadline = time.monotonic() + self._measure_timeout_s

    def close(self) -> None:
        """Close idle connections. Running fetches go on; a later call opens new ones."""
        self._consumers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_name(self, topic: str) -> None:
        if cluster_of(topic) != self._cluster or not _TOPIC.fullmatch(topic_name(topic)):
            raise UnknownTopic(f"{topic!r} is not a name a Kafka topic can have.", topic=topic)


def _heard_of(batch: ConsumedBatch) -> set[int]:
    """Return the partitions that deliver: the client has asked their leaders before."""
    ended = {
        event.partition
        for event in batch.events
        if event.error.code() == KafkaError._PARTITION_EOF
    }
    return ended | {stretch.partition for stretch in stretches(batch.records)}


def _refusal(
    error: OutOfRange, topic: str, positions: Sequence[OffsetRange]
) -> FederationError:
    """What it means that brokers refuse positions that lie within the log's bounds."""
    if not error.is_truncation:
        return refused_offsets(topic)
    starts = {item.partition: item.start for item in positions}
    return lost_history(topic, error.partition, starts.get(error.partition))
