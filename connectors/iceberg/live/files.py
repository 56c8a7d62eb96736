"""Live files of the configured catalogs: reads pinned metadata, writes pieces and snapshots, keeps folders alive."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa
from cachetools import LRUCache, cachedmethod
from pyiceberg.io import OutputFile
from pyiceberg.manifest import ManifestFile
from pyiceberg.schema import Schema

from connectors.iceberg.errors import decoding, file_errors, pinned_errors
from connectors.iceberg.live.folder import METADATA, LiveFolder, LostFolder, writing_errors
from connectors.iceberg.live.manifests import (
    EncodedFile,
    NewSnapshot,
    encode_file,
    encoded,
    pinned_manifests,
    read_metadata,
    write_metadata,
    write_snapshot,
)
from connectors.iceberg.live.parquet import write_data_file
from connectors.iceberg.store import IcebergStore
from connectors.store.locations import is_below, real_location
from planner.errors import BadConfig, ColdStoreUnavailable
from planner.live.metadata import (
    LiveSnapshot,
    check_format,
    check_partition_fields,
    first_row_id,
    is_head,
    live_metadata,
    plain_metadata,
    snapshot_id_of,
    unpartitioned_spec,
)
from planner.live.tiling import Hole, LivePiece, check_written, level_of
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.seam.cut import Pin

_log = logging.getLogger(__name__)

#: Pinned metadata files in memory, of all tables, by location and snapshot.
MAX_SOURCE_BYTES = 64 << 20
#: Upper bounds of memory: parsed JSON takes this many times its text, an entry of the manifest list this many bytes.
_MEMORY_OF_TEXT = 4
_MANIFEST_BYTES = 2_048


@dataclass(frozen=True, slots=True)
class LiveSource:
    """A pinned metadata file: its own JSON, its schema as pinned, the manifests of the pinned snapshot."""

    document: Mapping[str, Any]
    schema: Schema
    manifests: tuple[ManifestFile, ...]
    size: int

    @property
    def properties(self) -> Mapping[str, str]:
        return self.document.get("properties") or {}


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A metadata file and the answer's text. ``paths`` are all files made for it, pieces left out; ``size`` are their bytes."""

    location: str
    raw: bytes
    paths: tuple[str, ...]
    size: int
    #: Where the table lies, by the answer.
    table_location: str


