"""How long brokers keep a topic's records, if they tell: the tierer's user may lack DescribeConfigs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ResourceType,
)

from connectors.kafka.settings import admin_properties, checked, refused
from planner.triggers import LogRetention

_TIMEOUT_S = 5.0


class RetentionReader:
    """Reads ``retention.ms`` and ``retention.bytes``. Connects at the first call. Thread-safe."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """``settings`` as for ``KafkaLog``.

        Raises:
            BadConfig: as ``KafkaLog``.
        """
        properties = checked(settings)
        try:
            self._admin = AdminClient(admin_properties(properties))
        except KafkaException as error:
            raise refused(properties, str(error)) from error

    def __call__(self, topics: Sequence[str]) -> dict[str, LogRetention]:
        """Return the retention of each topic whose settings are readable."""
        resources = {name: ConfigResource(ResourceType.TOPIC, name) for name in topics}
        answers = self._admin.describe_configs(
            list(resources.values()), request_timeout=_TIMEOUT_S
        )
        retentions: dict[str, LogRetention] = {}
        for name, resource in resources.items():
            with contextlib.suppress(KafkaException, TimeoutError):
                settings = answers[resource].result(_TIMEOUT_S + 1)
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
