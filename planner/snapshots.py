"""What the planner knows of Iceberg snapshots: summaries as facts, no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from planner.offsets import OffsetVector
from planner.watermark import SUMMARY_KEY

#: Non-expiring tag on the snapshot that carries the newest watermark (docs/seam-rules.md, T3).
TAG = "thermocline"
#: Prefix of the branches a tierer stages on; the rest is the run's uuid.
STAGE_BRANCH_PREFIX = "tc_stage_"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot's summary.

    ``added_next``: per Kafka partition, 1 + the greatest offset among rows of the files it added, or more.
    ``growth``: by how many rows the table grew, row deletes applied. Both are None where not looked up or unknown;
    only ``overwrite`` snapshots need them. One that is not ``is_retained`` was expired; an older metadata file
    lists it.
    """

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    operation: str
    summary: Mapping[str, str] = field(default_factory=dict)
    added_next: OffsetVector | None = None
    growth: int | None = None
    is_retained: bool = True

    @property
    def watermark_text(self) -> str | None:
        return self.summary.get(SUMMARY_KEY)

    @property
    def carries_watermark(self) -> bool:
        """Whether its text is its own: a compaction copies that of the snapshot it replaces."""
        return self.watermark_text is not None and self.operation != "replace"

    def count(self, key: str) -> int | None:
        """A count of the summary (``added-records`` and the like), or None when absent or not a number."""
        text = self.summary.get(key, "")
        return int(text) if text.isascii() and text.isdigit() else None


@dataclass(frozen=True, slots=True)
class Retained:
    """The snapshots one metadata file retains, and when each became the table's current one.

    ``log`` is in order of time, (microseconds since 1970 UTC, snapshot id); a rollback names a snapshot twice.
    Its snapshots may be expired.
    """

    ids: frozenset[int]
    log: tuple[tuple[int, int], ...] = ()

    def current_at(self, time_us: int) -> int | None:
        """Return the snapshot that was current at that time, also one that is not retained; None: there was none."""
        current = None
        for since_us, snapshot_id in self.log:
            if since_us <= time_us:
                current = snapshot_id
        return current


@dataclass(frozen=True, slots=True)
class History:
    """The snapshots a table's metadata retains, with its tag and mirror property.

    ``tagged_id`` is the snapshot the tag ``thermocline`` points at, ``mirror`` the text of the table
    property ``thermocline.watermark``. Neither has authority alone (``planner.resolver``).
    """

    snapshots: Mapping[int, Snapshot]
    tagged_id: int | None = None
    mirror: str | None = None

    def line(self, head: int | None) -> Iterator[Snapshot]:
        """Yield the retained ancestry of ``head``, newest first."""
        snapshot = self.snapshots.get(head or 0)
        while snapshot is not None:
            yield snapshot
            snapshot = self.snapshots.get(snapshot.parent_id or 0)
