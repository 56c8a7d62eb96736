"""Decides which watermark texts are believed: those with which their snapshot was committed.

Other writers copy summaries: a compaction that of the snapshot before, a tool any text of its user. Every commit of
ours names the snapshot it was built on (``prev``) and moves the tag in the same commit, so copies are recognised.
"""

from __future__ import annotations

from planner.errors import WatermarkUnreadable
from planner.snapshots import History, Snapshot
from planner.watermark import parse_watermark


def carries(history: History, snapshot: Snapshot) -> bool:
    """Whether the snapshot was committed with the watermark in its summary.

    An unreadable text counts: it may be of a newer version, and the resolver then refuses it.
    """
    text = snapshot.watermark_text
    return (
        snapshot.operation != "replace"
        and text is not None
        and not _is_copy(history, snapshot, text)
    )


def _is_copy(history: History, snapshot: Snapshot, text: str) -> bool:
    try:
        watermark = parse_watermark(text)
    except WatermarkUnreadable:
        return False
    built_on = watermark.prev_snapshot_id
    if snapshot.snapshot_id == history.tagged_id:
        # Only a commit that read this very text moved the tag here.
        return built_on is not None and snapshot.parent_id not in (None, built_on)
    if built_on is None:
        # A creation: nothing can have been committed before it.
        if snapshot.sequence_number > 1:
            return True
    elif built_on != snapshot.parent_id:
        # Of another commit; or unknown, where pyiceberg's expiry took the parent id and no older file has it.
        return True
    if watermark.outcomes.rows > (snapshot.count("added-records") or 0):
        # Of another commit on the same snapshot, which a rollback took back and expiry hides. One that added more than it
        # says is for ``verify`` to name.
        return True
    return any(
        other.watermark_text == text
        and other.operation != "replace"
        and other.snapshot_id != snapshot.snapshot_id
        and (
            other.sequence_number < snapshot.sequence_number
            or other.snapshot_id == history.tagged_id
        )
        for other in history.snapshots.values()
    )
