"""When the newest record of partitions was written, as their brokers' indexes say (KIP-734). Never for answers."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from connectors.kafka.admin import AdminAnswer, admins_of
from planner.names import by_cluster, topic_address, topic_name

_MAX_TIMESTAMP = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]


class NewestReader:
    """Its clients connect once it is made. Thread-safe."""

    def __init__(self, clusters: Mapping[str, Mapping[str, str]], timeout_s: float) -> None:
        """``clusters`` as for ``KafkaClusters``, with its errors."""
        self._admins = admins_of(clusters)
        self._timeout_s = timeout_s

    def __call__(self, topics: Mapping[str, Sequence[int]]) -> dict[tuple[str, int], int]:
        """Return the greatest timestamp of each partition, in ms since 1970, by topic's address.

        Left out is what did not come in time, and partitions without records.
        """
        requests: dict[str, AdminAnswer] = {}
        for cluster, own in by_cluster(topics).items():
            if cluster in self._admins:
                pairs = [
                    TopicPartition(topic_name(topic), partition, _MAX_TIMESTAMP._value)
                    for topic in own
                    for partition in topics[topic]
                ]
                level = IsolationLevel.READ_UNCOMMITTED
                requests[cluster] = self._admins[cluster].offsets(pairs, level, self._timeout_s)
        newest = {}
        for cluster, request in requests.items():
            with contextlib.suppress(KafkaException, TimeoutError):
                for pair, answer in request.result(self._timeout_s + 1).items():
                    if not isinstance(answer, KafkaError) and answer.timestamp >= 0:
                        address = topic_address(cluster, pair.topic)
                        newest[address, pair.partition] = answer.timestamp
        return newest
