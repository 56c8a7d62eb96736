"""Reads what maintenance decides by: one metadata file of a table, and the manifests of its head. Starts no Spark.

Which deletes may apply to a data file follows the Iceberg spec, "Scan Planning": position deletes to rows as old as they are
or older, equality deletes to older ones, each within its partition.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cachetools import LRUCache
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.errors import file_errors
from connectors.iceberg.history_facts import TableEvidence, read_facts
from connectors.iceberg.manifest_entries import LiveEntry, live_entries
from connectors.iceberg.neighbours import Neighbours
from connectors.store.catalog_roots import CatalogRoots
from connectors.table_facts import decide_pin
from planner.errors import SnapshotExpired
from planner.maintenance.facts import (
    FileSize,
    HeadFiles,
    MaintenanceFacts,
    PartitionValues,
    SnapshotRef,
)
from planner.names import TableName
from planner.seam.resolver import line_above
from planner.tiering.layout import PartitionTerm

#: Field id of ``file_path`` in position delete files (Iceberg spec, "Reserved Field IDs").
_FILE_PATH_ID = 2147483546
#: Files remembered, some 500 bytes each, by their manifests, which never change.
_MAX_REMEMBERED = 500_000


@dataclass(frozen=True, slots=True)
class _Entry:
    """One live file. ``path`` is its own for a data file, else that of the only file it deletes from, None if of several."""

    content: DataFileContent
    path: str | None
    partition: tuple[int, PartitionValues]
    bytes: int
    rows: int
    sequence_number: int


class MaintenanceReader:
    """Reads tables of the configured catalogs. Thread-safe; ``close`` ends their connections."""

    def __init__(
        self, catalogs: Mapping[str, Mapping[str, str]], roots: CatalogRoots | None = None
    ) -> None:
        self._catalogs = Catalogs(catalogs, roots)
        self.neighbours = Neighbours(self._catalogs)
        self._lock = threading.Lock()
        self._entries: LRUCache[tuple[str, str], tuple[_Entry, ...]] = LRUCache(
            _MAX_REMEMBERED, getsizeof=lambda entries: min(len(entries) + 1, _MAX_REMEMBERED)
        )

    def tables(self) -> tuple[TableName, ...]:
        return self._catalogs.tables(self._catalogs.names)

    def read(self, table: TableName) -> MaintenanceFacts | None:
        """Read the newest metadata file and the manifests of its head; None: the table is not bound to a topic.

        Raises:
            UnknownTable, CatalogUnavailable, ColdStoreUnavailable, BadBinding, ForeignFile.
            WatermarkMissing, WatermarkUnreadable, ForeignCommit: as for readers. A person must look first.
            SnapshotExpired: a manifest is gone.
        """
        loaded = self._catalogs.load(table)
        facts = read_facts(table, loaded)
        pin = decide_pin(facts, TableEvidence(table, loaded))
        metadata, head = loaded.metadata, loaded.metadata.current_snapshot()
        # A bound table without a snapshot was refused.
        if pin.binding is None or head is None:
            return None
        return MaintenanceFacts(
            table=table,
            head=head.snapshot_id,
            history=facts.history,
            committed_ms={each.snapshot_id: each.timestamp_ms for each in metadata.snapshots},
            properties=metadata.properties,
            refs=_references(metadata),
            log=tuple((each.timestamp_ms, each.snapshot_id) for each in metadata.snapshot_log),
            versions_ms=tuple(each.timestamp_ms for each in metadata.metadata_log),
            needs_watermark=bool(line_above(facts.history, head.snapshot_id)),
            files=self._files(loaded, table, head),
            schema=pin.schema,
            terms=tuple(
                PartitionTerm(field.name, field.source_id, str(field.transform))
                for field in metadata.spec().fields
            ),
            boundary=None if pin.watermark is None else pin.watermark.boundary,
        )

    def _files(self, loaded: Table, table: TableName, head: Snapshot) -> HeadFiles:
        what = f"{table}: a manifest of snapshot {head.snapshot_id}"
        with file_errors(what, gone=SnapshotExpired, table=str(table)):
            manifests = head.manifests(loaded.io)
            entries = [
                entry
                for manifest in manifests
                for entry in self._read(loaded.io, table.catalog, manifest)
            ]
        spec_id = loaded.metadata.default_spec_id
        files = tuple(_file_sizes(entries, spec_id))
        deletes = len(entries) - len(files)
        sizes = tuple(each.manifest_length for each in manifests)
        return HeadFiles(files, sizes, deletes)

    def _read(self, io: FileIO, catalog: str, manifest: ManifestFile) -> tuple[_Entry, ...]:
        key = catalog, manifest.manifest_path
        with self._lock:
            cached = self._entries.get(key)
        if cached is None:
            spec_id = manifest.partition_spec_id
            cached = tuple(_entry(live, spec_id) for live in live_entries(io, manifest))
            with self._lock:
                self._entries[key] = cached
        return cached

    def close(self) -> None:
        self._catalogs.close()


def _references(metadata: TableMetadata) -> dict[str, SnapshotRef]:
    return {
        name: SnapshotRef(
            snapshot_id=ref.snapshot_id,
            is_branch=ref.snapshot_ref_type == SnapshotRefType.BRANCH,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            min_snapshots=ref.min_snapshots_to_keep,
            max_age_ms=ref.max_ref_age_ms,
        )
        for name, ref in metadata.refs.items()
    }


def _entry(live: LiveEntry, spec_id: int) -> _Entry:
    file = live.file
    return _Entry(
        content=file.content,
        path=file.file_path if file.content == DataFileContent.DATA else _only(live),
        partition=(spec_id, tuple(file.partition._data)),
        bytes=file.file_size_in_bytes,
        rows=file.record_count,
        sequence_number=live.sequence_number,
    )


def _only(delete: LiveEntry) -> str | None:
    """Return the only data file that a delete file names, if it is one: as Iceberg's ``ContentFileUtil``."""
    if delete.file.content != DataFileContent.POSITION_DELETES:
        return None
    lower = (delete.file.lower_bounds or {}).get(_FILE_PATH_ID)
    upper = (delete.file.upper_bounds or {}).get(_FILE_PATH_ID)
    if delete.referenced is None and lower is not None and lower == upper:
        return lower.decode()
    return delete.referenced


