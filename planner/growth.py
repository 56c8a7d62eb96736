"""Net number of rows that a snapshot added, by the summaries of snapshots.

A summary does not always tell. After row deletes, a rewritten file counts with its deleted rows, and a replaced
deletion vector or delete file with rows deleted earlier. An equality delete does not say how many rows it hits.
"""

from __future__ import annotations

from collections.abc import Collection

from planner.snapshots import Snapshot

_REMOVED = ("deleted-records", "added-position-deletes")


def counted_growth(snapshot: Snapshot) -> int | None:
    """Rows an ``overwrite`` added less rows it removed; None where its summary does not say."""
    added = snapshot.count("added-records")
    if added is None:
        return 0 if snapshot.added_next is not None and not snapshot.added_next.items else None
    if added == 0:
        return 0
    deletes = snapshot.count("total-delete-files")
    if deletes is None or snapshot.count("added-equality-deletes"):
        return None
    before = (
        deletes
        - (snapshot.count("added-delete-files") or 0)
        + (snapshot.count("removed-delete-files") or 0)
    )
    replaced = snapshot.count("removed-position-deletes") or 0
    return added - _removed_at_most(snapshot) + replaced if before == 0 else None


def growth_at_most(snapshot: Snapshot, others: Collection[Snapshot], total: int) -> int | None:
    """Bound the growth of one snapshot by that of a line of snapshots; ``others`` are the rest of the line.

    ``total`` is the growth of the whole line. None where another one may have removed any number of rows.
    """
    if snapshot.count("added-equality-deletes"):
        return None
    least = [_growth_at_least(item) for item in others]
    return None if None in least else total - sum(item for item in least if item is not None)


def _growth_at_least(snapshot: Snapshot) -> int | None:
    if snapshot.growth is not None:
        return snapshot.growth
    if snapshot.operation == "replace":
        return 0
    if snapshot.count("added-equality-deletes") or not any(map(snapshot.count, _REMOVED)):
        return None
    return (snapshot.count("added-records") or 0) - _removed_at_most(snapshot)


def _removed_at_most(snapshot: Snapshot) -> int:
    return sum(snapshot.count(key) or 0 for key in _REMOVED)
