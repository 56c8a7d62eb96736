"""``planner.ports.ColdStore`` over pyiceberg catalogs: lists, pins and names cold rows."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from cachetools import LRUCache, cachedmethod
from pyarrow.fs import FileSystem
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.errors import catalog_errors, decoding, file_errors
from connectors.iceberg.file_io import OwnFiles, arrow_store, own_io, with_file_io
from connectors.iceberg.history_facts import TableEvidence, snapshots_of
from connectors.iceberg.rest import KeysByPrefix, keys_by_prefix
from connectors.iceberg.scan.footers import Written
from connectors.iceberg.scan.manifests import Manifests
from connectors.iceberg.scan.planner import ColdPlan, FileList
from connectors.iceberg.scan.projection import renamed_sql
from connectors.iceberg.scan.snapshot_facts import version_of
from connectors.iceberg.types import table_schema
from connectors.store.catalog_roots import CatalogRoots
from connectors.store.locations import local_path, plain
from connectors.store.object_store import (
    are_one_store,
    places_of,
    vended_properties,
    vended_secret,
)
from connectors.table_facts import TableFacts, decide_pin
from planner.column_statistics import UuidStatistics, uuid_statistics
from planner.errors import CutExpired, ForeignFile, SnapshotExpired, StalePlan
from planner.names import KAFKA_OFFSET, TableName
from planner.ports import ArrowRelation, ColdTotals, SqlRelation
from planner.reading.filters import (
    EVERY_FILE,
    EVERYTHING,
    FileSpan,
    ScanFilter,
    position_of,
)
from planner.schema import Column, TableSchema
from planner.seam.binding import MIRROR
from planner.seam.cut import ColdSlice, Pin, PinReference
from planner.seam.snapshots import TAG, History, Retained
from planner.sql_text import identifier, literal
from planner.type_text import sql_type

_METADATA_FILE = re.compile(r"[\w.-]{1,200}\.metadata\.json(\.gz)?")
#: The largest row count that DuckDB is told; a larger one is damaged metadata.
_MAX_ESTIMATE = 10**12
#: Facts of snapshots, which never change; an entry is an offset per partition, or a few expired snapshots.
MAX_REMEMBERED_EVIDENCE = 10_000
#: FileIO by table and metadata location: a REST catalog gives each table its own credentials.
MAX_REMEMBERED_FILE_IO = 1_000
#: Lists of files as text, for statements that ask for the same again: to work one out takes 0.8 ms.
MAX_CACHED_BYTES = 8 << 20
#: What a list without files counts for: its key, and a table without rows.
_EMPTY_BYTES = 4_096
#: What a value of a condition takes, which is part of the key.
_VALUE_BYTES = 200
#: Lists of retained snapshots by metadata location: of the pins in use, some tens of bytes a snapshot.
MAX_REMEMBERED_RETAINED = 256


class IcebergStore:
    """Iceberg tables of the configured catalogs. Thread-safe; ``close`` ends the catalogs' connections."""

    def __init__(
        self,
        catalogs: Mapping[str, Mapping[str, str]],
        *,
        max_cache_memory_bytes: int = 512 << 20,
        roots: CatalogRoots | None = None,
        take_secret: Callable[[str], None] | None = None,
        open_file: Callable[[str], None] | None = None,
        try_manifests: Callable[[str, int], None] | None = None,
    ) -> None:
        """``catalogs``: pyiceberg properties by catalog name.

        ``roots`` are by default the catalogs' warehouses: a table reads below its catalog's, and its own location.
        ``take_secret`` gets a CREATE SECRET for each table whose catalog hands out keys with it, and again for each new key.
        ``open_file`` has the engine keep length and footer of a file, ``try_manifests`` read all manifests of a snapshot.
        """
        self._catalogs = Catalogs(catalogs, roots)
        self._take_secret = take_secret
        #: The newest secret of each table's place.
        self._vended: dict[str, str] = {}
        self._lock = threading.Lock()
        self._manifests = Manifests(max_memory_bytes=max_cache_memory_bytes)
        self._plan = ColdPlan(
            self._manifests,
            lambda cold: self.files(cold.table, cold.metadata_location),
            open_file,
            try_manifests,
        )
        self._evidence: LRUCache[tuple[object, ...], Any] = LRUCache(MAX_REMEMBERED_EVIDENCE)
        self._loaded: LRUCache[tuple[TableName, str], tuple[OwnFiles, KeysByPrefix]] = LRUCache(
            MAX_REMEMBERED_FILE_IO
        )
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
        facts = {"table": str(table), "snapshot_id": snapshot_id}
        expired = SnapshotExpired(
            f"{table}: the metadata file the ticket names is not one of this table's any more; plan the "
            f"statement again.",
            **facts,
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
            with file_errors(f"{table}: its metadata file", gone=SnapshotExpired, **facts):
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
        metadata, io = self._metadata(pin)
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
        return _retained(self._metadata(pin)[0])

    def own_schema(self, table: TableName, cold: ColdSlice) -> TableSchema:
        """Return the schema that a slice's snapshot was written with: how readers of another engine show it.

        Raises:
            SnapshotExpired, ColdStoreUnavailable: as ``scan``.
        """
        with self._reading(cold):
            io = self.files(cold.table, cold.metadata_location)
            metadata = FromInputFile.table_metadata(io.new_input(cold.metadata_location))
            version = metadata.snapshot_by_id(cold.snapshot_id or 0)
            if version is None:
                raise FileNotFoundError
        schemas = {schema.schema_id: schema for schema in metadata.schemas}
        own = schemas[own_schema_id(metadata, version)]
        return table_schema(table, own, metadata.name_mapping())

    def _metadata(self, pin: Pin) -> tuple[TableMetadata, OwnFiles]:
        facts = {"table": str(pin.table), "snapshot_id": pin.snapshot_id}
        with file_errors(f"{pin.table}: its metadata file", gone=SnapshotExpired, **facts):
            io = self.files(pin.table, pin.metadata_location)
            return FromInputFile.table_metadata(io.new_input(pin.metadata_location)), io

    def _pin(
        self, table: TableName, loaded: Table, version: IcebergSnapshot | None = None
    ) -> Pin:
        """Pin the head in the current schema, or a version in its own."""
        location, metadata, io = loaded.metadata_location, loaded.metadata, own_io(loaded)
        self._hand_on_keys(table, loaded)
        with self._lock:
            self._loaded[table, location] = io, keys_by_prefix(loaded)
        facts = read_facts(table, loaded, version)
        if version is None:
            self._plan.remember(io, location, metadata)
            with self._lock:
                self._retained[table, location] = _retained(metadata)
        return decide_pin(facts, TableEvidence(table, loaded, self._evidence, self._lock))

    def _hand_on_keys(self, table: TableName, loaded: Table) -> None:
        """Have the engine read a table's files with the keys that came with it, in places of its catalog alone.

        Raises:
            ForeignFile: its location is in none, so that others' keys may count there; or keys are of another store than
                those of a catalog with the same root.
        """
        if self._take_secret is None:
            return
        name, own = table.catalog, loaded.io.properties
        configured, place = self._catalogs.properties(name), plain(loaded.metadata.location)
        places = {place: own} | {
            root: {**own, **keys}
            for prefix, keys in keys_by_prefix(loaded)
            if not place.startswith(prefix)
            for root in self._catalogs.roots.own_below(name, prefix)
        }
        for where, properties in places.items():
            secret = vended_secret(name, configured, properties, where)
            if secret is None:
                continue
            self._check_owner(table, where, properties)
            with self._lock:
                if self._vended.get(where) != secret:
                    self._take_secret(secret)
                    self._vended[where] = secret

    def _check_owner(self, table: TableName, location: str, vended: Mapping[str, str]) -> None:
        owners = self._catalogs.roots.owners(location)
        if table.catalog not in owners:
            raise ForeignFile(
                f"{table}: keys came with it for its location, which lies in no place of catalog {table.catalog}; add the "
                f"place to server.catalog_roots.{table.catalog}.",
                table=str(table),
            )
        for other in sorted(owners - {table.catalog}):
            properties = self._catalogs.properties(other)
            is_keyed = any(key.startswith("s3.") for key in properties)
            if is_keyed and not are_one_store((table.catalog, vended), (other, properties)):
                raise ForeignFile(
                    f"{table}: keys came with it for a place that another catalog has, too, in another store, and a file's "
                    f"name does not tell in which; give both the same s3.endpoint, or each a place of its own.",
                    table=str(table),
                )

    def vended(self, pin: Pin) -> tuple[dict[str, str], KeysByPrefix]:
        """Return the keys that a table's catalog handed out with it last, in Iceberg's names; none of our own.

        First those of the table's metadata, then all by the prefix of the places they are good for, if it named some: none
        for a place of another catalog.
        """
        name = pin.table.catalog
        with self._lock:
            loaded = self._loaded.get((pin.table, pin.metadata_location))
        if loaded is None:
            return {}, ()
        configured, (io, by_prefix) = self._catalogs.own_properties(name), loaded
        return vended_properties(configured, io.properties), tuple(
            (place, handed_out)
            for prefix, keys in by_prefix
            if (
                handed_out := vended_properties(
                    configured, {**places_of(io.properties), **keys}
                )
            )
            for place in self._catalogs.roots.own_below(name, prefix)
        )

    def open_store(self, pin: Pin, location: str) -> FileSystem | None:
        """Return Arrow's file system for a location of a pinned table in an object store; None if there is none.

        Its keys are those that came with the table, for that place if its catalog handed out some by place, or the catalog's.
        Raises ColdStoreUnavailable; SnapshotExpired if the pin is gone.
        """
        facts = {"table": str(pin.table), "snapshot_id": pin.snapshot_id}
        with self._lock:
            loaded = self._loaded.get((pin.table, pin.metadata_location))
        by_prefix = () if loaded is None else loaded[1]
        fitting = [entry for entry in by_prefix if location.startswith(entry[0])]
        with file_errors(f"{pin.table}: its data folder", gone=SnapshotExpired, **facts):
            io: FileIO = self.files(pin.table, pin.metadata_location)
            if fitting:
                _, keys = max(fitting, key=lambda entry: len(entry[0]))
                io = load_file_io({**io.properties, **keys}, location)
            return arrow_store(io, location)

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
            return _nothing(cold)
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
                f"snapshot {cold.snapshot_id}: its files were told apart when the statement was planned, and are not any "
                f"more; plan the statement again.",
                snapshot_id=cold.snapshot_id,
            )
        files = files.within(span)
        relation = _relation(cold, files, names) if files.paths else _nothing(cold)
        size = len(relation.sql) if isinstance(relation, SqlRelation) else _EMPTY_BYTES
        with self._lock, contextlib.suppress(ValueError):  # larger than all that is cached
            values = sum(
                len(condition.values) for conditions in rows for condition in conditions
            )
            self._listed[key] = relation, size + _VALUE_BYTES * values
        return relation

    def lowest_offset(self, cold: ColdSlice) -> int:
        """Return an offset that no row of a slice is below, by the bounds of its files; 0 where they do not tell.

        Raises:
            As ``scan``.
        """
        if cold.snapshot_id is None:
            return 0
        column = next(each for each in cold.schema.columns if each.name == KAFKA_OFFSET)
        with self._reading(cold):
            return max(0, self._plan.lowest(cold, column) or 0)

    def comparable_floats(self, cold: ColdSlice) -> frozenset[int]:
        """Return the ids of floating fields of which statistics and dictionaries of files tell what SQL would.

        No row has NaN there, which bounds leave out, or a zero: files tell -0.0 from 0.0, which are equal to SQL.

        Raises:
            As ``scan``.
        """
        if cold.snapshot_id is None:
            return frozenset()
        with self._reading(cold):
            return self._plan.comparable_floats(cold)

    def uuid_statistics(self, pin: Pin) -> UuidStatistics:
        """Return which uuids of a table get statistics, by its properties and its files' manifests.

        Raises:
            As ``scan``.
        """
        properties = self._metadata(pin)[0].properties
        cold = ColdSlice(pin.table, pin.metadata_location, pin.snapshot_id, pin.schema)
        with self._reading(cold):
            return uuid_statistics(pin.schema.arrow, properties, self._plan.bounded(cold))

    def shares(
        self, cold: ColdSlice, rows: ScanFilter, names: Collection[str], count: int
    ) -> tuple[tuple[SqlRelation, ...], bool]:
        """Name the rows of a slice as at most ``count`` relations that together are ``scan``, and whether these are files.

        False: the engine chooses, and there is one relation. Each needs nothing but the engine to be read.

        Raises:
            As ``scan``.
        """
        if cold.snapshot_id is None:
            return (), True
        with self._reading(cold):
            files = self._plan.files(cold, rows, names)
            if files is None:
                return (SqlRelation(self.extension_sql(cold)),), False
        columns = [column for column in cold.schema.columns if column.name in names]
        groups = [files.paths[start::count] for start in range(min(count, len(files.paths)))]
        return tuple(
            SqlRelation(
                read_sql(columns, replace(files, paths=group, rows=files.rows // len(groups)))
            )
            for group in groups
        ), True

    def totals(self, cold: ColdSlice) -> ColdTotals:
        with self._reading(cold):
            _, snapshot = self._snapshot(cold)
        summary = snapshot.summary if snapshot is not None else None
        if summary is None:
            return ColdTotals(0, 0, 0) if snapshot is None else ColdTotals()
        return ColdTotals(
            *(
                int(text) if (text := summary.get(key)) is not None else None
                for key in ("total-records", "total-data-files", "total-files-size")
            )
        )

    def count_rows(self, cold: ColdSlice) -> int | None:
        if cold.snapshot_id is None:
            return 0
        with self._reading(cold):
            return self._plan.count_rows(cold)

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
        if cold.snapshot_id is None:
            return 0
        with self._reading(cold):
            files = self._plan.files(cold, rows)
        return None if files is None else len(files.paths)

    def extension_sql(self, cold: ColdSlice) -> str:
        """Return the slice's rows as DuckDB's own extension reads them, without what it gets wrong."""
        return scan_sql(cold, self._plan.misread(cold), is_head=self._plan.is_head(cold))

    def probe(self, cold: ColdSlice) -> None:
        """Check that everything a slice needs can be opened: for after a scan failed, not before.

        Raises SnapshotExpired or ColdStoreUnavailable.
        """
        with self._reading(cold):
            io, snapshot = self._snapshot(cold)
            for manifest in snapshot.manifests(io) if snapshot is not None else ():
                for entry in manifest.fetch_manifest_entry(io):
                    if not io.new_input(entry.data_file.file_path).exists():
                        raise FileNotFoundError

    def _snapshot(self, cold: ColdSlice) -> tuple[OwnFiles, IcebergSnapshot | None]:
        io = self.files(cold.table, cold.metadata_location)
        metadata = FromInputFile.table_metadata(io.new_input(cold.metadata_location))
        return io, version_of(metadata, cold)

    @contextlib.contextmanager
    def _reading(self, cold: ColdSlice) -> Iterator[None]:
        """Translate errors, and name the table."""
        what, table = f"{cold.table}: snapshot {cold.snapshot_id}", str(cold.table)
        with file_errors(what, gone=SnapshotExpired, table=table, snapshot_id=cold.snapshot_id):
            yield

    def close(self) -> None:
        self._plan.close()
        self._manifests.close()
        self._catalogs.close()

    def io_at(self, catalog: str, location: str) -> FileIO:
        """Return what reads and writes files at a place of a catalog's store, with its properties."""
        return load_file_io(with_file_io(self._catalogs.properties(catalog)), location)

    def files(self, table: TableName, location: str) -> OwnFiles:
        """Return what reads the files of a pin, by the location of its metadata.

        Raises:
            ForeignFile: as ``Catalogs.load``.
            FileNotFoundError, DamagedFile: the catalog's store does not have that file whole.
        """
        with self._lock:
            loaded = self._loaded.get((table, location))
        if loaded is not None:
            return loaded[0]
        # A slice pinned by another replica: its ticket names the file.
        io = self.io_at(table.catalog, location)
        with decoding("metadata files"):
            metadata = FromInputFile.table_metadata(io.new_input(location))
        own = self._catalogs.own_files(table, io, location, metadata)
        with self._lock:
            self._loaded.setdefault((table, location), (own, ()))
        return own


def _relation(cold: ColdSlice, files: FileList, names: Collection[str] | None) -> SqlRelation:
    without_nan, without_zero = (
        frozenset(column.name for column in cold.schema.columns if column.field_id in fields)
        for fields in (files.without_nan, files.without_zero)
    )
    columns = [
        column for column in cold.schema.columns if names is None or column.name in names
    ]
    return SqlRelation(
        read_sql(columns, files),
        without_nan=without_nan,
        without_zero=without_zero,
    )


def _nothing(cold: ColdSlice) -> ArrowRelation:
    """No rows. Not by ``empty_table``, which makes arrays for each column: 0.2 to 0.6 ms."""
    return ArrowRelation(pa.Table.from_batches([], cold.schema.arrow))


def scan_sql(cold: ColdSlice, opaque: Collection[int] = (), *, is_head: bool = True) -> str:
    """Return a SELECT of the slice's columns, in order, over DuckDB's iceberg extension.

    Conditions on ``opaque`` fields are kept from it: it would take them for a reason to leave out files.
    """
    columns = ", ".join(
        f"CASE WHEN {name} IS NULL THEN NULL ELSE {name} END AS {name}"
        if column.field_id in opaque
        else name
        for column in cold.schema.columns
        for name in (identifier(column.name),)
    )
    version = "" if is_head else f", snapshot_from_id => {cold.snapshot_id}"
    return f"SELECT {columns} FROM iceberg_scan({literal(cold.metadata_location)}{version})"  # noqa: S608


def read_sql(columns: Sequence[Column], files: FileList) -> str:
    """Return a SELECT of columns over Parquet files, found by field id; by name where the files allow it.

    By name is the better way (DuckDB 1.5.5). Given a schema it opens no file before it runs, so it does not know how many
    row groups a single file has, and reads them all on one thread; of a struct it reads all fields, for one that is
    filtered twice as long; and each column takes 0.05 ms to bind.

    The order of joins depends on about how many rows there are: without, DuckDB takes a thousand for each file of a
    schema that is given.
    Directories named like ``day=3`` say nothing: partition values stand in the files.
    """
    names = ", ".join(_renamed(column, files.written) for column in columns)
    listed = ", ".join(literal(str(local_path(path) or plain(path))) for path in files.paths)
    schema = "" if files.by_name else f"schema = {_by_field_id(columns, files.written)}, "
    return (
        f"SELECT {names} FROM read_parquet([{listed}], {schema}"  # noqa: S608 - quoted
        f"hive_partitioning = false, explicit_cardinality = {min(max(files.rows, 1), _MAX_ESTIMATE)})"
    )


def _by_field_id(columns: Sequence[Column], written: Written) -> str:
    fields = ", ".join(
        f"{column.field_id}: {{name: {literal(column.name)}, "
        f"type: {literal(sql_type(written.get(column.field_id, column.type)))}, default_value: NULL}}"
        for column in columns
    )
    return f"MAP {{{fields}}}"


def _renamed(column: Column, written: Written) -> str:
    name, kind = identifier(column.name), written.get(column.field_id)
    return name if kind is None else f"{renamed_sql(column.name, kind, column.type)} AS {name}"


def read_facts(
    table: TableName, loaded: Table, version: IcebergSnapshot | None = None
) -> TableFacts:
    """Take every fact of a pin from one metadata file (docs/seam-rules.md, T4); ``version``: as if it were the head."""
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
        history=_history(metadata),
    )


def own_schema_id(metadata: TableMetadata, version: IcebergSnapshot) -> int:
    """Return the schema a snapshot was written with; the current one if it has none (format v1)."""
    return metadata.current_schema_id if version.schema_id is None else version.schema_id


def _history(metadata: TableMetadata) -> History:
    tag = metadata.refs.get(TAG)
    return History(
        snapshots=snapshots_of(metadata),
        tagged_id=None if tag is None else tag.snapshot_id,
        mirror=metadata.properties.get(MIRROR),
    )


def _retained(metadata: TableMetadata) -> Retained:
    return Retained(
        frozenset(snapshot.snapshot_id for snapshot in metadata.snapshots),
        tuple(
            (entry.timestamp_ms * 1000, entry.snapshot_id) for entry in metadata.snapshot_log
        ),
    )
