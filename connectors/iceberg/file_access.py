"""What reads the files of pinned tables, this process and the engine: with the keys that came with the tables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cachetools import LRUCache
from pyarrow.fs import FileSystem
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.errors import decoding, pinned_errors
from connectors.iceberg.file_io import (
    OwnFiles,
    arrow_store,
    own_io,
    table_metadata,
    with_file_io,
)
from connectors.iceberg.rest import KeysByPrefix, keys_by_prefix
from connectors.store.locations import plain
from connectors.store.object_store import (
    are_one_store,
    endpoint_of,
    vended_properties,
    vended_secret,
)
from planner.errors import ForeignFile
from planner.names import TableName
from planner.seam.cut import Pin

#: FileIO by table and metadata location: a REST catalog gives each table its own credentials.
MAX_REMEMBERED_FILE_IO = 1_000


@dataclass(frozen=True, slots=True)
class EngineCalls:
    """What an engine does for the tables that it reads; None: no engine reads them.

    ``take_secret`` gets a CREATE SECRET for each table whose catalog hands out keys with it, and again for each new key.
    ``open_file`` keeps length and footer of a file; what it raises is of no matter: the statement meets it again.
    ``try_manifests`` reads all manifests of a snapshot of a metadata location by DuckDB's extension, in a statement.
    """

    take_secret: Callable[[str], None] | None = None
    open_file: Callable[[str], None] | None = None
    try_manifests: Callable[[str, int], None] | None = None


class FileAccess:
    """FileIO and keys of each table's metadata location. Thread-safe."""

    def __init__(self, catalogs: Catalogs, take_secret: Callable[[str], None] | None) -> None:
        self._catalogs = catalogs
        self._take_secret = take_secret
        #: The newest secret of each table's location.
        self._vended: dict[str, str] = {}
        self._lock = threading.Lock()
        self._loaded: LRUCache[tuple[TableName, str], tuple[OwnFiles, KeysByPrefix]] = LRUCache(
            MAX_REMEMBERED_FILE_IO
        )

    def remember(self, table: TableName, loaded: Table) -> OwnFiles:
        """Return what reads the files of a table as a catalog has loaded it; ``of`` finds it again.

        Raises ForeignFile: keys came with it for a location that is not its catalog's alone.
        """
        self._hand_on_keys(table, loaded)
        io = own_io(loaded)
        with self._lock:
            self._loaded[table, loaded.metadata_location] = io, keys_by_prefix(loaded)
        return io

    def io_at(self, catalog: str, location: str) -> FileIO:
        """Return what reads and writes files at a place of a catalog's store, with its properties."""
        return load_file_io(with_file_io(self._catalogs.properties(catalog)), location)

    def of(self, table: TableName, location: str) -> OwnFiles:
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
            metadata = table_metadata(io, location)
        own = self._catalogs.own_files(table, io, location, metadata)
        with self._lock:
            self._loaded.setdefault((table, location), (own, ()))
        return own

    def _hand_on_keys(self, table: TableName, loaded: Table) -> None:
        """Have the engine read a table's files with the keys that came with it, in places of its catalog alone.

        Raises:
            ForeignFile: its location is in none, so that others' keys may count there; or keys are of another store than
                those of a catalog with the same root.
        """
        if self._take_secret is None:
            return
        name, own = table.catalog, loaded.io.properties
        configured, folder = self._catalogs.properties(name), plain(loaded.metadata.location)
        elsewhere = [
            entry for entry in keys_by_prefix(loaded) if not folder.startswith(entry[0])
        ]
        by_location = self._catalogs.roots.by_location(name, elsewhere)
        folders = {folder: own} | {root: {**own, **keys} for root, keys in by_location.items()}
        for where, properties in folders.items():
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
            (folder, handed_out)
            for folder, keys in self._catalogs.roots.by_location(name, by_prefix).items()
            if (
                handed_out := vended_properties(
                    configured, {**endpoint_of(io.properties), **keys}
                )
            )
        )

    def open_store(self, pin: Pin, location: str) -> FileSystem | None:
        """Return Arrow's file system for a location of a pinned table in an object store; None if there is none.

        Its keys are those that came with the table, for that place if its catalog handed out some by place, or the catalog's.
        Raises ColdStoreUnavailable; SnapshotExpired if the pin is gone.
        """
        with self._lock:
            loaded = self._loaded.get((pin.table, pin.metadata_location))
        by_prefix = () if loaded is None else loaded[1]
        fitting = [entry for entry in by_prefix if location.startswith(entry[0])]
        with pinned_errors(pin, "its data folder"):
            io: FileIO = self.of(pin.table, pin.metadata_location)
            if fitting:
                _, keys = max(fitting, key=lambda entry: len(entry[0]))
                io = load_file_io({**io.properties, **keys}, location)
            return arrow_store(io, location)
