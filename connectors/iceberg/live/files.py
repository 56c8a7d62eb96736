"""Live files of the configured catalogs: reads pinned metadata, writes pieces and snapshots, keeps folders alive."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pyarrow as pa
from cachetools import LRUCache
from pyiceberg.io import OutputFile
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.schema import Schema

from connectors.iceberg.errors import decoding, file_errors
from connectors.iceberg.live.folder import LiveFolder
from connectors.iceberg.live.parquet import write_data_file
from connectors.iceberg.live.snapshot import pinned_manifests, write_metadata, write_snapshot
from connectors.iceberg.store import IcebergStore
from planner.cut import Pin
from planner.errors import BadConfig, ColdStoreUnavailable, SnapshotExpired
from planner.live_metadata import (
    LiveSnapshot,
    check_version,
    is_head,
    live_metadata,
    plain_metadata,
    snapshot_id_of,
    unpartitioned_spec,
)
from planner.live_pieces import Hole, LivePiece, check_written, level_of
from planner.names import TableName
from planner.offsets import OffsetVector

#: Pinned metadata files in memory, by location and snapshot.
_MAX_SOURCES = 256


@dataclass(frozen=True, slots=True)
class LiveSource:
    """A pinned metadata file: its own JSON, its schema as pinned, the manifests of the pinned snapshot."""

    document: Mapping[str, Any]
    schema: Schema
    manifests: tuple[ManifestFile, ...]

    @property
    def properties(self) -> Mapping[str, str]:
        return self.document.get("properties") or {}


@dataclass(frozen=True, slots=True)
class WrittenTable:
    """A metadata file as written. ``paths`` are all files made for it, pieces left out."""

    location: str
    raw: bytes
    paths: tuple[str, ...]


class LiveFiles:
    """Thread-safe but for ``tend``."""

    def __init__(
        self, store: IcebergStore, locations: Mapping[str, str], *, ttl_s: float
    ) -> None:
        """``locations``: where live files of each catalog's tables go; ``ttl_s``: how long an answer is good for."""
        self._store = store
        self._locations = dict(locations)
        self._ttl_s = ttl_s
        self._lock = threading.Lock()
        self._folders: dict[str, LiveFolder] = {}
        self._sources: LRUCache[tuple[str, int | None, int], LiveSource] = LRUCache(
            _MAX_SOURCES
        )
        self._data_files: dict[str, DataFile] = {}

    def source(self, pin: Pin) -> LiveSource:
        """Read what the pin was made from, once.

        Raises:
            SnapshotExpired, ColdStoreUnavailable: a file of it is gone, damaged, or cannot be read now.
        """
        key = (pin.metadata_location, pin.snapshot_id, pin.schema.schema_id)
        with self._lock:
            source = self._sources.get(key)
        if source is None:
            facts = {"table": str(pin.table), "snapshot_id": pin.snapshot_id}
            with file_errors(f"{pin.table}: its metadata", gone=SnapshotExpired, **facts):
                source = self._read(pin)
            with self._lock:
                self._sources[key] = source
        return source

    def _read(self, pin: Pin) -> LiveSource:
        io = self._store.file_io(pin.metadata_location)
        with io.new_input(pin.metadata_location).open() as stream:
            raw = stream.read()
        with decoding("metadata files"):
            if pin.metadata_location.endswith((".gz", ".gz.metadata.json")):
                raw = gzip.decompress(raw)
            document = json.loads(raw)
            schema = Schema.model_validate(_schema(document, pin.schema.schema_id))
        snapshot = next(
            (
                snapshot
                for snapshot in document.get("snapshots") or ()
                if snapshot["snapshot-id"] == pin.snapshot_id
            ),
            None,
        )
        manifests: tuple[ManifestFile, ...] = ()
        if pin.binding is not None and snapshot is not None and "manifest-list" in snapshot:
            with decoding("manifest lists"):
                manifests = pinned_manifests(io, snapshot["manifest-list"])
        return LiveSource(document, schema, manifests)

    def plain(self, pin: Pin, cut: str) -> WrittenTable:
        """Return a table without a topic as pinned, but for what keeps its files safe.

        Nothing is written where the pin is the head of its metadata file. Else a metadata file of ours is, as some readers
        go by its address.

        Raises:
            ColdStoreUnavailable: as ``write_piece``.
            BadConfig: the catalog has no place for live files.
        """
        source = self.source(pin)
        document = plain_metadata(source.document, pin, cut)
        if is_head(source.document, pin):
            raw = json.dumps(document, separators=(",", ":")).encode()
            return WrittenTable(pin.metadata_location, raw, ())
        folder = self._folder(pin.table.catalog)
        with self._writing(pin.table):
            file = folder.output(_folder_of(pin), ".metadata.json")
        with folder.undoing([file.location]), self._writing(pin.table):
            raw = write_metadata(file, document)
        return WrittenTable(file.location, raw, (file.location,))

    def write_piece(
        self, pin: Pin, hole: Hole, epochs: OffsetVector, batches: Iterable[pa.RecordBatch]
    ) -> LivePiece:
        """Write the rows of a hole, and make sure that they are its own.

        Raises:
            ColdStoreUnavailable: the store does not take the file, or the disk is full.
            UnsupportedType, UnsupportedFile: the table cannot have live files.
        """
        source = self.source(pin)
        check_version(pin, source.document)
        spec_id, _ = unpartitioned_spec(source.document)
        own = OffsetVector.of(
            (span.partition, epoch)
            for span in hole.ranges
            if (epoch := epochs.get(span.partition)) is not None
        )
        folder = self._folder(pin.table.catalog)
        with self._writing(pin.table):
            output = folder.output(_folder_of(pin), ".parquet")
        with folder.undoing([output.location]), self._writing(pin.table):
            written = write_data_file(
                output,
                source.schema,
                pin.schema.arrow,
                batches,
                properties=source.properties,
                spec_id=spec_id,
            )
            if written is not None:
                check_written(hole.ranges, written.parts, written.rows)
        if written is None:
            return LivePiece(hole.ranges, own, None, 0, hole.level)
        path = written.data_file.file_path
        with self._lock:
            self._data_files[path] = written.data_file
        level = level_of(written.rows, hole.level)
        return LivePiece(hole.ranges, own, path, written.rows, level)

    def write_table(self, pin: Pin, pieces: Sequence[LivePiece], cut: str) -> WrittenTable:
        """Write the snapshot and the metadata file of one answer.

        Raises:
            ColdStoreUnavailable, UnsupportedFile: as ``write_piece``.
        """
        source = self.source(pin)
        check_version(pin, source.document)
        with self._lock:
            files = [self._data_files[piece.path] for piece in pieces if piece.path is not None]
        folder, place = self._folder(pin.table.catalog), _folder_of(pin)
        paths: list[str] = []
        live = None

        def output(ending: str) -> OutputFile:
            made = folder.output(place, ending)
            paths.append(made.location)
            return made

        with folder.undoing(paths), self._writing(pin.table):
            if files:
                in_use = [
                    snapshot["snapshot-id"]
                    for snapshot in source.document.get("snapshots") or ()
                ]
                named = (cut, folder.replica, *sorted(file.file_path for file in files))
                snapshot_id = snapshot_id_of(named, in_use)
                spec_id, _ = unpartitioned_spec(source.document)
                written = write_snapshot(
                    output("-m.avro"),
                    output("-list.avro"),
                    schema=source.schema,
                    spec_id=spec_id,
                    snapshot_id=snapshot_id,
                    parent_id=pin.snapshot_id,
                    sequence_number=int(source.document["last-sequence-number"]) + 1,
                    files=files,
                    pinned=source.manifests,
                )
                live = LiveSnapshot(
                    snapshot_id,
                    written.manifest_list,
                    len(files),
                    sum(file.record_count for file in files),
                    sum(file.file_size_in_bytes for file in files),
                )
            document = live_metadata(source.document, pin, live, cut)
            file = output(".metadata.json")
            raw = write_metadata(file, document)
        return WrittenTable(file.location, raw, tuple(paths))

    def read(self, catalog: str, location: str) -> bytes:
        """Read a metadata file that ``write_table`` wrote.

        Raises:
            ColdStoreUnavailable: it cannot be read.
        """
        with (
            file_errors("a live table's metadata", gone=ColdStoreUnavailable),
            self._folder(catalog).io.new_input(location).open() as stream,
        ):
            raw: bytes = stream.read()
        return raw

    def remove(self, catalog: str, paths: Iterable[str]) -> None:
        """Remove files of answers that nobody may read any more."""
        paths = tuple(paths)
        self._folder(catalog).remove(paths)
        with self._lock:
            for path in paths:
                self._data_files.pop(path, None)

    def tend(self) -> None:
        """Say that this replica lives, and remove what replicas left that do not.

        Raises:
            ColdStoreUnavailable: the store does not answer.
        """
        with self._lock:
            folders = list(self._folders.values())
        for folder in filter(attrgetter("is_made"), folders):
            folder.sweep(folder.beat())

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
        made = LiveFolder(self._store.io_at(catalog, location), location, self._ttl_s)
        with self._lock:
            return self._folders.setdefault(catalog, made)

    @staticmethod
    def _writing(table: TableName) -> Any:
        return file_errors(
            f"{table}: the folder of live files (iceberg_rest.live_location)",
            gone=ColdStoreUnavailable,
            table=str(table),
        )


def _schema(document: Mapping[str, Any], schema_id: int) -> Any:
    schemas = document.get("schemas") or [document["schema"]]
    return next(schema for schema in schemas if schema.get("schema-id", schema_id) == schema_id)


def _folder_of(pin: Pin) -> str:
    """Name a folder for one table: its own name may have any characters."""
    return hashlib.sha256(f"{pin.table}\n{pin.table_uuid}".encode()).hexdigest()[:16]
