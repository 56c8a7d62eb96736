"""The log port over several Kafka clusters."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import pyarrow as pa

from connectors.kafka.log import KafkaLog
from connectors.kafka.settings import named_section, no_cluster
from connectors.kafka.subscription import KafkaSubscription
from planner.names import by_cluster, cluster_of
from planner.offsets import NO_EPOCHS, OffsetRange
from planner.ports import TopicSource
from planner.seam.cut import LogBounds


class KafkaClusters:
    """``planner.ports.Log`` for topics by their addresses (``planner.names``); each cluster has connections of its own."""

    def __init__(self, clusters: Mapping[str, Mapping[str, str]]) -> None:
        """``clusters`` are librdkafka properties by name; no broker needs to answer yet. Raises BadConfig as ``KafkaLog``."""
        self._logs = {}
        for name, settings in clusters.items():
            with named_section(name):
                self._logs[name] = KafkaLog(settings, cluster=name)

    def measure(self, topics: Sequence[str]) -> dict[str, LogBounds]:
        """See ``planner.ports.Log.measure``. Clusters are asked at the same time.

        Raises LogUnavailable also where a topic's cluster is not in the settings.
        """
        by_log = [(self._log(own[0]), own) for own in by_cluster(topics).values()]
        if len(by_log) < 2:
            return by_log[0][0].measure(by_log[0][1]) if by_log else {}
        with ThreadPoolExecutor(len(by_log)) as pool:
            measured: dict[str, LogBounds] = {}
            for bounds in pool.map(lambda entry: entry[0].measure(entry[1]), by_log):
                measured |= bounds
            return measured

    def fetch(
        self,
        source: TopicSource,
        ranges: Sequence[OffsetRange],
        *,
        timeout_s: float,
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> Generator[pa.RecordBatch, None, None]:
        return self._log(source.topic).fetch(source, ranges, timeout_s=timeout_s, epochs=epochs)

    def follow(
        self,
        source: TopicSource,
        starts: Mapping[int, int],
        epochs: Mapping[int, int] = NO_EPOCHS,
    ) -> KafkaSubscription:
        return self._log(source.topic).follow(source, starts, epochs)

    def check_history(
        self, source: TopicSource, offsets: Mapping[int, int], epochs: Mapping[int, int]
    ) -> None:
        self._log(source.topic).check_history(source, offsets, epochs)

    def close(self) -> None:
        """Close idle connections. Running fetches go on; a later call opens new ones."""
        for log in self._logs.values():
            log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _log(self, topic: str) -> KafkaLog:
        log = self._logs.get(cluster_of(topic))
        if log is None:
            raise no_cluster(topic)
        return log
