"""``planner.ports.ColdStore`` over pyiceberg catalogs: lists, pins and names cold rows."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Any

from cachetools import LRUCache, cachedmethod
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.errors import pinned_errors
from connectors.iceberg.file_access import EngineCalls, FileAccess
from connectors.iceberg.file_io import OwnFiles, table_metadata
from connectors.iceberg.history_facts import (
    TableEvidence,
    own_schema_id,
    read_facts,
    retained_of,
)
from connectors.iceberg.relations import no_rows, read_sql, relation_of, scan_sql
from connectors.iceberg.scan.manifests import Manifests
from connectors.iceberg.scan.planner import ColdPlan
from connectors.iceberg.scan.snapshot_facts import version_of
from connectors.iceberg.types import table_schema
from connectors.store.catalog_roots import CatalogRoots
from connectors.table_facts import decide_pin
from planner.column_statistics import UuidStatistics, uuid_statistics
from planner.errors import CutExpired, SnapshotExpired, StalePlan
from planner.names import KAFKA_OFFSET, TableName
from planner.ports import ArrowRelation, ColdTotals, SqlRelation
from planner.reading.filters import (
    EVERY_FILE,
    EVERYTHING,
    Bounds,
    FileSpan,
    ScanFilter,
    position_of,
)
from planner.schema import TableSchema
from planner.seam.cut import ColdSlice, Pin, PinReference
from planner.seam.snapshots import Retained

_METADATA_FILE = re.compile(r"[\w.-]{1,200}\.metadata\.json(\.gz)?")
#: Facts of snapshots, which never change; an entry is an offset per partition, or a few expired snapshots.
MAX_REMEMBERED_EVIDENCE = 10_000
#: Lists of files as text, for statements that ask for the same again: to work one out takes 0.8 ms.
MAX_CACHED_BYTES = 8 << 20
#: What a list without files counts for: its key, and a table without rows.
_EMPTY_BYTES = 4_096
#: What a value of a condition takes, which is part of the key.
_VALUE_BYTES = 200
#: Lists of retained snapshots by metadata location: of the pins in use, some tens of bytes a snapshot.
MAX_REMEMBERED_RETAINED = 256
_NO_ENGINE = EngineCalls()


class IcebergStore:
    """Iceberg tables of the configured catalogs. Thread-safe; ``close`` ends the catalogs' connections."""

    def __init__(
        self,
        catalogs: Mapping[str, Mapping[str, str]],
        *,
        max_cache_memory_bytes: int = 512 << 20,
        roots: CatalogRoots | None = None,
        engine: EngineCalls = _NO_ENGINE,
    ) -> None:
        """``catalogs``: pyiceberg properties by catalog name.

        ``roots`` are by default the catalogs' warehouses: a table reads below its catalog's, and its own location.
        """
        self._catalogs = Catalogs(catalogs, roots)
        self.files = FileAccess(self._catalogs, engine.take_secret)
        self._lock = threading.Lock()
        self._manifests = Manifests(max_memory_bytes=max_cache_memory_bytes)
        self._plan = ColdPlan(
            self._manifests,
            lambda cold: self.files.of(cold.table, cold.metadata_location),
            engine,
        )
        self._evidence: LRUCache[tuple[object, ...], Any] = LRUCache(MAX_REMEMBERED_EVIDENCE)
        #: Relations of lists of files, each with the bytes it counts for.
        self._listed: LRUCache[tuple[object, ...], tuple[SqlRelation | ArrowRelation, int]] = (
            LRUCache(MAX_CACHED_BYTES, getsizeof=lambda entry: entry[1])
        )
        self._retained: LRUCache[tuple[TableName, str], Retained] = LRUCache(
            MAX_REMEMBERED_RETAINED
        )

    def catalogs(self) -> tuple[str, ...]:
        return self._catalogs.names

    def tables(self, catalog: str | None = None) -> tuple[TableName, ...]:
        return self._catalogs.tables(self._catalogs.names if catalog is None else (catalog,))

    def pin(self, table: TableName) -> Pin:
        return self._pin(table, self._catalogs.load(table))

    def pin_at(self, reference: PinReference) -> Pin:
        table, snapshot_id = reference.table, reference.snapshot_id
        loaded = self._catalogs.load(table)
        expired = SnapshotExpired(
            f"{table}: the metadata file the ticket names is not one of this table's any more; plan the statement again.",
            table=str(table),
            snapshot_id=snapshot_id,
        )
        if str(loaded.metadata.table_uuid) != reference.table_uuid:
            raise expired
        logged = (entry.metadata_file for entry in reversed(loaded.metadata.metadata_log))
        for location in (loaded.metadata_location, *logged):
            if location.rsplit("/", 1)[-1] == reference.metadata_file:
                break
        else:
            # The log forgets the oldest (write.metadata.previous-versions-max), whose files stay until they are cleaned
            # up. A name with a folder in it, or of another kind of file, is none of the table's.
            if not _METADATA_FILE.fullmatch(reference.metadata_file):
                raise expired
            folder = loaded.metadata_location.rpartition("/")[0]
            location = f"{folder}/{reference.metadata_file}"
        if location != loaded.metadata_location:
            with pinned_errors(reference, "its metadata file"):
                loaded = self._catalogs.at_location(table, loaded, location)
        metadata = loaded.metadata
        if str(metadata.table_uuid) != reference.table_uuid:
            raise expired
        current = metadata.current_snapshot_id, metadata.current_schema_id
        if current == (snapshot_id, reference.schema_id):
            return self._pin(table, loaded)
        version = None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
        if version is None or own_schema_id(metadata, version) != reference.schema_id:
            raise expired
        return self._pin(table, loaded, version)

    def pin_version(self, pin: Pin, snapshot_id: int) -> Pin:
        io, metadata = self._metadata(pin)
        version = metadata.snapshot_by_id(snapshot_id)
        if version is None:
            raise CutExpired(
                f"{pin.table}: snapshot {snapshot_id} is not one of the {len(metadata.snapshots)} that the table "
                f"retains.",
                table=str(pin.table),
                snapshot_id=snapshot_id,
            )
        named = (pin.table.catalog, *pin.table.namespace, pin.table.name)
        # Nothing of it asks a catalog: what is read are files beside the metadata file.
        loaded = Table(named, metadata, pin.metadata_location, io, NoopCatalog(named[0]))
        return self._pin(pin.table, loaded, version)

    @cachedmethod(
        lambda self: self._retained,
        key=lambda _, pin: (pin.table, pin.metadata_location),
        lock=lambda self: self._lock,
    )
    def retained(self, pin: Pin) -> Retained:
        return retained_of(self._metadata(pin)[1])

    def own_schema(self, table: TableName, cold: ColdSlice) -> TableSchema:
        """Return the schema that a slice's snapshot was written with: how readers of another engine show it.

        Raises SnapshotExpired, ColdStoreUnavailable as ``scan``.
        """
        with self._reading(cold):
            _, metadata = self._opened(cold)
            version = version_of(metadata, cold)
            if version is None:
                raise FileNotFoundError
        schemas = {schema.schema_id: schema for schema in metadata.schemas}
        own = schemas[own_schema_id(metadata, version)]
        return table_schema(table, own, metadata.name_mapping())

    def _metadata(self, pin: Pin) -> tuple[OwnFiles, TableMetadata]:
        with pinned_errors(pin, "its metadata file"):
            return self._opened(pin)

    def _opened(self, pinned: Pin | ColdSlice) -> tuple[OwnFiles, TableMetadata]:
        io = self.files.of(pinned.table, pinned.metadata_location)
        return io, table_metadata(io, pinned.metadata_location)

    def _pin(
        self, table: TableName, loaded: Table, version: IcebergSnapshot | None = None
    ) -> Pin:
        """Pin the head in the current schema, or a version in its own."""
        location, metadata = loaded.metadata_location, loaded.metadata
        io = self.files.remember(table, loaded)
        facts = read_facts(table, loaded, version)
        if version is None:
            self._plan.remember(io, location, metadata)
            with self._lock:
                self._retained[table, location] = retained_of(metadata)
        return decide_pin(facts, TableEvidence(table, loaded, self._evidence, self._lock))

    def scan(
        self,
        cold: ColdSlice,
        rows: ScanFilter = EVERYTHING,
        names: Collection[str] | None = None,
        span: FileSpan = EVERY_FILE,
    ) -> SqlRelation | ArrowRelation:
        """Name the rows of a slice: our own list of files where that is enough, else the extension's scan.

        That shows the metadata file's head in its current schema, or (``snapshot_from_id``) another version in its own.
        Raises UnsupportedFile; ``probe`` tells why a scan failed later.
        """
        if cold.snapshot_id is None:
            return no_rows(cold)
        key = (
            cold.table,
            cold.metadata_location,
            cold.snapshot_id,
            cold.schema.schema_id,
            rows,
            None if names is None else tuple(names),
            span,
        )
        with self._lock:
            cached, _ = self._listed.get(key, (None, 0))
        if cached is not None:
            return cached
        with self._reading(cold):
            files = self._plan.files(cold, rows, names)
            if files is None and span.is_whole:
                return SqlRelation(self.extension_sql(cold))
        if files is None:
            raise StalePlan(
                f"snapshot {cold.snapshot_id}: its files were told apart when the statement was planned, and are not any more; "
                f"plan the statement again.",
                snapshot_id=cold.snapshot_id,
            )
        files = files.within(span)
        relation = relation_of(cold, files, names) if files.paths else no_rows(cold)
        size = len(relation.sql) if isinstance(relation, SqlRelation) else _EMPTY_BYTES
        with self._lock, suppress(ValueError):  # larger than all that is cached
            values = sum(
                len(condition.values) for conditions in rows for condition in conditions
            )
            self._listed[key] = relation, size + _VALUE_BYTES * values
        return relation

    def lowest_offset(self, cold: ColdSlice) -> int:
        """Return an offset that no row of a slice is below, by the bounds of its files; 0 where they do not tell.

        Raises as ``scan``.
        """
        if cold.snapshot_id is None:
            return 0
        column = next(each for each in cold.schema.columns if each.name == KAFKA_OFFSET)
        with self._reading(cold):
            return max(0, self._plan.lowest(cold, column) or 0)

    def comparable_floats(self, cold: ColdSlice) -> frozenset[int]:
        """Return the ids of floating fields of which statistics and dictionaries of files tell what SQL would.

        No row has NaN there, which bounds leave out, or a zero: files tell -0.0 from 0.0, which are equal to SQL. Raises as
        ``scan``.
        """
        if cold.snapshot_id is None:
            return frozenset()
        with self._reading(cold):
            return self._plan.comparable_floats(cold)

    def uuid_statistics(self, pin: Pin) -> UuidStatistics:
        """Return which uuids of a table get statistics, by its properties and its files' manifests. Raises as ``scan``."""
        properties = self._metadata(pin)[1].properties
        cold = ColdSlice(pin.table, pin.metadata_location, pin.snapshot_id, pin.schema)
        with self._reading(cold):
            return uuid_statistics(pin.schema.arrow, properties, self._plan.bounded(cold))

    def properties(self, pin: Pin) -> Mapping[str, str]:
        """Return the table's properties by its pinned metadata file. Raises as ``scan``."""
        return self._metadata(pin)[1].properties

    def shares(
        self, cold: ColdSlice, rows: ScanFilter, names: Collection[str], count: int
    ) -> tuple[tuple[SqlRelation, ...], bool]:
        """Name the rows of a slice as at most ``count`` relations that together are ``scan``, and whether these are files.

        False: the engine chooses, and there is one relation. Each needs nothing but the engine to be read. Raises as ``scan``.
        """
        if cold.snapshot_id is None:
            return (), True
        with self._reading(cold):
            files = self._plan.files(cold, rows, names)
            if files is None:
                return (SqlRelation(self.extension_sql(cold)),), False
        columns = [column for column in cold.schema.columns if column.name in names]
        groups = [files.paths[start::count] for start in range(min(count, len(files.paths)))]
        lists = (
            replace(files, paths=paths, rows=files.rows // len(groups)) for paths in groups
        )
        return tuple(SqlRelation(read_sql(columns, each)) for each in lists), True

    def totals(self, cold: ColdSlice) -> ColdTotals:
        with self._reading(cold):
            snapshot = version_of(self._opened(cold)[1], cold)
        if snapshot is None:
            return ColdTotals(0, 0, 0)
        if snapshot.summary is None:
            return ColdTotals()
        texts = map(
            snapshot.summary.get, ("total-records", "total-data-files", "total-files-size")
        )
        return ColdTotals(*(None if text is None else int(text) for text in texts))

    def count_rows(self, cold: ColdSlice) -> int | None:
        if cold.snapshot_id is None:
            return 0
        with self._reading(cold):
            return self._plan.count_rows(cold)

    def bounds(self, cold: ColdSlice, name: str) -> Bounds | None:
        if cold.snapshot_id is None:
            return None
        column = next(each for each in cold.schema.columns if each.name == name)
        with self._reading(cold):
            return self._plan.bounds(cold, column)

    def file_positions(
        self, cold: ColdSlice, rows: ScanFilter = EVERYTHING
    ) -> Sequence[tuple[int, int]] | None:
        if cold.snapshot_id is None:
            return ()
        with self._reading(cold):
            files = self._plan.files(cold, rows)
        if files is None:
            return None
        return list(zip(map(position_of, files.paths), files.lengths, strict=True))

    def count_files(self, cold: ColdSlice, rows: ScanFilter = EVERYTHING) -> int | None:
        positions = self.file_positions(cold, rows)
        return None if positions is None else len(positions)

    def extension_sql(self, cold: ColdSlice) -> str:
        """Return the slice's rows as DuckDB's own extension reads them, without what it gets wrong."""
        return scan_sql(cold, self._plan.misread(cold), is_head=self._plan.is_head(cold))

    def probe(self, cold: ColdSlice) -> None:
        """Check that everything a slice needs can be opened: for after a scan failed, not before.

        Raises SnapshotExpired or ColdStoreUnavailable.
        """
        with self._reading(cold):
            io, metadata = self._opened(cold)
            snapshot = version_of(metadata, cold)
            for manifest in snapshot.manifests(io) if snapshot is not None else ():
                for entry in manifest.fetch_manifest_entry(io):
                    if not io.new_input(entry.data_file.file_path).exists():
                        raise FileNotFoundError

    def _reading(self, cold: ColdSlice) -> AbstractContextManager[None]:
        """Translate errors, and name the table."""
        return pinned_errors(cold, f"snapshot {cold.snapshot_id}")

    def close(self) -> None:
        self._plan.close()
        self._manifests.close()
        self._catalogs.close()
