"""Which watermark texts are believed: those that their snapshot was committed with.

Writers copy summaries: a compaction those of the snapshot before, a tool what its user hands it. Every commit of
ours names the snapshot it was built on (``prev``), and moves the tag in the same commit, so a copy shows itself.
"""

from __future__ import annotations

from planner.errors import WatermarkUnreadable
from planner.snapshots import History, Snapshot
from planner.watermark import parse_watermark


def carries(history: History, snapshot: Snapshot) -> bool:
    """Whether the snapshot was committed with the watermark in its summary.

    An unreadable text counts: it may be a newer version's, and whoever resolves it says so.
    """
    text = snapshot.watermark_text
    return (
        snapshot.operation != "replace"
        and text is not None
        and not _is_copy(history, snapshot, text)
    )


def _is_copy(history: History, snapshot: Snapshot, text: str) -> bool:
    try:
        built_on = parse_watermark(text).prev_snapshot_id
    except WatermarkUnreadable:
        return False
    if built_on is not None and snapshot.parent_id is not None:
        if built_on != snapshot.parent_id:
            return True
    elif _is_newer_than_tag(history, snapshot):
        # A creation names no snapshot, and pyiceberg's expiry takes a parent id away: the tag alone is left to ask.
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


def _is_newer_than_tag(history: History, snapshot: Snapshot) -> bool:
    if history.tagged_id is None or history.tagged_id == snapshot.snapshot_id:
        return False
    tagged = history.snapshots.get(history.tagged_id)
    return tagged is not None and tagged.sequence_number < snapshot.sequence_number
