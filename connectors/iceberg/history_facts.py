"""``connectors.table_facts.Evidence`` over one metadata file that pyiceberg loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from connectors.iceberg.errors import catalog_errors, file_errors
from connectors.iceberg.file_io import table_metadata
from connectors.iceberg.offset_statistics import added_rows, reach
from connectors.iceberg.types import table_schema
from connectors.iceberg.undeleted_rows import live_rows
from connectors.table_facts import TableFacts, earlier_line
from planner.errors import ColdStoreUnavailable, ForeignFile
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.repairs import AddedRows
from planner.seam.binding import MIRROR
from planner.seam.snapshots import TAG, History, Retained, Snapshot

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TableEvidence:
    """Reads manifests, older metadata files and, where statistics do not tell, data files.

    A snapshot never changes, so ``remembered`` may keep every answer, under ``lock``.
    """

    table: TableName
    loaded: Table
    remembered: MutableMapping[tuple[object, ...], Any] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def rows(self, snapshot_id: int) -> AddedRows | None:
        return self._look_up("added", snapshot_id, lambda: added_rows(self.loaded, snapshot_id))

    def added_next(self, snapshot_id: int) -> OffsetVector | None:
        added = self.rows(snapshot_id)
        return None if added is None or added.without_offset else added.next

    def live_rows(self, snapshot_id: int) -> int | None:
        return self._look_up("rows", snapshot_id, lambda: live_rows(self.loaded, snapshot_id))

    def single_keys(self, snapshot_id: int, key: tuple[int, ...]) -> bool | None:
        # Only of a keyed table that other writers changed.
        from connectors.iceberg.single_keys import single_keys

        return self._look_up(
            f"keys {key}", snapshot_id, lambda: single_keys(self.loaded, snapshot_id, key)
        )

    def reach(self, snapshot_id: int, below: OffsetVector) -> OffsetVector | None:
        return self._look_up(
            f"reach {below.items}", snapshot_id, lambda: reach(self.loaded, snapshot_id, below)
        )

    def earlier(self, snapshot_id: int) -> Mapping[int, Snapshot]:
        return self._look_up(
            "earlier", snapshot_id, lambda: earlier_line(snapshot_id, self._older())
        )

    def _look_up(self, kind: str, snapshot_id: int, find: Callable[[], _T]) -> _T:
        key = (self.table.catalog, self.loaded.metadata.table_uuid, kind, snapshot_id)
        with self.lock:
            if key in self.remembered:
                return cast("_T", self.remembered[key])
        what, table = f"{self.table}: a file of snapshot {snapshot_id}", str(self.table)
        gone = ColdStoreUnavailable
        with file_errors(what, gone=gone, table=table, snapshot_id=snapshot_id):
            answer = find()
        with self.lock:
            self.remembered[key] = answer
        return answer

    def _older(self) -> Iterator[Mapping[int, Snapshot]]:
        """Read the metadata files before this one, newest first; skip missing or invalid ones."""
        uuid = self.loaded.metadata.table_uuid
        for entry in reversed(self.loaded.metadata.metadata_log):
            try:
                older = table_metadata(self.loaded.io, entry.metadata_file)
            except (FileNotFoundError, ValueError, ForeignFile):
                continue
            if older.table_uuid == uuid:
                yield snapshots_of(older)


def snapshots_of(metadata: TableMetadata) -> dict[int, Snapshot]:
    return {snapshot.snapshot_id: _snapshot(snapshot) for snapshot in metadata.snapshots}


def _snapshot(snapshot: IcebergSnapshot) -> Snapshot:
    # A format v1 snapshot may lack a summary; the resolver refuses an operation it does not know.
    summary = snapshot.summary
    return Snapshot(
        snapshot_id=snapshot.snapshot_id,
        parent_id=snapshot.parent_snapshot_id,
        sequence_number=snapshot.sequence_number or 0,
        operation="unknown" if summary is None else summary.operation.value,
        summary={} if summary is None else summary.additional_properties,
        committed_ms=snapshot.timestamp_ms,
    )


def read_facts(
    table: TableName, loaded: Table, version: IcebergSnapshot | None = None
) -> TableFacts:
    """Take every fact of a pin from one metadata file (docs/internals/seam.md, T4); ``version``: as if it were the head."""
    metadata = loaded.metadata
    current = metadata.schema()
    if version is not None:
        current = loaded.schemas()[own_schema_id(metadata, version)]
    with catalog_errors(table.catalog, table):
        schema = table_schema(table, current, metadata.name_mapping())
    return TableFacts(
        table=table,
        table_uuid=str(metadata.table_uuid),
        metadata_location=loaded.metadata_location,
        head=metadata.current_snapshot_id if version is None else version.snapshot_id,
        schema=schema,
        properties=metadata.properties,
        history=History(
            snapshots=snapshots_of(metadata),
            tagged_id=metadata.refs[TAG].snapshot_id if TAG in metadata.refs else None,
            mirror=metadata.properties.get(MIRROR),
        ),
    )


def own_schema_id(metadata: TableMetadata, version: IcebergSnapshot) -> int:
    """Return the schema a snapshot was written with; the current one if it has none (format v1)."""
    return metadata.current_schema_id if version.schema_id is None else version.schema_id


def retained_of(metadata: TableMetadata) -> Retained:
    return Retained(
        frozenset(snapshot.snapshot_id for snapshot in metadata.snapshots),
        tuple(
            (entry.timestamp_ms * 1000, entry.snapshot_id) for entry in metadata.snapshot_log
        ),
    )
