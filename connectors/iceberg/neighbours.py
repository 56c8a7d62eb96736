"""Where the other tables of all catalogs lie and write: what a removal of orphans must leave alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from connectors.iceberg.catalogs import Catalogs
from connectors.store.locations import real_location
from planner.errors import CatalogUnavailable, FederationError, UnknownTable
from planner.maintenance.facts import Neighbour
from planner.names import TableName

#: Iceberg's own properties, "Write properties": where a table's new files lie if not below its location.
_FOLDERS = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
#: How long it is remembered where a table lies. One that is moved writes new files there, which are no orphans for days.
_REMEMBERED_S = 3_600.0
#: Loads of one table under two names, between which a publish may move it.
_COMPARISONS = 3


class Neighbours:
    """Looks where tables lie; remembers it for an hour, so that five hundred tables are not loaded for each one. Thread-safe."""

    def __init__(self, catalogs: Catalogs, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalogs = catalogs
        self._clock = clock
        self._lock = threading.Lock()
        self._neighbours: dict[TableName, tuple[float, str, Neighbour]] = {}

    def of(self, table: TableName) -> tuple[Neighbour, ...]:
        """Return every other table. The same one under another catalog's name is none, if it is at the same metadata file.

        One that cannot be read is among them, unless the table lies in a root of other catalogs than its own: it cannot lie there.

        Raises:
            UnknownTable, CatalogUnavailable, ColdStoreUnavailable: of the table; or a catalog does not answer.
        """
        own = self._load(table)
        uuid = str(own.metadata.table_uuid)
        owners = self._catalogs.roots.owners(real_location(own.metadata.location))
        with self._lock:
            return tuple(
                replace(each, is_copy=other_uuid == uuid)
                for other_uuid, each in self._all()
                if each.name != table
                and not (each.unread and owners and each.name.catalog not in owners)
                and not (other_uuid == uuid and self._is_same(table, each.name))
            )

    def _all(self) -> Iterator[tuple[str, Neighbour]]:
        clock_s = self._clock()
        silent: set[str] = set()
        names = self._catalogs.tables(self._catalogs.names)
        self._neighbours = {
            name: self._neighbours[name] for name in names if name in self._neighbours
        }
        for name in names:
            if name not in self._neighbours or clock_s >= self._neighbours[name][0]:
                try:
                    metadata = self._load(name).metadata
                except UnknownTable:
                    continue
                except FederationError as error:
                    if isinstance(error.__cause__, FileNotFoundError):
                        # An entry whose metadata file is gone: no program can read a file of it.
                        continue
                    if isinstance(error, CatalogUnavailable):
                        # A catalog may fail at one table. At the second it does not answer, and each may take its timeout.
                        if name.catalog in silent:
                            raise
                        silent.add(name.catalog)
                    yield "", Neighbour(name, unread=type(error).__name__)
                    continue
                neighbour = Neighbour(name, metadata.location, _written(metadata))
                until_s = clock_s + _REMEMBERED_S
                self._neighbours[name] = until_s, str(metadata.table_uuid), neighbour
            _, uuid, neighbour = self._neighbours[name]
            yield uuid, neighbour

    def _load(self, name: TableName) -> Table:
        """Load a table wherever it lies: only its metadata file is read."""
        with self._catalogs.using(name.catalog, name) as catalog:
            return catalog.load_table((*name.namespace, name.name))

    def _is_same(self, table: TableName, other: TableName) -> bool:
        """Whether both names are at one metadata file: a table that was registered twice has two histories, and one uuid."""
        for _ in range(_COMPARISONS):
            if self._load(table).metadata_location == self._load(other).metadata_location:
                return True
        return False


def _written(metadata: TableMetadata) -> tuple[str, ...]:
    return tuple(filter(None, map(metadata.properties.get, _FOLDERS)))
