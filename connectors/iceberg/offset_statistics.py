"""Which offsets a snapshot's added files reach (docs/internals/seam.md, T25).

Column statistics answer for a file of one Kafka partition. Compaction and foreign writers mix partitions in a
file, and statistics can be off or stop short of a column, so such a file's two columns are read instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetVector
from planner.repairs import AddedRows


def reach(table: Table, snapshot_id: int, below: OffsetVector) -> OffsetVector | None:
    """Return 1 + the greatest offset per partition among rows of all data files of a snapshot, or more.

    Files that lie wholly below ``below`` by their statistics are not read, and not in the answer.
    None when it cannot be known: a row without partition or offset, or files this program cannot read.
    Rows that were deleted from a file count.
    """
    files = (entry.data_file for entry in data_entries(table, snapshot_id))
    above = (file for file in files if not _lies_below(table.schema(), file, below))
    rows = _described(table, above)
    return None if rows is None or rows.without_offset else rows.next


def added_rows(table: Table, snapshot_id: int) -> AddedRows | None:
    """Describe the rows a snapshot added, those without partition or offset too; None for unreadable files."""
    added = (
        entry.data_file
        for entry in data_entries(table, snapshot_id, added_by=snapshot_id)
        if entry.status == ManifestEntryStatus.ADDED
    )
    return _described(table, added)


def data_entries(
    table: Table, snapshot_id: int, added_by: int | None = None
) -> Iterator[ManifestEntry]:
    """Read the data manifests of a snapshot, or those of them that ``added_by`` wrote."""
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    for manifest in snapshot.manifests(table.io) if snapshot is not None else ():
        is_of_writer = added_by in (None, manifest.added_snapshot_id)
        if is_of_writer and manifest.content == ManifestContent.DATA:
            yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)


def _lies_below(schema: Schema, file: DataFile, below: OffsetVector) -> bool:
    """Whether statistics show that every row has a partition, and an offset below that partition's."""
    bounds = _bounds(schema, file)
    if bounds is None:
        return False
    first, last, greatest = bounds
    limits = below.as_dict()
    return all(greatest < limits.get(partition, 0) for partition in range(first, last + 1))


def _ends(table: Table, file: DataFile) -> tuple[dict[int, int], int] | None:
    """Return where a file's rows reach, and how many lack partition or offset; None when it cannot be read."""
    bounds = _bounds(table.schema(), file)
    if bounds is None or bounds[0] != bounds[1]:
        return _read(table, file)
    return {bounds[0]: bounds[2] + 1}, 0


def _bounds(schema: Schema, file: DataFile) -> tuple[int, int, int] | None:
    """Return lowest and greatest partition and greatest offset; None where a row may lack one."""
    partition_id = schema.find_field(KAFKA_PARTITION).field_id
    offset_id = schema.find_field(KAFKA_OFFSET).field_id
    nulls = file.null_value_counts or {}
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    if nulls.get(partition_id) != 0 or nulls.get(offset_id) != 0:
        return None
    first, last, offset = lower.get(partition_id), upper.get(partition_id), upper.get(offset_id)
    if first is None or last is None or offset is None:
        return None
    return whole_number(first), whole_number(last), whole_number(offset)


def whole_number(bound: bytes) -> int:
    """Decode a bound of an int or a long: which of the two, the file was written as (Iceberg spec, Appendix D)."""
    return int.from_bytes(bound, "little", signed=True)


def _described(table: Table, files: Iterable[DataFile]) -> AddedRows | None:
    """Describe the rows of data files; None if one cannot be read."""
    rows = without = 0
    reach: dict[int, int] = {}
    for file in files:
        if not file.record_count:
            continue
        rows += file.record_count
        read = _ends(table, file)
        if read is None:
            return None
        without += read[1]
        _raise_to(reach, read[0])
    return AddedRows(rows, OffsetVector.of(reach.items()), without)


def _raise_to(reach: dict[int, int], offsets: dict[int, int]) -> None:
    for partition, following in offsets.items():
        reach[partition] = max(following, reach.get(partition, 0))


def _read(table: Table, file: DataFile) -> tuple[dict[int, int], int] | None:
    """Read the two columns by field id, a batch at a time: where they reach, and how many rows lack one."""
    fields = [table.schema().find_field(name) for name in (KAFKA_PARTITION, KAFKA_OFFSET)]
    # Optional and without a default, even where the schema has it otherwise: a file may lack the column altogether.
    without_default = {"required": False, "initial_default": None}
    optional = (field.model_copy(update=without_default) for field in fields)
    scan = ArrowScan(table.metadata, table.io, Schema(*optional), AlwaysTrue())
    reach: dict[int, int] = {}
    without = 0
    try:
        for batch in scan.to_record_batches([FileScanTask(file)]):
            placed = pa.Table.from_batches([batch]).drop_null()
            without += batch.num_rows - placed.num_rows
            greatest = placed.group_by(KAFKA_PARTITION).aggregate([(KAFKA_OFFSET, "max")])
            rows = greatest.to_pylist()
            ends = {row[KAFKA_PARTITION]: row[f"{KAFKA_OFFSET}_max"] + 1 for row in rows}
            _raise_to(reach, ends)
    except (ValueError, NotImplementedError):
        # A file format or encoding pyiceberg does not read: what it holds cannot be known here.
        return None
    return reach, without
