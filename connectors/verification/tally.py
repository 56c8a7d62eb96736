"""Gathers findings of windows, within a bound: a table that is wrong in every row must not fill memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from planner.offsets import OffsetRange
from planner.seam.snapshots import Snapshot
from planner.seam.watermark import Outcomes
from planner.verification.findings import Fault, ForeignChange, Kind

#: Findings with their places; more are only counted.
MAX_FINDINGS = 1_000


@dataclass
class _Change:
    snapshot: Snapshot
    changed: int = 0
    deleted: int = 0
    example: tuple[int, int] = (0, 0)


@dataclass
class FaultTally:
    findings: list[Fault] = field(default_factory=list)
    more: Counter[Kind] = field(default_factory=Counter)
    outcomes: Outcomes = field(default_factory=Outcomes)
    _changes: dict[int, _Change] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self.findings) >= MAX_FINDINGS

    def add(self, finding: Fault) -> None:
        """Keep the finding, or only count it when there are many."""
        if self.is_full:
            self.more[finding.kind] += finding.rows
        else:
            self.findings.append(finding)

    def add_change(self, snapshot: Snapshot, place: OffsetRange, *, deleted: bool) -> None:
        change = self._changes.setdefault(snapshot.snapshot_id, _Change(snapshot))
        if not change.changed and not change.deleted:
            change.example = (place.partition, place.start)
        if deleted:
            change.deleted += len(place)
        else:
            change.changed += len(place)

    def merge(self, other: FaultTally) -> None:
        for finding in other.findings:
            self.add(finding)
        self.more += other.more
        self.outcomes += other.outcomes
        for key, change in other._changes.items():
            mine = self._changes.setdefault(key, change)
            if mine is not change:
                mine.changed += change.changed
                mine.deleted += change.deleted

    @property
    def changes(self) -> tuple[ForeignChange, ...]:
        return tuple(
            ForeignChange(
                change.snapshot.snapshot_id,
                change.snapshot.operation,
                change.changed,
                change.deleted,
                change.example,
            )
            for change in self._changes.values()
        )
