"""What maintenance knows of a table: one metadata file and the manifests of its head. Times are milliseconds since 1970."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from planner.names import TableName
from planner.schema import TableSchema
from planner.seam.boundary import RetentionBoundary
from planner.seam.snapshots import History, Snapshot
from planner.tiering.layout import PartitionTerm

#: Values of the fields of a table's spec, in its order, as its manifests have them.
PartitionValues = tuple[object, ...]

#: Key of a rewrite's summary that says whose it is; the value is the run's.
MAINTAIN_KEY = "thermocline.maintain"

MAIN = "main"


@dataclass(frozen=True, slots=True)
class FileSize:
    """A live data file. ``partition`` is None for a file of another spec than the table's.

    ``deleted_rows`` counts what delete files of this file alone delete, ``delete_files`` all that may apply to it.
    """

    partition: PartitionValues | None
    bytes: int
    rows: int
    deleted_rows: int = 0
    delete_files: int = 0


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another table: where it lies, and where its properties have it write. ``unread``: why neither is known.

    ``is_copy``: it is the same table by its uuid, registered at another metadata file.
    """

    name: TableName
    lies: str = ""
    writes: tuple[str, ...] = ()
    unread: str = ""
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotRef:
    """A branch or a tag; what it says itself of retention, None where it leaves that to the table."""

    snapshot_id: int
    is_branch: bool
    max_snapshot_age_ms: int | None = None
    min_snapshots: int | None = None
    max_age_ms: int | None = None


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """The head's files. ``manifests`` are sizes in bytes; ``delete_files`` counts them, deletion vectors one by one."""

    files: tuple[FileSize, ...] = ()
    manifests: tuple[int, ...] = ()
    delete_files: int = 0

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class MaintenanceFacts:
    """``log`` says since when each snapshot was the main branch's head, in order; a rollback names one twice.

    ``versions_ms`` is when each older metadata file of the log was written, oldest first. ``needs_watermark``: the
    head does not carry the watermark that it stands on. ``terms`` are the fields of the table's spec, ``boundary`` is the
    watermark's.
    """

    table: TableName
    head: int
    history: History
    committed_ms: Mapping[int, int]
    properties: Mapping[str, str] = field(default_factory=dict)
    refs: Mapping[str, SnapshotRef] = field(default_factory=dict)
    log: tuple[tuple[int, int], ...] = ()
    versions_ms: tuple[int, ...] = ()
    needs_watermark: bool = False
    files: HeadFiles = HeadFiles()
    schema: TableSchema | None = None
    terms: tuple[PartitionTerm, ...] = ()
    boundary: RetentionBoundary | None = None

    @property
    def foreign_rewrites(self) -> Iterator[Snapshot]:
        """Yield the retained rewrites that are not ours.

        One that only takes delete files away may be ours: Iceberg's removal of dangling deletes takes no key.
        """
        for snapshot in self.history.snapshots.values():
            is_foreign = (
                snapshot.operation == "replace" and MAINTAIN_KEY not in snapshot.summary
            )
            if is_foreign and not _only_removes_deletes(snapshot):
                yield snapshot

    def rewritten_away_since(self, before: MaintenanceFacts) -> int:
        """Return how many data files fewer our rewrites since ``before`` have left; what others added does not count."""
        return sum(
            (snapshot.count("deleted-data-files") or 0)
            - (snapshot.count("added-data-files") or 0)
            for snapshot_id, snapshot in self.history.snapshots.items()
            if snapshot_id not in before.history.snapshots and MAINTAIN_KEY in snapshot.summary
        )


def _only_removes_deletes(snapshot: Snapshot) -> bool:
    added = ("added-data-files", "added-delete-files", "deleted-data-files")
    return bool(snapshot.count("removed-delete-files")) and not any(map(snapshot.count, added))
