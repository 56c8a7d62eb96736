"""Topics of several Kafka clusters: ``cluster/topic``, or the topic alone of the cluster in ``[kafka]``.

Neither part can have a slash. Addresses name logs to programs and people; watermarks and Kafka know the topic alone,
and which cluster it is by the cluster's own id (T11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: Of a cluster in the settings: ``[kafka_clusters.<name>]``.
CLUSTER_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def topic_address(cluster: str, topic: str) -> str:
    """``cluster`` is its name in the settings, empty for ``[kafka]``."""
    return f"{cluster}/{topic}" if cluster else topic


def topic_name(address: str) -> str:
    """Return the name that brokers know."""
    return address.rpartition("/")[2]


def cluster_of(address: str) -> str:
    return address.rpartition("/")[0]


def by_cluster(addresses: Iterable[str]) -> dict[str, list[str]]:
    """Group addresses, each group in the order given."""
    groups: dict[str, list[str]] = {}
    for address in addresses:
        groups.setdefault(cluster_of(address), []).append(address)
    return groups
