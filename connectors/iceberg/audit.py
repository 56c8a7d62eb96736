"""Everything that one metadata file and its manifests say of a table, for ``verify``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.errors import file_errors
from connectors.iceberg.history_facts import TableEvidence, own_schema_id, read_facts
from connectors.iceberg.offset_statistics import whole_number
from connectors.iceberg.types import table_schema
from connectors.store.catalog_roots import CatalogRoots
from connectors.table_facts import TableFacts, decide_pin
from planner.errors import Inconsistent, SnapshotExpired
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, TableName
from planner.offsets import OffsetRange
from planner.schema import TableSchema
from planner.seam.cut import Pin


@dataclass(frozen=True, slots=True)
class DataFileFacts:
    """A data file of the head. Bounds are inclusive; None where statistics do not say."""

    name: str
    added_by: int
    references: int
    rows: int
    partitions: tuple[int, int] | None
    offsets: tuple[int, int] | None

    def may_hold(self, span: OffsetRange) -> bool:
        """Whether a row of ``span`` can be in this file."""
        if self.partitions is None or self.offsets is None:
            return True
        first, last = self.offsets
        lowest, highest = self.partitions
        return lowest <= span.partition <= highest and first < span.stop and span.start <= last


@dataclass(frozen=True, slots=True)
class TableAudit:
    """One metadata file and the manifests of its head.

    ``pin`` is what readers would pin, or the verdict they would get. By snapshot, ``written_ms`` is when each retained one was
    committed, ``schema_ids`` the schema it was written with.
    """

    facts: TableFacts
    pin: Pin | Inconsistent
    written_ms: Mapping[int, int]
    schema_ids: Mapping[int, int]
    schemas: Mapping[int, TableSchema]
    files: tuple[DataFileFacts, ...]


class Auditor:
    """Audits tables of the configured catalogs. ``close`` ends their connections."""

    def __init__(
        self, catalogs: Mapping[str, Mapping[str, str]], roots: CatalogRoots | None = None
    ) -> None:
        self._catalogs = Catalogs(catalogs, roots)

    def audit(self, table: TableName) -> TableAudit:
        """Read the newest metadata file and all manifests of its head.

        Raises:
            UnknownTable, CatalogUnavailable, ColdStoreUnavailable, UnsupportedType, BadBinding.
            SnapshotExpired: a manifest is gone.
        """
        loaded = self._catalogs.load(table)
        facts = read_facts(table, loaded)
        metadata = loaded.metadata
        mapping = metadata.name_mapping()
        head = metadata.current_snapshot()
        files: tuple[DataFileFacts, ...] = ()
        if head is not None:
            what = f"{table}: a manifest of snapshot {head.snapshot_id}"
            with file_errors(what, gone=SnapshotExpired, table=str(table)):
                live = list(_live_files(loaded, head))
            data = [(by, file) for by, file in live if file.content == DataFileContent.DATA]
            files = tuple(_file_facts(loaded, data))
        return TableAudit(
            facts=facts,
            pin=_pin(loaded, facts),
            written_ms={live.snapshot_id: live.timestamp_ms for live in metadata.snapshots},
            schema_ids={
                live.snapshot_id: own_schema_id(metadata, live) for live in metadata.snapshots
            },
            schemas={
                live.schema_id: table_schema(table, live, mapping) for live in metadata.schemas
            },
            files=files,
        )

    def close(self) -> None:
        self._catalogs.close()


def _pin(loaded: Table, facts: TableFacts) -> Pin | Inconsistent:
    try:
        return decide_pin(facts, TableEvidence(facts.table, loaded))
    except Inconsistent as verdict:
        return verdict


def _live_files(table: Table, head: IcebergSnapshot) -> Iterator[tuple[int, DataFile]]:
    for manifest in head.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.snapshot_id or manifest.added_snapshot_id or 0, entry.data_file


def _file_facts(table: Table, files: list[tuple[int, DataFile]]) -> Iterator[DataFileFacts]:
    references = Counter(file.file_path for _, file in files)
    schema = table.schema()
    names = {field.name: field.field_id for field in schema.fields}
    partition_id, offset_id = names.get(KAFKA_PARTITION), names.get(KAFKA_OFFSET)
    for path, (added_by, file) in {file.file_path: (by, file) for by, file in files}.items():
        yield DataFileFacts(
            name=path.rsplit("/", 1)[-1],
            added_by=added_by,
            references=references[path],
            rows=file.record_count,
            partitions=_bounds(file, partition_id),
            offsets=_bounds(file, offset_id),
        )


def _bounds(file: DataFile, field_id: int | None) -> tuple[int, int] | None:
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    if field_id is None or field_id not in lower or field_id not in upper:
        return None
    return whole_number(lower[field_id]), whole_number(upper[field_id])
