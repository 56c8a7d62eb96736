"""How well a table is looked after, as people see it: in ``status`` and in metrics."""

from __future__ import annotations

from dataclasses import dataclass

from planner.maintenance.facts import MAINTAIN_KEY, MaintenanceFacts
from planner.maintenance.steps import Upkeep
from planner.seam.watermark import readable_watermark

#: Bytes compacted and bytes ingested are compared over so long.
RATE_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class CareStanding:
    """``backlog`` waits to be compacted, whether or not anything may compact it.

    ``compacted_ratio`` is bytes that our rewrites read within an hour, by bytes that publishes added; None where they added
    none. ``last_run_s`` is how long ago the newest rewrite of ours that is retained was, or removal of orphans, and
    ``orphan_bytes`` is what that removed; None where there was none. Rows before ``expired_before`` in column ``expired_by``
    aged out ``expired_s`` ago, as far back as snapshots are retained; None where none did.
    """

    backlog_files: int
    backlog_bytes: int
    delete_files: int
    snapshots: int
    oldest_snapshot_s: float
    compacted_ratio: float | None
    orphan_bytes: int | None
    last_run_s: float | None
    expired_before: str | None = None
    expired_by: str | None = None
    expired_s: float | None = None

    @classmethod
    def of(cls, facts: MaintenanceFacts, upkeep: Upkeep, now_ms: int) -> CareStanding:
        files, size = upkeep.backlog
        oldest_ms = min(facts.committed_ms.values(), default=now_ms)
        read, ingested, runs = 0, 0, [upkeep.options.orphans_ms]
        for snapshot_id, snapshot in facts.history.snapshots.items():
            at_ms = facts.committed_ms.get(snapshot_id, 0)
            is_ours = MAINTAIN_KEY in snapshot.summary
            if is_ours:
                runs.append(at_ms)
            if now_ms - at_ms <= RATE_MS:
                if is_ours:
                    read += snapshot.count("removed-files-size") or 0
                elif snapshot.operation == "append":
                    ingested += snapshot.count("added-files-size") or 0
        last_ms = max((at_ms for at_ms in runs if at_ms is not None), default=None)
        boundary = facts.boundary
        column = (
            None if boundary is None or facts.schema is None else boundary.column(facts.schema)
        )
        return cls(
            backlog_files=files,
            backlog_bytes=size,
            delete_files=facts.files.delete_files,
            snapshots=len(facts.committed_ms),
            oldest_snapshot_s=max(0.0, (now_ms - oldest_ms) / 1000),
            compacted_ratio=read / ingested if ingested else None,
            orphan_bytes=upkeep.options.orphan_bytes,
            last_run_s=None if last_ms is None else max(0.0, (now_ms - last_ms) / 1000),
            expired_before=None if boundary is None else boundary.text,
            expired_by=None if column is None else column.name,
            expired_s=None
            if boundary is None
            else max(0.0, (now_ms - _moved_ms(facts)) / 1000),
        )


def _moved_ms(facts: MaintenanceFacts) -> int:
    """Return when the boundary was moved where it is, or a later time, where that snapshot is not retained."""
    moved_ms = facts.committed_ms[facts.head]
    for snapshot in facts.history.line(facts.head):
        mark = readable_watermark(snapshot.watermark_text)
        if mark is not None:
            if mark.boundary != facts.boundary:
                break
            moved_ms = facts.committed_ms.get(snapshot.snapshot_id, moved_ms)
    return moved_ms
