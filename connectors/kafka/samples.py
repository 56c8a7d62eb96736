"""Samples the first records of ranges for ``status``: their age and size. Never for answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from connectors.kafka.settings import checked, consumer_properties, refused, settings_of
from planner.names import by_cluster, topic_address, topic_name
from planner.offsets import OffsetRange

#: Bytes of one answer for one partition: some hundred records, quick also for many partitions.
_SAMPLE_BYTES = "65536"
_POLL_S = 0.05
_MESSAGES = 2_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The first records of one range. ``timestamp_ms`` is the first one's, None if its broker gave it none.

    ``mean_bytes`` counts a record's key and value, uncompressed.
    """

    timestamp_ms: int | None
    mean_bytes: float


def sample(
    clusters: Mapping[str, Mapping[str, str]],
    ranges: Mapping[str, tuple[OffsetRange, ...]],
    *,
    timeout_s: float,
) -> dict[tuple[str, int], Sample]:
    """Read the beginning of every range, by topic's address; leave out what did not come within ``timeout_s``.

    That is each cluster's.

    Raises:
        BadConfig: a property is not one of the client's.
    """
    samples = {}
    for cluster, topics in by_cluster(ranges).items():
        spans = {
            (topic_name(topic), span.partition): span
            for topic in topics
            for span in ranges[topic]
        }
        if spans:
            read = _sample(settings_of(clusters, topics[0]), spans, timeout_s)
            for (topic, partition), entry in read.items():
                samples[topic_address(cluster, topic), partition] = entry
    return samples


def _sample(
    settings: Mapping[str, str], spans: Mapping[tuple[str, int], OffsetRange], timeout_s: float
) -> dict[tuple[str, int], Sample]:
    properties = {
        **consumer_properties(checked(settings)),
        "max.partition.fetch.bytes": _SAMPLE_BYTES,
        "queued.min.messages": "1000",
    }
    try:
        consumer = Consumer(properties)
    except KafkaException as error:
        raise refused(settings, str(error)) from error
    first: dict[tuple[str, int], int | None] = {}
    sizes: dict[tuple[str, int], list[int]] = {}
    try:
        consumer.assign(
            [TopicPartition(topic, part, span.start) for (topic, part), span in spans.items()]
        )
        until = time.monotonic() + timeout_s
        while len(first) < len(spans) and time.monotonic() < until:
            for message in consumer.consume(_MESSAGES, _POLL_S):
                _take(message, spans, first, sizes)
    finally:
        consumer.close()
    return {
        key: Sample(first[key], sum(span) / len(span)) for key, span in sizes.items() if span
    }


def _take(
    message: Message,
    spans: Mapping[tuple[str, int], OffsetRange],
    first: dict[tuple[str, int], int | None],
    sizes: dict[tuple[str, int], list[int]],
) -> None:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None:
        return
    key = (topic, partition)
    if message.error() is not None or offset is None:
        first.setdefault(key, None)  # its end, or a failure: there is nothing to wait for
        return
    if offset not in spans[key]:
        return
    if key not in sizes:
        kind, timestamp_ms = message.timestamp()
        first[key] = timestamp_ms if kind else None
        sizes[key] = []
    sizes[key].append(len(message.value() or b"") + len(message.key() or b""))
