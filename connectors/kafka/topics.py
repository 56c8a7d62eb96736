"""Reads a topic's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # the two are not in its __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)

from connectors.kafka.errors import translate
from connectors.kafka.settings import admin_properties, checked, refused


def is_compacted(settings: Mapping[str, str], topic: str, *, timeout_s: float = 5.0) -> bool:
    """Return whether the log cleaner may remove records of ``topic`` (``cleanup.policy``).

    Raises:
        BadConfig: as ``KafkaLog``.
        UnknownTopic, LogUnavailable: no answer; also when the user may not describe the topic.
    """
    properties = checked(settings)
    try:
        admin = AdminClient(admin_properties(properties))
    except KafkaException as error:
        raise refused(properties, str(error)) from error
    resource = ConfigResource(ResourceType.TOPIC, topic)
    requests: Any = admin.describe_configs([resource], request_timeout=timeout_s)
    try:
        entries = requests[resource].result(timeout_s + 1)
    except KafkaException as error:
        raise translate(error.args[0], topic) from error
    return "compact" in entries["cleanup.policy"].value
