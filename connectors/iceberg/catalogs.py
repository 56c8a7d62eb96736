"""The configured catalogs: opened on first use, one call at a time each."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy.exc import ArgumentError

from connectors.iceberg.errors import catalog_errors
from connectors.iceberg.file_io import OwnFiles, own_io, table_metadata, with_file_io
from connectors.iceberg.rest import VendedTable, keys_by_prefix
from connectors.iceberg.scan.allowed_locations import Reach
from connectors.store.catalog_roots import CatalogRoots, catalog_type
from connectors.store.object_store import UNSUMMED
from planner.errors import BadConfig, UnknownTable
from planner.names import TableName
from planner.seam.binding import LIVE

#: A database that was restarted leaves dead connections behind: each is tried before it is used (SQLAlchemy's name).
_DEFAULTS = {"pool_pre_ping": "true"}
#: A client that a user brings.
_OTHER = "py-catalog-impl"
#: Loaded with the first such catalog: with pyiceberg's it takes a fifth of a second.
_REST = "connectors.iceberg.rest.RestCatalog"


def _is_rest(properties: Mapping[str, str]) -> bool:
    return catalog_type(properties) == "rest" and _OTHER not in properties


def _for_pyiceberg(properties: Mapping[str, str]) -> dict[str, str]:
    options = {**_DEFAULTS, **with_file_io(properties)}
    if _is_rest(properties):
        options.pop("type", None)
        options[_OTHER] = _REST
    return options


def _keep_from_tables(catalog: Catalog) -> None:
    """Have a table's files opened by what its catalog says alone.

    pyiceberg 0.12 lets properties of the table change that, as ``s3.endpoint`` and ``py-io-impl``: a table's owner
    would choose where the catalog's keys go, and what code runs here. ``connectors.iceberg.rest`` does it for REST catalogs.
    """

    def opened(properties: object = None, location: str | None = None) -> FileIO:  # noqa: ARG001
        return load_file_io(catalog.properties, location)

    setattr(catalog, "_load_file_io", opened)  # noqa: B010  it is no name that pyiceberg exports


class Catalogs:
    """pyiceberg catalogs by name. Thread-safe; ``close`` ends their connections.

    Calls of one catalog are serialised: not every client below pyiceberg may be shared between threads (the
    Hive one may not), and no statement waits here while its pins are fresh.
    """

    def __init__(
        self, properties: Mapping[str, Mapping[str, str]], roots: CatalogRoots | None = None
    ) -> None:
        """``roots``: by default the catalogs' warehouses."""
        self.roots = roots or CatalogRoots.of(properties)
        self._properties = {name: dict(options) for name, options in properties.items()}
        if any("s3.endpoint" in options for options in properties.values()):
            for variable in UNSUMMED:
                os.environ.setdefault(variable, "when_required")
        self._locks = {name: threading.Lock() for name in properties}
        self._open: dict[str, Catalog] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._properties))

    def properties(self, name: str) -> Mapping[str, str]:
        return self._properties[name]

    def own_properties(self, name: str) -> Mapping[str, str]:
        """Return what a catalog's client goes by: as configured, and what the catalog's service told it when it was opened.

        None of it came with a table: keys among it are good for all that this process may read.
        """
        catalog = self._open.get(name)
        return self._properties[name] if catalog is None else catalog.properties

    @contextmanager
    def using(self, name: str, table: TableName | None = None) -> Iterator[Catalog]:
        """Hold catalog ``name`` for one call, its errors translated.

        Raises:
            UnknownTable: no catalog of that name is configured, or as ``catalog_errors``.
            BadConfig: the catalog's properties name no usable catalog.
            CatalogUnavailable, ColdStoreUnavailable, UnsupportedType: as ``catalog_errors``.
        """
        if name not in self._properties:
            raise UnknownTable(
                f"there is no catalog {name}; configured are {', '.join(self.names) or 'none'}.",
                catalog=name,
            )
        with self._locks[name], catalog_errors(name, table):
            if name not in self._open:
                self._open[name] = self._connect(name)
            yield self._open[name]

    def _connect(self, name: str) -> Catalog:
        try:
            catalog = load_catalog(name, **_for_pyiceberg(self._properties[name]))
        except (ValueError, KeyError, ImportError, ArgumentError) as error:
            raise BadConfig(
                f"catalog {name}: its properties name no catalog pyiceberg can open; set `type` and `uri`, and "
                f"install the extra that catalog needs.",
                catalog=name,
            ) from error
        configured = self._properties[name]
        if not _is_rest(configured) and _OTHER not in configured:
            _keep_from_tables(catalog)
        if LIVE in catalog.properties:
            raise BadConfig(
                f"catalog {name}: this is a catalog of live tables, served by Thermocline; point at the catalog they come "
                f"from.",
                catalog=name,
            )
        return catalog

    def load(self, table: TableName) -> Table:
        """Load a table, whose files are those of its catalog alone.

        Raises ForeignFile: as ``Reach.of``. Each read of a file of it raises as ``Reach.check``.
        """
        with self.using(table.catalog, table) as catalog:
            loaded = catalog.load_table((*table.namespace, table.name))
        loaded.io = self.own_files(table, loaded.io, loaded.metadata_location, loaded.metadata)
        return loaded

    def at_location(self, table: TableName, loaded: Table, location: str) -> Table:
        """Return a table as another metadata file of it says, read with the same keys. Raises ForeignFile as ``load``."""
        metadata = table_metadata(loaded.io, location)
        io = self.own_files(table, own_io(loaded).io, location, metadata)
        other = VendedTable(loaded.name(), metadata, location, io, loaded.catalog)
        other.by_prefix = keys_by_prefix(loaded)
        return other

    def own_files(
        self, table: TableName, io: FileIO, location: str, metadata: TableMetadata
    ) -> OwnFiles:
        """Return what opens the files of a table, by its metadata file at ``location``. Raises ForeignFile as ``Reach.of``."""
        return OwnFiles(io, Reach.of(table, location, metadata.location, self.roots))

    def tables(self, names: Collection[str]) -> tuple[TableName, ...]:
        """List the tables of some catalogs and all nested namespaces, sorted."""
        tables: set[TableName] = set()
        for name in names:
            pending: list[tuple[str, ...]] = [()]
            while pending:
                namespace = pending.pop()
                # Dropped while listing, a namespace has neither tables nor children.
                with self.using(name) as catalog, suppress(NoSuchNamespaceError):
                    for identifier in catalog.list_tables(namespace) if namespace else ():
                        tables.add(TableName(name, tuple(identifier[:-1]), identifier[-1]))
                    # Catalogs with flat namespaces answer with none, or with the list they were asked from.
                    children = map(tuple, catalog.list_namespaces(namespace))
                    pending += [child for child in children if len(child) > len(namespace)]
        return tuple(sorted(tables))

    def close(self) -> None:
        for name in list(self._open):
            with self._locks[name]:
                self._open.pop(name).close()
