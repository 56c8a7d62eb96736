"""What the REST catalog answers, apart from HTTP: catalogs by prefix, namespaces and tables by page, loads."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from planner.errors import BadParameter, UnknownTable
from planner.live.client_answers import RestClient
from planner.live.metadata import with_referenced_snapshots
from planner.names import TableName
from planner.seam.binding import LIVE
from proxy.live.load_ledger import Texts
from proxy.live.tables import LiveTables
from proxy.rest.errors import UnknownNamespace
from proxy.rest.warehouses import Warehouse, parse_warehouse
from proxy.session import Deadline, Session

#: Levels of a namespace in an address (Iceberg REST specification, "namespace-separator").
SEPARATOR = "\x1f"
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
_NOTHING = b'"config":{}'
#: Answers as some readers get them: to make one takes longer than a load.
_MAX_VARIANT_BYTES = 32 << 20

Namespace = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a sorted list. ``after`` is where the next one goes on; None: this was the last."""

    items: tuple[Namespace, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class HandOut:
    """Properties that go out with a table; ``by_prefix``: those to read places by that begin with a prefix."""

    config: Mapping[str, str] = field(default_factory=dict)
    by_prefix: Sequence[tuple[str, Mapping[str, str]]] = ()


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What a client asks for. ``client``: whose answer differs, if so. ``arrival_s``: as for ``LiveTables.load``."""

    table: TableName
    etags: Collection[str]
    only_referenced: bool
    client: RestClient | None
    arrival_s: float

    def variant(self, now_s: float) -> tuple[str, int]:
        """Return what the ETag of its answer ends in, the same for the same answer, and the milliseconds that it tells."""
        name, now_ms = "-refs" if self.only_referenced else "", 0
        if self.client is not None:
            name += f"-{self.client.name}"
            if self.client.step_ms:
                now_ms = int(now_s * 1000) // self.client.step_ms * self.client.step_ms
                name += f"-{now_ms}"
        return name, now_ms

    def edit(
        self, document: Mapping[str, Any], location: str, now_ms: int
    ) -> Mapping[str, Any]:
        if self.only_referenced:
            document = with_referenced_snapshots(document)
        return (
            document if self.client is None else self.client.answer(document, location, now_ms)
        )


class LiveCatalog:
    """Thread-safe. ``catalogs`` are those that a session may know of; ``credentials`` says what is handed out with a table."""

    def __init__(
        self,
        tables: LiveTables,
        catalogs: Callable[[Session], Sequence[str]],
        credentials: Callable[[TableName], HandOut] = lambda _: HandOut(),
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._tables = tables
        self._catalogs = catalogs
        self._credentials = credentials
        self._wall_clock = wall_clock
        self._variants = Texts(_MAX_VARIANT_BYTES)

    @property
    def text_bytes(self) -> int:
        """What variants of answers take in memory."""
        return self._variants.size

    def now_s(self) -> float:
        """By the clock that arrivals of loads are told by."""
        return self._tables.clock()

    def warehouse(self, session: Session, text: str | None) -> Warehouse:
        """Read what a client names, of the catalogs that it may know of.

        Raises:
            UnknownWarehouse, BadParameter: as ``parse_warehouse``.
        """
        return parse_warehouse(text, self._catalogs(session))

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
        depth = len(parent) + 1
        spaces = {table.namespace[:depth] for table in self.below(session, warehouse, parent)}
        return paged(sorted(name for name in spaces if len(name) == depth), *page)

    def tables(
        self,
        session: Session,
        warehouse: Warehouse,
        namespace: Namespace,
        page: tuple[str | None, int | None],
    ) -> Page:
        names = self.below(session, warehouse, namespace)
        own = {(table.name,) for table in names if table.namespace == namespace}
        return paged(sorted(own), *page)

    def check_table(self, session: Session, warehouse: Warehouse, table: TableName) -> None:
        """Raises UnknownTable, NotAllowed: as ``load``."""
        self._check_cut(warehouse, table)
        self._tables.check(session, table)

    def load(
        self,
        session: Session,
        warehouse: Warehouse,
        request: TableRequest,
        deadline: Deadline,
    ) -> tuple[str, bytes | None]:
        """Return an answer's ETag, and its body; None where its ETag is among those of the request.

        Raises:
            UnknownTable, NotAllowed, FederationError: as ``LiveTables.load``.
        """
        self._check_cut(warehouse, request.table)
        if warehouse.cut is not None:
            session = replace(session, cut=warehouse.text, freshness=None, wait_for=None)
        loaded = self._tables.load(session, request.table, deadline, request.arrival_s)
        variant, now_ms = request.variant(self._wall_clock())
        config = _handed_out(self._credentials(request.table))
        # New keys are a new answer: a client whose own have expired asks with the ETag of then.
        keys = "" if config == _NOTHING else f"-{hashlib.sha256(config).hexdigest()[:16]}"
        etag = f'{loaded.etag[:-1]}{variant}{keys}"'
        if etag in request.etags:
            return etag, None
        metadata = loaded.metadata
        if variant:
            name = loaded.etag + variant
            metadata = self._variants.get(name) or _encoded(
                request.edit(json.loads(metadata), loaded.location, now_ms)
            )
            self._variants.put(name, metadata)
        location = _encoded(loaded.location)
        return etag, b'{"metadata-location":%s,"metadata":%s,%s}' % (location, metadata, config)

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

    def below(
        self, session: Session, warehouse: Warehouse, namespace: Namespace
    ) -> list[TableName]:
        """The tables in a namespace and below it.

        Raises:
            UnknownNamespace: there are none.
        """
        cut = warehouse.cut
        in_cut = None if cut is None else {entry.table for entry in cut.tables}
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


def _handed_out(handed: HandOut) -> bytes:
    """Write it as fields of the answer (Iceberg REST specification, "LoadTableResult")."""
    fields: dict[str, object] = {"config": dict(handed.config)}
    if handed.by_prefix:
        fields["storage-credentials"] = [
            {"prefix": prefix, "config": dict(config)} for prefix, config in handed.by_prefix
        ]
    return _encoded(fields)[1:-1]


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
