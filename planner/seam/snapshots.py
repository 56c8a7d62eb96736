"""What the planner knows of Iceberg snapshots: summaries as facts, no I/O.

Net number of rows that a snapshot added, by the summaries of snapshots.

A summary does not always tell. After row deletes, a rewritten file counts with its deleted rows, and a replaced
deletion vector or delete file with rows deleted earlier. An equality delete does not say how many rows it hits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from planner.offsets import OffsetVector
from planner.seam.binding import MIRROR
from planner.seam.watermark import SUMMARY_KEY, Watermark, format_watermark

#: Non-expiring tag on the snapshot that carries the newest watermark (docs/seam-rules.md, T3).
TAG = "thermocline"

#: In milliseconds: as long as a reference of Iceberg's may be told to stay.
NEVER_EXPIRES_MS = 2**63 - 1

#: Prefix of the branches a tierer stages on; the rest is the run's uuid.
STAGE_BRANCH_PREFIX = "tc_stage_"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot's summary.

    ``added_next``: per Kafka partition, 1 + the greatest offset among rows of the files it added, or more. ``growth``:
    by how many rows the table grew, row deletes applied. ``single_keys``: whether each key of a keyed table has one row
    after it. All are None where not looked up or unknown; only ``overwrite`` snapshots need them, and the last where expiry
    hid others. One that is not ``is_retained`` was expired; an older metadata file lists it. ``committed_ms`` is by its
    writer's clock, since 1970; 0 where it was not looked up.
    """

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    operation: str
    summary: Mapping[str, str] = field(default_factory=dict)
    added_next: OffsetVector | None = None
    growth: int | None = None
    single_keys: bool | None = None
    is_retained: bool = True
    committed_ms: int = field(default=0, compare=False)

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
class WatermarkEntries:
    """What a commit writes for its watermark, besides the tag on its snapshot, which stays for ``NEVER_EXPIRES_MS``.

    ``summary`` is the snapshot's, ``properties`` are the table's: the mirror.
    """

    summary: Mapping[str, str]
    properties: Mapping[str, str]

    @classmethod
    def of(cls, mark: Watermark) -> WatermarkEntries:
        text = format_watermark(mark)
        return cls({SUMMARY_KEY: text}, {MIRROR: text})


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
    property ``thermocline.watermark``. Neither has authority alone (``planner.seam.resolver``).
    """

    snapshots: Mapping[int, Snapshot]
    tagged_id: int | None = None
    mirror: str | None = None

    @property
    def tagged(self) -> Snapshot | None:
        return self.snapshots.get(self.tagged_id or 0)

    def line(self, head: int | None) -> Iterator[Snapshot]:
        """Yield the retained ancestry of ``head``, newest first."""
        snapshot = self.snapshots.get(head or 0)
        while snapshot is not None:
            yield snapshot
            snapshot = self.snapshots.get(snapshot.parent_id or 0)


def live_rows(snapshot: Snapshot) -> int | None:
    """Rows of a snapshot; None where its summary does not say. Its records count deleted rows until a rewrite drops them."""
    records = snapshot.count("total-records")
    if records is None:
        return None
    return records - (snapshot.count("total-position-deletes") or 0)


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
    removed = snapshot.count("removed-delete-files") or 0
    before = deletes - (snapshot.count("added-delete-files") or 0) + removed
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
