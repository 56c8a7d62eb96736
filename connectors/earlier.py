"""Finds expired snapshots in older metadata files (Iceberg spec, "Table Metadata": metadata-log).

Expiry takes a snapshot out of the newest metadata file. Older files stay, a hundred by default, and have each snapshot
with its summary and its parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from planner.seam.snapshots import Snapshot


def earlier_line(
    snapshot_id: int, older: Iterable[Mapping[int, Snapshot]]
) -> Mapping[int, Snapshot]:
    """Return a snapshot and its ancestors, down to one with a watermark text or as far as the files reach.

    ``older`` are the snapshots of each older metadata file, newest file first; no more files are read than needed.
    """
    line: dict[int, Snapshot] = {}
    deepest = snapshot_id
    for snapshots in older:
        if deepest in line and deepest not in snapshots:
            # The file and all older ones are from before its commit.
            break
        while (snapshot := snapshots.get(deepest)) is not None:
            line[deepest] = snapshot
            if deepest != snapshot_id and snapshot.carries_watermark:
                return line
            # pyiceberg's expiry removes the parent id of the snapshot it leaves; an older file has it.
            if snapshot.parent_id is None:
                break
            deepest = snapshot.parent_id
    return line
