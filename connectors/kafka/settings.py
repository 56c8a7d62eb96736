"""Which librdkafka properties are the user's, and which are ours because answers depend on them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from planner.errors import BadConfig, LogUnavailable
from planner.names import cluster_of

#: Properties the promises depend on, and the value each has. A user who sets one is refused.
OWNED: Mapping[str, str] = MappingProxyType(
    {
        # Aborted records must not be seen, and ends are last stable offsets.
        "isolation.level": "read_committed",
        # Any other value jumps silently over expired records: `latest` loses all of them.
        "auto.offset.reset": "error",
        # A range may end in markers or compacted offsets: only this event says so.
        "enable.partition.eof": "true",
        "check.crcs": "true",
        "allow.auto.create.topics": "false",
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
    }
)

# Ours, but a user may know better. librdkafka's defaults read 118 k records/s (its fetcher sleeps a second
# whenever 100,000 are queued) and wait 500 ms at the end of a silent partition; these read a million.
# Without a backoff its thread spins while its queue is full: 1.2 CPU s per million records and more. With 10 ms it
# is 0.25, and the queue lasts longer than that. A queue of 64 MB read no faster than one of 8, and took 250 MB more:
# librdkafka spends more on a small record than the record takes.
_CONSUMER_DEFAULTS = {
    "group.id": "thermocline",  # demanded by the constructor; with assign() no group is joined
    "fetch.wait.max.ms": "5",
    "fetch.queue.backoff.ms": "10",
    "fetch.error.backoff.ms": "50",
    "queued.min.messages": "1000000",
    "queued.max.messages.kbytes": "8192",
    "max.partition.fetch.bytes": "8388608",
}
#: A reader that stays polls a silent topic twice a second. Records do not wait for that: a broker answers as soon as
#: there is a record, or the end moves.
FOLLOWER_DEFAULTS = {"fetch.wait.max.ms": "500"}
#: A reader that wants a sign of each partition, and none of its records.
PROOF_SETTINGS = {"max.partition.fetch.bytes": "65536"}
CLIENT_DEFAULTS = {
    "client.id": "thermocline",
    # librdkafka writes to standard error by itself; what matters arrives as an error of ours.
    "log_level": "0",
    # After an outage the defaults wait up to 10 s before they connect, and up to 1 s before they ask again.
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "250",
    "retry.backoff.ms": "20",
    "retry.backoff.max.ms": "200",
    "socket.keepalive.enable": "true",
}


#: As confluent-kafka's constructors type them.
Properties = dict[str, str | int | float | bool]


def checked(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the user's properties as they are.

    Raises BadConfig: one of ours is among them, a value is not a string, or no broker is named.
    """
    for key, value in settings.items():
        if key in OWNED:
            raise BadConfig(
                f"the Kafka property {key} is set by Thermocline ({OWNED[key]}), because exactly-once reading "
                f"depends on it; remove it.",
                key=key,
            )
        if not isinstance(value, str):
            raise BadConfig(f"the Kafka property {key} must be text.", key=key)
    if not {"bootstrap.servers", "metadata.broker.list"} & settings.keys():
        raise BadConfig(
            "the Kafka property bootstrap.servers is missing; set it in the section [kafka].",
            key="bootstrap.servers",
        )
    return dict(settings)


def section_of(cluster: str) -> str:
    """Return the section of the settings that has the properties of a cluster."""
    return f"kafka_clusters.{cluster}" if cluster else "kafka"


@contextlib.contextmanager
def named_section(cluster: str) -> Iterator[None]:
    """Add the cluster's section to a BadConfig raised in the block; ``[kafka]`` is not named."""
    try:
        yield
    except BadConfig as error:
        if not cluster:
            raise
        message = error.message.replace("the section [kafka]", "this section")
        raise BadConfig(f"[{section_of(cluster)}]: {message}", **error.facts) from error


def settings_of(clusters: Mapping[str, Mapping[str, str]], topic: str) -> Mapping[str, str]:
    """Return the properties of a topic's cluster. Raises LogUnavailable: there are none."""
    settings = clusters.get(cluster_of(topic))
    if settings is None:
        raise no_cluster(topic)
    return settings


def no_cluster(topic: str) -> LogUnavailable:
    """The error of a topic, by its address, whose cluster is not in the settings."""
    cluster = cluster_of(topic)
    why = "the server has no [kafka] settings; add bootstrap.servers."
    if cluster:
        why = f"the settings have no [{section_of(cluster)}]; add it, with bootstrap.servers."
    return LogUnavailable(f"topic {topic} cannot be read: {why}", topic=topic)


def consumer_properties(settings: Mapping[str, str]) -> Properties:
    return {**CLIENT_DEFAULTS, **_CONSUMER_DEFAULTS, **settings, **OWNED}


def refused(settings: Mapping[str, str], reason: str) -> BadConfig:
    """The property that librdkafka refused. Its text may quote a value, so only the key is taken from it."""
    named = re.findall(r"[a-z0-9]+(?:[._][a-z0-9]+)+", reason)
    key = next((name for name in named if name in settings), None)
    if key is None and "sasl" in reason.lower():
        key = "sasl.mechanism, sasl.username, sasl.password"
    if key is None:
        return BadConfig(
            "the Kafka client does not accept its properties; compare them with librdkafka's."
        )
    return BadConfig(
        f"the Kafka client does not accept the property {key}; librdkafka's documentation lists names and "
        f"values.",
        key=key,
    )
