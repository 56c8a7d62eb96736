"""Puts the Iceberg REST catalog together: live tables, and the HTTP server that shows them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from prometheus_client import Gauge

from connectors.iceberg.live.files import LiveFiles
from planner.errors import BadConfig
from planner.names import TableName
from proxy.flightsql.middleware import CallGate
from proxy.live.tables import LiveTables
from proxy.ops.call_record import Journal
from proxy.process.asgi import HttpServer, HttpTls
from proxy.rest.app import RestApplication
from proxy.rest.catalog import HandOut, LiveCatalog
from thermocline.config.settings import IcebergRest, Settings
from thermocline.serve.components import Components
from thermocline.serve.live_location import live_locations


@contextlib.contextmanager
def serving_live_tables(
    settings: Settings,
    components: Components,
    gate: CallGate,
    journals: Sequence[Journal],
    memory: Gauge,
) -> Iterator[HttpServer]:
    """Serve live tables over HTTP as ``[iceberg_rest]`` says. ``memory`` shows what is remembered.

    Raises:
        BadConfig: the place of live files is wrong, a catalog is unknown, or the address cannot be listened on.
    """
    rest = settings.iceberg_rest
    if rest.port is None:
        raise ValueError("no port is configured")
    for name in (*rest.credentials, *rest.vended):
        key = "iceberg_rest.credentials"
        if name not in settings.catalogs:
            raise BadConfig(f"{key} or vended names catalog {name}, which is not configured.")
        if name in rest.credentials and name in rest.vended:
            raise BadConfig(f"{key} and vended both name catalog {name}; keep one of them.")
    files = LiveFiles(components.store, live_locations(settings), ttl_s=rest.live_ttl_s)
    tables = LiveTables(
        components.statements, files, ttl_s=rest.live_ttl_s, max_bytes=rest.max_live_bytes
    )
    with contextlib.ExitStack() as stack:
        stack.callback(tables.stop)
        is_open = components.statements.access.is_open
        catalog = LiveCatalog(
            tables,
            lambda session: [name for name in settings.catalogs if is_open(session, name)],
            lambda table: credentials(rest, components, table),
        )
        memory.set_function(lambda: files.source_bytes + tables.text_bytes + catalog.text_bytes)
        application = RestApplication(catalog, gate, journals)
        stack.callback(application.close)
        server = HttpServer(
            application,
            address=(rest.host, rest.port),
            name="iceberg-rest",
            setting="iceberg_rest.port",
            tls=http_tls(settings),
        )
        stack.callback(server.stop)
        yield server


def credentials(rest: IcebergRest, components: Components, table: TableName) -> HandOut:
    """Return what is handed out with a table: what the settings name, or what its own catalog hands out; else nothing."""
    if table.catalog in rest.vended:
        return HandOut(*components.store.files.vended(components.pins.get(table)))
    return HandOut(rest.credentials.get(table.catalog, {}))


def renew_certificate(server: HttpServer, settings: Settings) -> None:
    """Have a server show the certificate that settings name, from the next connection on."""
    tls = http_tls(settings)
    if tls is not None:
        server.renew(tls)


def http_tls(settings: Settings) -> HttpTls | None:
    """Return the certificate that Flight shows, for HTTP; None if there is none."""
    access = settings.access
    if access.tls_certificate is None or access.tls_key is None:
        return None
    return HttpTls(access.tls_certificate, access.tls_key, access.tls_client_ca)
