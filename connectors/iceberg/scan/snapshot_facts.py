"""What listing the files of a snapshot needs of its metadata file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform, Transform
from pyiceberg.types import IcebergType

from connectors.iceberg.scan.projection import partition_type
from planner.names import is_portable_partition_field
from planner.seam.cut import ColdSlice


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a partition spec. ``kind`` is the type of its values; None: they allow no pruning."""

    position: int
    source_id: int
    transform: Transform[Any, Any]
    source: IcebergType
    kind: pa.DataType | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a metadata file that planning needs for one snapshot and schema. ``specs`` by id.

    ``own`` are the fields that a data file must have itself: others may be replaced by the value of an identity
    partition, or by a default. ``manifest_list`` is None for a snapshot of format v1 without one. ``is_head``: snapshot
    and schema are the file's current ones. ``odd_partition_field`` is the id of a partition field, of any spec, by whose
    name DuckDB's extension may end the process.
    """

    table_uuid: str
    manifest_list: str | None
    specs: Mapping[int, tuple[PartitionField, ...]]
    own: frozenset[int]
    is_head: bool = True
    odd_partition_field: int | None = None

    @classmethod
    def of(cls, metadata: TableMetadata, cold: ColdSlice | None = None) -> Facts:
        """``cold``: of another version than the head."""
        snapshot, schema = metadata.current_snapshot(), metadata.schema()
        is_head = cold is None or (cold.snapshot_id, cold.schema.schema_id) == (
            metadata.current_snapshot_id,
            metadata.current_schema_id,
        )
        if cold is not None and not is_head:
            snapshot = version_of(metadata, cold)
            schemas = {of_cut.schema_id: of_cut for of_cut in metadata.schemas}
            schema = schemas[cold.schema.schema_id]
        specs: dict[int, tuple[PartitionField, ...]] = {}
        own = {field.field_id for field in schema.fields if field.initial_default is not None}
        types = {field.field_id: field.field_type for field in schema.fields}
        for spec_id, spec in metadata.specs().items():
            of_spec = []
            for position, field in enumerate(spec.fields):
                source, transform = types.get(field.source_id), field.transform
                if source is None:
                    continue
                if isinstance(transform, IdentityTransform):
                    own.add(field.source_id)
                kind = partition_type(transform, source)
                of_spec.append(
                    PartitionField(position, field.source_id, transform, source, kind)
                )
            specs[spec_id] = tuple(of_spec)
        fields = (field for spec in metadata.partition_specs for field in spec.fields)
        odd = (each.field_id for each in fields if not is_portable_partition_field(each.name))
        manifest_list = snapshot.manifest_list if snapshot is not None else None
        facts = (str(metadata.table_uuid), manifest_list, specs, frozenset(own), is_head)
        return cls(*facts, next(odd, None))


def version_of(metadata: TableMetadata, cold: ColdSlice) -> Snapshot | None:
    """Return the snapshot of a slice. Raises FileNotFoundError: the file does not retain it."""
    if cold.snapshot_id is None:
        return None
    snapshot = metadata.snapshot_by_id(cold.snapshot_id)
    if snapshot is None:
        raise FileNotFoundError
    return snapshot