def _file_sizes(entries: Iterable[_Entry], spec_id: int) -> Iterator[FileSize]:
    data, of_file = [], defaultdict(list)
    of_partition: dict[tuple[int, PartitionValues], list[_Entry]] = defaultdict(list)
    for entry in entries:
        if entry.content == DataFileContent.DATA:
            data.append(entry)
        elif entry.path is not None:
            of_file[entry.path].append(entry)
        else:
            of_partition[entry.partition].append(entry)
    counts = {partition: _DeleteCounts.of(group) for partition, group in of_partition.items()}
    # Equality deletes of an unpartitioned spec apply to every partition (Iceberg spec, "Scan Planning").
    everywhere = _DeleteCounts.of(
        each
        for partition, group in of_partition.items()
        for each in group
        if not partition[1] and each.content == DataFileContent.EQUALITY_DELETES
    )
    for entry in data:
        number = entry.sequence_number
        named = [
            each for each in of_file.get(str(entry.path), ()) if each.sequence_number >= number
        ]
        others_count = counts.get(entry.partition, _NO_DELETES).applying(number)
        if entry.partition[1]:
            others_count += everywhere.applying(number)
        yield FileSize(
            partition=entry.partition[1] if entry.partition[0] == spec_id else None,
            bytes=entry.bytes,
            rows=entry.rows,
            deleted_rows=min(entry.rows, sum(each.rows for each in named)),
            delete_files=len(named) + others_count,
        )


@dataclass(frozen=True, slots=True)
class _DeleteCounts:
    """Sequence numbers of position and of equality deletes, each in order: many files meet many deletes."""

    position: Sequence[int] = ()
    equality: Sequence[int] = ()

    @classmethod
    def of(cls, deletes: Iterable[_Entry]) -> _DeleteCounts:
        numbers: dict[bool, list[int]] = {True: [], False: []}
        for each in deletes:
            numbers[each.content == DataFileContent.EQUALITY_DELETES].append(
                each.sequence_number
            )
        return cls(sorted(numbers[False]), sorted(numbers[True]))

    def applying(self, number: int) -> int:
        """Count those that may apply to a data file of this sequence number."""
        position = len(self.position) - bisect_left(self.position, number)
        return position + len(self.equality) - bisect_right(self.equality, number)


_NO_DELETES = _DeleteCounts()
