"""What brokers keep of a topic, by its settings, if they tell: the user may lack DescribeConfigs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException

from connectors.kafka.admin import Admin
from connectors.kafka.errors import translate
from connectors.kafka.settings import checked, named_section, settings_of
from planner.names import by_cluster
from planner.tiering.triggers import LogRetention

_TIMEOUT_S = 5.0


class RetentionReader:
    """Reads ``retention.ms`` and ``retention.bytes``. Connects at the first call. Thread-safe."""

    def __init__(
        self, clusters: Mapping[str, Mapping[str, str]], timeout_s: float = 5.0
    ) -> None:
        """``clusters`` as for ``KafkaClusters``, with its errors."""
        self._admins = {}
        for name, settings in clusters.items():
            with named_section(name):
                self._admins[name] = Admin.of(checked(settings))
        self._timeout_s = timeout_s

    def __call__(self, topics: Sequence[str]) -> dict[str, LogRetention]:
        """Return the retention of each topic, by address, whose settings are readable."""
        retentions: dict[str, LogRetention] = {}
        answers: dict[str, Future[Any]] = {}
        for cluster, part in by_cluster(topics).items():
            if cluster in self._admins:
                answers |= self._admins[cluster].settings_of(part, self._timeout_s)
        for name, answer in answers.items():
            with contextlib.suppress(KafkaException, TimeoutError):
                settings = answer.result(self._timeout_s + 1)
                values = {key: entry.value for key, entry in settings.items()}
                if "delete" in (values.get("cleanup.policy") or "delete"):
                    milliseconds = _bound(values.get("retention.ms"))
                    retentions[name] = LogRetention(
                        seconds=None if milliseconds is None else milliseconds / 1000,
                        partition_bytes=_bound(values.get("retention.bytes")),
                    )
        return retentions


def _bound(text: str | None) -> int | None:
    """Kafka writes -1 for no bound."""
    value = int(text) if text else -1
    return value if value >= 0 else None


def is_compacted(clusters: Mapping[str, Mapping[str, str]], topic: str) -> bool:
    """Return whether the log cleaner may remove records of ``topic`` (``cleanup.policy``).

    Raises BadConfig as ``KafkaLog``; UnknownTopic or LogUnavailable also when the user may not describe the topic.
    """
    # By its name: a client nobody refers to is gone, and its requests with it.
    admin = Admin.of(checked(settings_of(clusters, topic)))
    answer = admin.settings_of([topic], _TIMEOUT_S)[topic]
    try:
        policy: str = answer.result(_TIMEOUT_S + 1)["cleanup.policy"].value
    except KafkaException as error:
        raise translate(error.args[0], topic, acls="DescribeConfigs") from error
    return "compact" in policy
