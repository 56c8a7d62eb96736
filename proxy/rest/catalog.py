"""What the REST catalog answers, apart from HTTP: catalogs by prefix, namespaces and tables by page, loads."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from planner.binding import LIVE
from planner.errors import BadParameter, UnknownTable
from planner.live_metadata import with_referenced_snapshots, without_log
from planner.names import TableName
from planner.time_travel import CUT_PREFIX, AtCut, parse_cut
from proxy.deadline import Deadline
from proxy.live.tables import LiveTables
from proxy.rest.errors import UnknownNamespace, UnknownWarehouse
from proxy.session import Session

#: Levels of a namespace in an address (Iceberg REST specification, "namespace-separator").
SEPARATOR = "\x1f"
#: Of a cut in an address: proxies in between stop at 8 KB for the whole of it.
MAX_CUT_CHARS = 6 * 1024
MAX_PAGE = 10_000
#: All that is served. Java's client refuses by itself to call what is not among them.
ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
)
_CUT_MARK = f"@{CUT_PREFIX}"

Namespace = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A catalog, and the cut that all its tables are read at; None: each load is a cut of its own."""

    catalog: str
    cut: AtCut | None = None
    text: str = ""

    @property
    def prefix(self) -> str:
        return f"{self.catalog}@{self.text}" if self.cut is not None else self.catalog


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a sorted list. ``after`` is where the next one goes on; None: this was the last."""

    items: tuple[Namespace, ...]
    after: str | None


class LiveCatalog:
    """Thread-safe. ``credentials`` are properties by catalog that are handed out with its tables."""

    def __init__(
        self,
        tables: LiveTables,
        catalogs: Sequence[str],
        credentials: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._tables = tables
        self._catalogs = tuple(catalogs)
        self._credentials = credentials

    def warehouse(self, text: str | None) -> Warehouse:
        """Read ``catalog`` or ``catalog@<cut>``; without one it is the only catalog there is.

        Raises:
            UnknownWarehouse: there is no such catalog.
            BadParameter: none is named and there are several; or the cut is malformed or too long.
        """
        if not text:
            if len(self._catalogs) > 1:
                raise BadParameter(
                    f"name a catalog as the warehouse: {', '.join(self._catalogs)}."
                )
            return Warehouse(self._catalogs[0])
        catalog, mark, rest = text.partition(_CUT_MARK)
        if catalog not in self._catalogs:
            raise UnknownWarehouse(
                f"there is no catalog {catalog[:80]}; there are {', '.join(self._catalogs)}."
            )
        if not mark:
            return Warehouse(catalog)
        cut = CUT_PREFIX + rest
        if len(cut) > MAX_CUT_CHARS:
            raise BadParameter(
                f"the text of the cut has {len(cut):,} characters, and an address has room for {MAX_CUT_CHARS:,}; take a "
                f"cut of fewer tables."
            )
        return Warehouse(catalog, parse_cut(cut), cut)

    def config(self, warehouse: Warehouse) -> dict[str, object]:
        return {
            "defaults": {LIVE: "true"},
            "overrides": {"prefix": warehouse.prefix},
            "endpoints": list(ENDPOINTS),
        }

    def namespaces(
        self,
        session: Session,
        warehouse: Warehouse,
        parent: Namespace,
        page: tuple[str | None, int | None],
    ) -> Page:
        """List the namespaces right below ``parent`` that have tables.

        Raises:
            UnknownNamespace: there is no such parent.
        """
        names = self._below(session, warehouse, parent)
        depth = len(parent) + 1
        return paged(
            sorted(
                {table.namespace[:depth] for table in names if len(table.namespace) >= depth}
            ),
            *page,
        )

    def check_namespace(
        self, session: Session, warehouse: Warehouse, namespace: Namespace
    ) -> None:
        """Raises UnknownNamespace: no table lies in it or below it."""
        self._below(session, warehouse, namespace)

    def tables(
        self,
        session: Session,
        warehouse: Warehouse,
        namespace: Namespace,
        page: tuple[str | None, int | None],
    ) -> Page:
        names = self._below(session, warehouse, namespace)
        return paged(
            sorted({(table.name,) for table in names if table.namespace == namespace}), *page
        )

    def check_table(self, session: Session, warehouse: Warehouse, table: TableName) -> None:
        """Raises UnknownTable, NotAllowed: as ``load``."""
        self._check_cut(warehouse, table)
        self._tables.check(session, table)

    def load(
        self,
        session: Session,
        warehouse: Warehouse,
        table: TableName,
        deadline: Deadline,
        *,
        etags: Collection[str],
        only_referenced: bool,
        is_logged: bool = True,
    ) -> tuple[str, bytes | None]:
        """Return an answer's ETag, and its body; None where its ETag is among the client's ``etags``.

        ``is_logged``: with the snapshots' log, see ``planner.live_metadata``.

        Raises:
            UnknownTable, NotAllowed, FederationError: as ``LiveTables.load``.
        """
        self._check_cut(warehouse, table)
        if warehouse.cut is not None:
            session = replace(session, cut=warehouse.text, freshness=None, wait_for=None)
        loaded = self._tables.load(session, table, deadline)
        variant = ("-refs" if only_referenced else "") + ("" if is_logged else "-nolog")
        etag = f'{loaded.etag[:-1]}{variant}"'
        if etag in etags:
            return etag, None
        metadata = loaded.metadata
        if variant:
            document = json.loads(metadata)
            document = with_referenced_snapshots(document) if only_referenced else document
            metadata = _encoded(document if is_logged else without_log(document))
        config = dict(self._credentials.get(table.catalog, {}))
        body = b'{"metadata-location":%s,"metadata":%s,"config":%s}' % (
            _encoded(loaded.location),
            metadata,
            _encoded(config),
        )
        return etag, body

    @staticmethod
    def _check_cut(warehouse: Warehouse, table: TableName) -> None:
        if warehouse.cut is None:
            return
        try:
            warehouse.cut.of(table)
        except BadParameter as error:
            raise UnknownTable(
                f"{table}: the cut of this warehouse is of a statement that did not read this table; take a cut of all "
                f"tables of the job.",
                table=str(table),
            ) from error

    def _below(
        self, session: Session, warehouse: Warehouse, namespace: Namespace
    ) -> list[TableName]:
        in_cut = None
        if warehouse.cut is not None:
            in_cut = {entry.table for entry in warehouse.cut.tables}
        for is_new in (False, True):
            tables = [
                table
                for table in self._tables.visible(session, is_new=is_new)
                if table.catalog == warehouse.catalog
                and table.namespace[: len(namespace)] == namespace
                and (in_cut is None or table in in_cut)
            ]
            if tables or not namespace:
                return tables
        raise UnknownNamespace(
            f"{warehouse.catalog}.{'.'.join(namespace)}: there is no such namespace."
        )


def paged(names: Sequence[Namespace], token: str | None, size: int | None) -> Page:
    """Cut a page out of sorted names. Without a token and a size it is all of them.

    Raises:
        BadParameter: not a token of ours, or not a size.
    """
    if token is None and size is None:
        return Page(tuple(names), None)
    if size is not None and size < 1:
        raise BadParameter("pageSize is a number above 0.")
    after = _unpacked(token) if token else ()
    rest = [name for name in names if name > after]
    page = rest[: min(size or MAX_PAGE, MAX_PAGE)]
    return Page(tuple(page), _packed(page[-1]) if len(page) < len(rest) else None)


def _packed(name: Namespace) -> str:
    return base64.urlsafe_b64encode(json.dumps(list(name)).encode()).decode()


def _unpacked(token: str) -> Namespace:
    try:
        name = json.loads(base64.b64decode(token, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError):
        name = None
    if not isinstance(name, list) or not all(isinstance(level, str) for level in name):
        raise BadParameter("pageToken is not one that this catalog gave out.")
    return tuple(name)


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
