"""Counts the rows of a snapshot with its row deletes applied, from manifests and position deletes alone.

A deletion vector's entry gives its number of rows, and its file. Position deletes are read: several of their files may
name one row, and rows of files that are gone since (Iceberg spec, "Scan Planning").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroFile
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from connectors.iceberg.offset_statistics import data_entries

#: pyiceberg reads manifests as version 2, without the file that a deletion vector belongs to (field 143).
_VERSION = 3
_REFERENCED = [field.field_id for field in DATA_FILE_TYPE[_VERSION].fields].index(143)
_PATH, _POSITION = "file_path", "pos"


@dataclass(frozen=True, slots=True)
class _Delete:
    """``applies_to``: data files of this sequence number or an older one."""

    file: DataFile
    referenced: str | None
    applies_to: int


def live_rows(table: Table, snapshot_id: int) -> int | None:
    """Count the rows of a snapshot; None with equality deletes, or where a file cannot be read."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return None
    rows, written_at = 0, {}
    for entry in data_entries(table, snapshot_id):
        rows += entry.data_file.record_count
        written_at[entry.data_file.file_path] = entry.sequence_number or 0
    dead, with_vector, positions = 0, set(), []
    for delete in _deletes(table.io, snapshot):
        if delete.file.content != DataFileContent.POSITION_DELETES:
            return None
        if delete.referenced is not None and delete.referenced not in written_at:
            continue
        if delete.file.file_format == FileFormat.PUFFIN:
            if delete.referenced is None:
                return None
            if written_at[delete.referenced] <= delete.applies_to:
                with_vector.add(delete.referenced)
                dead += delete.file.record_count
        elif delete.file.file_format == FileFormat.PARQUET:
            positions.append(_positions(table.io, delete, written_at))
        else:
            return None
    return rows - dead - _distinct(positions, with_vector)


def _positions(io: FileIO, delete: _Delete, written_at: dict[str, int]) -> pa.Table:
    with io.new_input(delete.file.file_path).open() as stream:
        rows = pq.read_table(stream, columns=[_PATH, _POSITION])
    hit = [path for path, number in written_at.items() if number <= delete.applies_to]
    return rows.filter(pc.is_in(rows[_PATH], pa.array(hit, pa.string())))


def _distinct(positions: list[pa.Table], with_vector: set[str]) -> int:
    """Count the rows that position deletes hit; a deletion vector takes the place of all of its file's."""
    if not positions:
        return 0
    every = pa.concat_tables(positions).group_by([_PATH, _POSITION]).aggregate([])
    by_vector = pc.is_in(every[_PATH], pa.array(sorted(with_vector), pa.string()))
    return int(every.num_rows - (pc.sum(by_vector).as_py() or 0))


def _deletes(io: FileIO, snapshot: Snapshot) -> Iterator[_Delete]:
    for manifest in snapshot.manifests(io):
        if manifest.content != ManifestContent.DELETES:
            continue
        with AvroFile[ManifestEntry](
            io.new_input(manifest.manifest_path),
            MANIFEST_ENTRY_SCHEMAS[_VERSION],
            read_types={-1: ManifestEntry, 2: DataFile},
            read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
        ) as entries:
            for entry in entries:
                if entry.status != ManifestEntryStatus.DELETED:
                    number = entry.sequence_number
                    yield _Delete(
                        entry.data_file,
                        entry.data_file._data[_REFERENCED],
                        (manifest.sequence_number or 0) if number is None else number,
                    )
