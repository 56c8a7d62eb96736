"""Which snapshots go, and which are promised.

What servers answer from is a snapshot that was current when they looked, however long ago it was committed. Iceberg's
expiry goes by the time of the commit: a snapshot of yesterday that was replaced a second ago would go. So what is promised
is decided here, by when each snapshot was the head, and Iceberg's expiry is told an age that leaves all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.maintenance.facts import MAIN, MaintenanceFacts, SnapshotRef
from planner.names import TableName
from planner.seam.binding import count_property

#: Iceberg's own properties, "Table behavior properties".
MAX_SNAPSHOT_AGE_MS = "history.expire.max-snapshot-age-ms"
MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"
MAX_REF_AGE_MS = "history.expire.max-ref-age-ms"
GC_ENABLED = "gc.enabled"
_DEFAULT_AGE_MS = 5 * 24 * 3_600_000
#: An expiry is a commit, and reads the manifests of all that goes: so many go together, or those that waited.
ENOUGH_SNAPSHOTS = 10
#: Iceberg gathers the files of all that goes in the driver's memory, and removes them before the step ends.
MAX_SNAPSHOTS = 1_000


@dataclass(frozen=True, slots=True)
class Retention:
    """A table's properties ``history.expire.*``. ``max_ref_age_ms`` is None where references stay for ever."""

    max_age_ms: int = _DEFAULT_AGE_MS
    min_snapshots: int = 1
    max_ref_age_ms: int | None = None

    @classmethod
    def of(cls, table: TableName, properties: Mapping[str, str]) -> Retention:
        """Iceberg takes 0, too: as soon as the promise lets them go. Raises BadBinding: one is no whole number."""
        age_ms, least, ref_age_ms = (
            count_property(table, properties, key, least=0)
            for key in (MAX_SNAPSHOT_AGE_MS, MIN_SNAPSHOTS, MAX_REF_AGE_MS)
        )
        return cls(_DEFAULT_AGE_MS if age_ms is None else age_ms, least or 1, ref_age_ms)


def promised(facts: MaintenanceFacts, grace_ms: int, now_ms: int) -> frozenset[int]:
    """Return the snapshots that were the head within the grace, or were committed within it.

    All of them where the log begins within it: another writer's expiry of a snapshot cuts off what the log has before.
    """
    since_ms = now_ms - grace_ms
    if not facts.log or facts.log[0][0] > since_ms:
        return frozenset(facts.committed_ms)
    ids = {each for each, at_ms in facts.committed_ms.items() if at_ms >= since_ms}
    ends = (*(at_ms for at_ms, _ in facts.log[1:]), now_ms)
    for (_, snapshot_id), until_ms in zip(facts.log, ends, strict=False):
        if until_ms >= since_ms:
            ids.add(snapshot_id)
    return frozenset(ids & facts.committed_ms.keys())


def expire_before_ms(
    facts: MaintenanceFacts, retention: Retention, grace_ms: int, now_ms: int
) -> int:
    """Return the time before which Iceberg's expiry may take a snapshot (exclusive)."""
    times = (facts.committed_ms[each] for each in promised(facts, grace_ms, now_ms))
    return min([now_ms - max(retention.max_age_ms, grace_ms), *times])


def expirable(
    facts: MaintenanceFacts, retention: Retention, before_ms: int, now_ms: int
) -> frozenset[int]:
    """Return what Iceberg's expiry takes with this age: as its ``RemoveSnapshots`` (1.12) decides it."""
    refs = {
        name: ref
        for name, ref in facts.refs.items()
        if _stays(facts, ref, name, retention, now_ms)
    }
    stay = {ref.snapshot_id for ref in refs.values()}
    referenced = set(stay)
    for ref in refs.values():
        if not ref.is_branch:
            continue
        age_ms = ref.max_snapshot_age_ms
        limit_ms = before_ms if age_ms is None else now_ms - age_ms
        least = ref.min_snapshots or retention.min_snapshots
        is_over = False
        for count, snapshot in enumerate(facts.history.line(ref.snapshot_id)):
            referenced.add(snapshot.snapshot_id)
            is_young = facts.committed_ms[snapshot.snapshot_id] >= limit_ms
            is_over = is_over or (count >= least and not is_young)
            if not is_over:
                stay.add(snapshot.snapshot_id)
    young = {
        each
        for each, at_ms in facts.committed_ms.items()
        if each not in referenced and at_ms >= before_ms
    }
    return frozenset(facts.committed_ms.keys() - stay - young)


def _stays(
    facts: MaintenanceFacts, ref: SnapshotRef, name: str, retention: Retention, now_ms: int
) -> bool:
    age_ms = retention.max_ref_age_ms if ref.max_age_ms is None else ref.max_age_ms
    committed_ms = facts.committed_ms.get(ref.snapshot_id)
    if name == MAIN or age_ms is None:
        return True
    return committed_ms is not None and now_ms - committed_ms <= age_ms


def gc_enabled(properties: Mapping[str, str]) -> bool:
    """Whether the table's files may be removed: not where other tables may have them."""
    return properties.get(GC_ENABLED, "true").lower() == "true"


def broken_promise(
    facts: MaintenanceFacts, expired: frozenset[int], grace_ms: int, now_ms: int
) -> str | None:
    """Say why nothing may expire: Iceberg would take a promised snapshot, as a branch has settings of its own."""
    lost = expired & promised(facts, grace_ms, now_ms)
    if not lost:
        return None
    return (
        f"branch {MAIN} has a max-snapshot-age-ms or min-snapshots-to-keep of its own, by which {len(lost)} snapshots "
        f"would go that servers may still read; remove it, and set {MAX_SNAPSHOT_AGE_MS} of the table"
    )
