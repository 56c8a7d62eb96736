"""A protocol server over the canned backend, and the stock clients of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyarrow import flight

from planner.names import TableName
from proxy.access.authentication.callers import Access, FixedUsers
from tests.fixtures.server import SqlServer, serving, settings_of, sqlite_catalog
from tests.harness.canned import USERS, CannedBackend, CannedServer, serve


@pytest.fixture
def backend() -> CannedBackend:
    return CannedBackend()


@pytest.fixture
def canned_server(backend: CannedBackend) -> Iterator[CannedServer]:
    """Anybody may call."""
    server = serve(backend, Access(allow_anonymous=True))
    yield CannedServer(server, backend)
    assert server.stop(10)


@pytest.fixture(scope="module")
def shared_server() -> Iterator[CannedServer]:
    """Anybody may call, who leaves nothing behind and looks at nothing that others left."""
    backend = CannedBackend()
    server = serve(backend, Access(allow_anonymous=True))
    yield CannedServer(server, backend)
    assert server.stop(10)


@pytest.fixture
def password_server(backend: CannedBackend) -> Iterator[CannedServer]:
    """Only ``USERS`` may call."""
    server = serve(backend, Access(FixedUsers(USERS).verify))
    yield CannedServer(server, backend)
    assert server.stop(10)


@pytest.fixture
def cursor(canned_server: CannedServer) -> Iterator[adbc.Cursor]:
    with (
        adbc.connect(canned_server.uri, autocommit=True) as connection,
        connection.cursor() as cur,
    ):
        yield cur


@pytest.fixture
def client(canned_server: CannedServer) -> Iterator[flight.FlightClient]:
    with closing(flight.connect(canned_server.uri)) as connected:
        yield connected


@pytest.fixture(scope="session")
def iceberg_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlServer]:
    """The real server over two plain Iceberg tables; no broker."""
    catalogs = {"lake": sqlite_catalog(tmp_path_factory.mktemp("real"))}
    with serving(settings_of(catalogs, {})) as running:
        rows = pa.table(
            {
                "id": pa.array([1, 2, 3]),
                "name": pa.array(["a", None, "ü"]),
                "price": pa.array([Decimal("1.5000"), None, Decimal(-2)], pa.decimal128(18, 4)),
                "at": pa.array(
                    [dt.datetime(2024, 2, 29, tzinfo=dt.UTC)] * 3, pa.timestamp("us", "UTC")
                ),
            }
        )
        running.create_plain(rows, name=TableName("lake", ("net",), "flows"))
        running.create_plain(rows.slice(0, 1), name=TableName("lake", ("net", "eu"), 'Odd "é"'))
        with running.catalog() as catalog:
            changing = catalog.load_table(("net", "flows"))
            with changing.transaction() as transaction:
                transaction.set_properties(comment="what went by")
            with changing.update_schema() as update:
                update.update_column("id", doc="the key")
        running.refresh(TableName("lake", ("net",), "flows"))
        yield running
