"""Whole topics read through ``KafkaLog``, as positions of their records."""

from __future__ import annotations

from connectors.kafka.log import KafkaLog
from planner.offsets import OffsetRange
from planner.ports import TopicSource


def whole(log: KafkaLog, topic: str) -> list[OffsetRange]:
    partitions = log.measure([topic])[topic].partitions
    return [OffsetRange(item.partition, item.log_start, item.log_end) for item in partitions]


def positions(
    log: KafkaLog, topic: str, ranges: list[OffsetRange], timeout_s: float = 20
) -> list[tuple[int, int]]:
    return [
        position
        for batch in log.fetch(TopicSource(topic), ranges, timeout_s=timeout_s)
        for position in zip(
            batch.column("kafka_partition").to_pylist(),
            batch.column("kafka_offset").to_pylist(),
            strict=True,
        )
    ]
