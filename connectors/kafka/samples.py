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

    ``mean_bytes`` counts key and value, uncompressed.
    """

    timestamp_ms: int | None
    mean_bytes: float


def sample(
    clusters: Mapping[str, Mapping[str, str]],
    ranges: Mapping[str, tuple[OffsetRange, ...]],
    *,
    timeout_s: float,
) -> dict[tuple[str, int], Sample]:
    """Read the beginning of every range, by topic's address; leave out what did not come within ``timeout_s`` per cluster.

    Raises BadConfig: a property is not one of the client's.
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
    #: Timestamp and size of each record; none of a range that ended, or failed.
    records: dict[tuple[str, int], list[tuple[int | None, int]]] = {}
    try:
        consumer.assign(
            [
                TopicPartition(topic, partition, span.start)
                for (topic, partition), span in spans.items()
            ]
        )
        until = time.monotonic() + timeout_s
        while len(records) < len(spans) and time.monotonic() < until:
            for message in consumer.consume(_MESSAGES, _POLL_S):
                _take(message, spans, records)
    finally:
        consumer.close()
    return {
        key: Sample(each[0][0], sum(size for _, size in each) / len(each))
        for key, each in records.items()
        if each
    }


def _take(
    message: Message,
    spans: Mapping[tuple[str, int], OffsetRange],
    records: dict[tuple[str, int], list[tuple[int | None, int]]],
) -> None:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None:
        return
    key = (topic, partition)
    if message.error() is not None or offset is None:
        records.setdefault(key, [])  # its end, or a failure: there is nothing to wait for
    elif offset in spans[key]:
        kind, timestamp_ms = message.timestamp()
        size = len(message.value() or b"") + len(message.key() or b"")
        records.setdefault(key, []).append((timestamp_ms if kind else None, size))