class LiveFiles:
    """Thread-safe."""

    def __init__(
        self, store: IcebergStore, locations: Mapping[str, str], *, ttl_s: float
    ) -> None:
        """``locations``: where live files of each catalog's tables go; ``ttl_s``: how long an answer is good for."""
        self._store = store
        self._locations = dict(locations)
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._folders: dict[str, LiveFolder] = {}
        self._sources: LRUCache[tuple[TableName, str, int | None, int], LiveSource] = LRUCache(
            MAX_SOURCE_BYTES, getsizeof=attrgetter("size")
        )
        #: What manifests say of the files there are.
        self._encoded: dict[str, EncodedFile] = {}

    @property
    def source_bytes(self) -> int:
        """What pinned metadata takes in memory, about."""
        with self._lock:
            return int(self._sources.currsize)

    def replica(self, catalog: str) -> str:
        """Name the folder that files of a catalog's tables are written to now.

        The name changes once another replica may have removed the folder; answers may not name files of the old one.
        Callers compare the name before and after they build an answer.

        Raises ColdStoreUnavailable: that cannot be found out.
        """
        if catalog not in self._locations:
            return ""
        folder = self._folder(catalog)
        try:
            folder.check()
        except LostFolder:
            self._leave(catalog, folder)
            folder = self._folder(catalog)
        return folder.replica

    def _leave(self, catalog: str, folder: LiveFolder) -> None:
        with self._lock:
            if self._folders.get(catalog) is not folder:
                return
            del self._folders[catalog]
            lost = [path for path in self._encoded if path.startswith(f"{folder.location}/")]
            for path in lost:
                del self._encoded[path]
        _log.warning(
            "this process stood still for longer than live files are good for, or somebody removed them: they are written "
            "again"
        )

    @cachedmethod(
        lambda self: self._sources,
        key=lambda _, pin: (
            pin.table,
            pin.metadata_location,
            pin.snapshot_id,
            pin.schema.schema_id,
        ),
        lock=lambda self: self._lock,
    )
    def source(self, pin: Pin) -> LiveSource:
        """Read what the pin was made from, once.

        Raises SnapshotExpired, ColdStoreUnavailable: a file of it is gone, damaged, or cannot be read now.
        """
        with pinned_errors(pin, "its metadata"):
            return self._read(pin)

    def _read(self, pin: Pin) -> LiveSource:
        io = self._store.files.of(pin.table, pin.metadata_location)
        with io.new_input(pin.metadata_location).open() as stream:
            raw = stream.read()
        with decoding("metadata files"):
            if pin.metadata_location.endswith((".gz", ".gz.metadata.json")):
                raw = gzip.decompress(raw)
            document = json.loads(raw)
            schema = Schema.model_validate(_schema(document, pin.schema.schema_id))
            check_partition_fields(pin, document)
        snapshots = {each["snapshot-id"]: each for each in document.get("snapshots") or ()}
        listed = snapshots.get(pin.snapshot_id, {}).get("manifest-list")
        manifests: tuple[ManifestFile, ...] = ()
        if listed is not None:
            # Readers of a plain table read it with the keys that they get here.
            io.reach.check(listed)
        if listed is not None and pin.binding is not None:
            with decoding("manifest lists"):
                manifests = pinned_manifests(io, listed)
            for manifest in manifests:
                io.reach.check(manifest.manifest_path)
        size = _MEMORY_OF_TEXT * len(raw) + _MANIFEST_BYTES * len(manifests)
        return LiveSource(document, schema, manifests, size)

    def plain(self, pin: Pin, cut: str) -> WrittenTable:
        """Return a table without a topic as pinned, but for what keeps its files safe.

        If the pin is not the head of its metadata file, write a metadata file of our own: some readers follow its address.
        Otherwise write nothing.

        Raises:
            ColdStoreUnavailable: as ``write_piece``.
            BadConfig: the catalog has no place for live files.
        """
        source = self.source(pin)
        document = plain_metadata(source.document, pin, cut)
        location = source.document["location"]
        if is_head(source.document, pin):
            return WrittenTable(pin.metadata_location, encoded(document), (), 0, location)
        with self._new_file(pin, source, METADATA) as file:
            raw = write_metadata(file, document)
        return WrittenTable(file.location, raw, (file.location,), len(raw), location)

    @contextlib.contextmanager
    def _new_file(self, pin: Pin, source: LiveSource, ending: str) -> Iterator[OutputFile]:
        """Give a new file for the table of a pin, removed again if the block does not end well."""
        folder = self._folder(pin.table.catalog)
        _check_location(pin, source, folder)
        with writing_errors(pin.table):
            file = folder.output(_folder_of(pin), ending)
            with folder.undoing([file.location]):
                yield file

    def write_piece(
        self, pin: Pin, hole: Hole, epochs: OffsetVector, batches: Iterable[pa.RecordBatch]
    ) -> LivePiece:
        """Write the rows of a hole, and make sure that they are its own.

        Raises:
            ColdStoreUnavailable: the store does not take the file, or the disk is full.
            UnsupportedType, UnsupportedFile: the table cannot have live files.
        """
        source = self.source(pin)
        check_format(pin, source.document)
        own = OffsetVector.of(
            (span.partition, epoch)
            for span in hole.ranges
            if (epoch := epochs.get(span.partition)) is not None
        )
        with self._new_file(pin, source, ".parquet") as output:
            written = write_data_file(
                output, source.schema, pin.schema.arrow, batches, properties=source.properties
            )
            if written is not None:
                check_written(hole.ranges, written.partitions, written.rows)
        if written is None:
            return LivePiece(hole.ranges, own, None, 0, hole.level)
        path = written.data_file.file_path
        with self._lock:
            self._encoded[path] = encode_file(written.data_file)
        level = level_of(written.rows, hole.level)
        size = written.data_file.file_size_in_bytes
        return LivePiece(hole.ranges, own, path, written.rows, level, size)

    def write_table(self, pin: Pin, pieces: Sequence[LivePiece], cut: str) -> WrittenTable:
        """Write the snapshot and the metadata file of one answer.

        Raises ColdStoreUnavailable, UnsupportedFile: as ``write_piece``.
        """
        source = self.source(pin)
        version = check_format(pin, source.document)
        named = sorted(piece.path for piece in pieces if piece.path is not None)
        try:
            with self._lock:
                files = [self._encoded[path] for path in named]
        except KeyError as error:
            raise _gone(pin.table) from error
        folder, table_folder = self._folder(pin.table.catalog), _folder_of(pin)
        paths: list[str] = []
        live, size = None, 0

        def output(ending: str) -> OutputFile:
            made = folder.output(table_folder, ending)
            paths.append(made.location)
            return made

        with folder.undoing(paths), writing_errors(pin.table):
            if files:
                snapshots = source.document.get("snapshots") or ()
                in_use = [snapshot["snapshot-id"] for snapshot in snapshots]
                snapshot_id = snapshot_id_of((cut, folder.replica, *named), in_use)
                written = write_snapshot(
                    output("-m.avro"),
                    output("-list.avro"),
                    NewSnapshot(
                        version=version,
                        schema=source.schema,
                        spec_id=unpartitioned_spec(source.document),
                        snapshot_id=snapshot_id,
                        parent_id=pin.snapshot_id,
                        sequence_number=int(source.document["last-sequence-number"]) + 1,
                        first_row_id=first_row_id(source.document),
                    ),
                    files=files,
                    pinned=source.manifests,
                )
                size = written.size
                live = LiveSnapshot(
                    snapshot_id,
                    written.manifest_list,
                    len(files),
                    sum(file.rows for file in files),
                    sum(file.size for file in files),
                    written.row_ids,
                )
            file = output(METADATA)
            raw = write_metadata(file, live_metadata(source.document, pin, live, cut))
        location = source.document["location"]
        return WrittenTable(file.location, raw, tuple(paths), size + len(raw), location)

    def read(self, catalog: str, location: str, table_location: str) -> bytes:
        """Read an answer's text from the metadata file written for it. Raises ColdStoreUnavailable: it cannot be read."""
        with (
            file_errors("a live table's metadata", gone=ColdStoreUnavailable),
            self._folder(catalog).io.new_input(location).open() as stream,
        ):
            return read_metadata(stream.read(), table_location)

    def remove(self, catalog: str, paths: Iterable[str]) -> None:
        """Remove files of answers whose time is over."""
        paths = tuple(paths)
        self._folder(catalog).remove(paths)
        with self._lock:
            for path in paths:
                self._encoded.pop(path, None)

    def tend(self) -> None:
        """Say that this replica lives, and remove what replicas left that do not.

        Raises ColdStoreUnavailable: the store does not answer.
        """
        with self._lock:
            folders = list(self._folders.items())
        for catalog, folder in folders:
            if not folder.is_made:
                continue
            try:
                folder.sweep(folder.beat())
            except LostFolder:
                self._leave(catalog, folder)

    def _folder(self, catalog: str) -> LiveFolder:
        with self._lock:
            folder = self._folders.get(catalog)
            if folder is not None:
                return folder
        location = self._locations.get(catalog)
        if location is None:
            raise BadConfig(
                f"catalog {catalog} names no warehouse beside which live files could go; set iceberg_rest.live_location."
            )
        made = LiveFolder(self._store.files.io_at(catalog, location), location, self._ttl_s)
        with self._lock:
            return self._folders.setdefault(catalog, made)


def _gone(table: TableName) -> ColdStoreUnavailable:
    return ColdStoreUnavailable(
        f"{table}: live files that an answer needs were removed meanwhile; try again.",
        table=str(table),
    )


def _check_location(pin: Pin, source: LiveSource, folder: LiveFolder) -> None:
    """Refuse live files inside the table: removing its orphans would remove them."""
    if is_below(real_location(folder.location), (real_location(source.document["location"]),)):
        raise BadConfig(
            f"{pin.table}: iceberg_rest.live_location lies inside the table's own location, where removing orphans would "
            f"remove live files; name another folder or prefix.",
            key="iceberg_rest.live_location",
        )


def _schema(document: Mapping[str, Any], schema_id: int) -> Any:
    schemas = document.get("schemas") or [document["schema"]]
    return next(schema for schema in schemas if schema.get("schema-id", schema_id) == schema_id)


def _folder_of(pin: Pin) -> str:
    """Name a folder for one table: its own name may have any characters."""
    return hashlib.sha256(f"{pin.table}\n{pin.table_uuid}".encode()).hexdigest()[:16]
