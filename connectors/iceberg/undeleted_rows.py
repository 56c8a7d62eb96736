"""Counts the rows of a snapshot with its row deletes applied, from manifests and position deletes alone.

A deletion vector's entry gives its number of rows, and its file. Position deletes are read: several of their files may
name one row, and rows of files that are gone since (Iceberg spec, "Scan Planning").
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from connectors.iceberg.manifest_entries import LiveEntry, live_entries
from connectors.iceberg.offset_statistics import data_entries

_PATH, _POSITION = "file_path", "pos"


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
            if written_at[delete.referenced] <= delete.sequence_number:
                with_vector.add(delete.referenced)
                dead += delete.file.record_count
        elif delete.file.file_format == FileFormat.PARQUET:
            positions.append(_positions(table.io, delete, written_at))
        else:
            return None
    return rows - dead - _distinct(positions, with_vector)


def _positions(io: FileIO, delete: LiveEntry, written_at: dict[str, int]) -> pa.Table:
    with io.new_input(delete.file.file_path).open() as stream:
        rows = pq.read_table(stream, columns=[_PATH, _POSITION])
    hit = [path for path, number in written_at.items() if number <= delete.sequence_number]
    return rows.filter(pc.is_in(rows[_PATH], pa.array(hit, pa.string())))


def _distinct(positions: list[pa.Table], with_vector: set[str]) -> int:
    """Count the rows that position deletes hit; a deletion vector takes the place of all of its file's."""
    if not positions:
        return 0
    every = pa.concat_tables(positions).group_by([_PATH, _POSITION]).aggregate([])
    by_vector = pc.is_in(every[_PATH], pa.array(sorted(with_vector), pa.string()))
    return int(every.num_rows - (pc.sum(by_vector).as_py() or 0))


def _deletes(io: FileIO, snapshot: Snapshot) -> Iterator[LiveEntry]:
    for manifest in snapshot.manifests(io):
        if manifest.content == ManifestContent.DELETES:
            yield from live_entries(io, manifest)
