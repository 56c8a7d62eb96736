"""Judges whether a topic keeps what a keyed table needs of it: its changes until they are tiered, its keys for ever. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from planner.errors import BadConfig
from planner.seam.binding import DEFAULT_PIN_GRACE_S
from planner.seam.range_check import LEAST_DELETES_S

LEAST_DELETE_RETENTION_MS = int(LEAST_DELETES_S * 1000)
#: For as long, servers promise the cuts that they named.
LEAST_COMPACTION_LAG_MS = DEFAULT_PIN_GRACE_S * 1000


def judge_topic(topic: str, settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each setting that a keyed table does not go well with; ``settings`` are Kafka's, by name.

    Raises:
        BadConfig: deletes may leave the log before they are tiered.
    """
    policy = settings.get("cleanup.policy", "delete")
    if "compact" not in policy:
        return (
            f"topic {topic} has cleanup.policy {policy}: where retention removes the last change of a key, the table keeps its "
            f"row, and no rebuild could bring it back; a topic of a keyed table is best compacted.",
        )
    retention_ms = int(settings.get("delete.retention.ms", LEAST_DELETE_RETENTION_MS))
    if retention_ms < LEAST_DELETE_RETENTION_MS:
        raise BadConfig(
            f"topic {topic} has delete.retention.ms {retention_ms:,}: a delete may leave the log before it is tiered, which "
            f"may take {LEAST_DELETE_RETENTION_MS:,}, and the row would stay for ever; set it to so much at least.",
            topic=topic,
        )
    warnings = []
    if "delete" in policy:
        warnings.append(
            f"topic {topic} has cleanup.policy {policy}: where retention removes the last change of a key, the table keeps its "
            f"row, and no rebuild could bring it back."
        )
    lag_ms = int(settings.get("min.compaction.lag.ms", 0))
    if lag_ms < LEAST_COMPACTION_LAG_MS:
        warnings.append(
            f"topic {topic} has min.compaction.lag.ms {lag_ms:,}: a cut or a ticket that ends between two changes of a key may "
            f"lack its row once the log is compacted; {LEAST_COMPACTION_LAG_MS:,} or more keep them."
        )
    return tuple(warnings)
