"""Unmodified clients log in and ask, in clear and over TLS: what each of them relies on."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from pyarrow import flight

from proxy.access.authentication.callers import Access, FixedUsers
from proxy.flightsql.server import Tls
from tests.fixtures.certificates import Authority
from tests.fixtures.jdbc import Jdbc, metadata, prepared, query, values
from tests.fixtures.toolchains import Program
from tests.harness.canned import TABLES, USERS, CannedBackend, serve
from tests.harness.wire import bearer, fetched, packed

# The first run compiles a Go program and installs a Node one.
pytestmark = pytest.mark.timeout(900)

USER, PASSWORD = "ada", USERS["ada"]


@dataclass(frozen=True)
class Target:
    """A server with users. ``authority`` signed its certificate; None: it speaks in clear."""

    port: int
    authority: bytes | None
    authority_file: Path

    @property
    def uri(self) -> str:
        return f"grpc{'' if self.authority is None else '+tls'}://localhost:{self.port}"

    def connect(self) -> adbc.Connection:
        options = {"username": USER, "password": PASSWORD}
        if self.authority is not None:
            options[DatabaseOptions.TLS_ROOT_CERTS.value] = self.authority.decode()
        return adbc.connect(self.uri, db_kwargs=options, autocommit=True)


@pytest.fixture(params=["plain", "tls"])
def target(
    request: pytest.FixtureRequest,
    backend: CannedBackend,
    authority: Authority,
    tmp_path: Path,
) -> Iterator[Target]:
    file = tmp_path / "authority.pem"
    file.write_bytes(authority.certificate)
    tls = None
    if request.param == "tls":
        issued = authority.server()
        tls = Tls(issued.certificate, issued.key)
    server = serve(backend, Access(FixedUsers(USERS).verify), tls=tls)
    yield Target(server.port, None if tls is None else authority.certificate, file)
    assert server.stop(10)


def test_adbc(target: Target) -> None:
    with target.connect() as connection, connection.cursor() as cur:
        cur.execute("SELECT ?::BIGINT * 2 AS d, 'é' AS t", [21])
        assert cur.fetch_arrow_table().to_pylist() == [{"d": 42, "t": "é"}]
        assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]


@pytest.mark.parametrize("target", ["tls"], indirect=True)
def test_adbc_with_another_authority_does_not_connect(target: Target) -> None:
    options = {
        "username": USER,
        "password": PASSWORD,
        DatabaseOptions.TLS_ROOT_CERTS.value: Authority("another").certificate.decode(),
    }
    with pytest.raises(adbc.Error, match="certificate"):
        adbc.connect(target.uri, db_kwargs=options, autocommit=True).close()


def test_pandas(target: Target) -> None:
    with target.connect() as connection:
        # Lists all tables first; then prepares.
        fields = pd.read_sql(
            "SELECT range AS n, range::VARCHAR AS s FROM range(1000)", connection
        )
        assert fields["n"].sum() == 499_500
        assert fields["s"].iloc[-1] == "999"
        again = pd.read_sql_query("SELECT NULL::BIGINT AS n", connection)
        assert len(again) == 1


def test_polars(target: Target) -> None:
    with target.connect() as connection:
        table = pl.read_database(
            "SELECT range AS n, TIMESTAMPTZ '2024-01-02 03:04:05Z' AS at FROM range(100000)",
            connection,
        )
    assert table.shape == (100_000, 2)
    assert table["n"].sum() == 4_999_950_000
    assert table.schema["at"] == pl.Datetime("us", "UTC")


def test_pyarrow_flight(target: Target) -> None:
    trusted = {} if target.authority is None else {"tls_root_certs": target.authority}
    with closing(flight.connect(target.uri, **trusted)) as client:
        _, inputs = client.authenticate_basic_token(USER, PASSWORD)
        options = bearer(inputs.decode().removeprefix("Bearer "))
        assert fetched(client, "SELECT 7 AS a", options) == [{"a": 7}]


def test_jdbc(target: Target, jdbc: Jdbc, authority: Authority, tmp_path: Path) -> None:
    properties = {"user": USER, "password": PASSWORD}
    if target.authority is not None:
        properties |= {"useEncryption": "true", "tlsRootCerts": str(target.authority_file)}
    _, request, bound, listed, info, _ = jdbc.run(
        [
            query("SELECT 1 AS a, 'é' AS t"),
            prepared("SELECT ?::BIGINT * 2", ("Long", 21)),
            metadata("getTables", "lake", "main", "f%", ["TABLE"]),
            metadata("getDatabaseProductName"),
        ],
        port=target.port,
        host="localhost",
        properties=properties,
    )
    assert values(request) == [["1", "é"]]
    assert values(bound) == [["42"]]
    assert [row["TABLE_NAME"] for row in listed["ok"]] == ["flows"]
    assert info == {"ok": "Thermocline"}


def test_go(target: Target, go_client: Program) -> None:
    authority = "" if target.authority is None else str(target.authority_file)
    observed = go_client(f"localhost:{target.port}", authority, USER, PASSWORD)
    assert observed.pop("query") == {"rows": 100_000, "first": "0|é|"}
    # 24 MB in messages that a default client takes: 4 MiB each.
    assert observed.pop("wide") == {"rows": 4_096, "first": "x" * 200}
    assert observed.pop("bad")["error"] == "InvalidArgument"
    assert observed.pop("catalogs") == {"rows": 2, "first": "lake|"}
    assert observed.pop("table_types") == {"rows": 2, "first": "TABLE|"}
    assert observed.pop("sql_info") == {"rows": 1, "first": '0|[0,"Thermocline"]|'}
    assert observed.pop("xdbc")["rows"] == 15
    assert observed.pop("keys") == {"rows": 0, "first": ""}
    assert observed.pop("tables").keys() == {table.name for table in TABLES}
    assert observed.pop("prepared") == {"rows": 1, "first": "42|"}
    assert observed.pop("update") == {"count": 0}
    cancelled = observed.pop("cancelled")
    assert cancelled["status"] == "CANCEL_STATUS_CANCELLED"
    assert cancelled["then"]["error"] == "Canceled"
    assert observed.pop("options") == {"failed": 0, "time_zone": "Europe/Zurich"}
    assert observed.pop("database/sql") == {"double": 42, "text": "é"}
    closed = observed.pop("closed")
    assert (closed["status"], closed["then"]["error"]) == ("CLOSED", "Unauthenticated")
    assert observed == {}


def test_go_with_a_wrong_password_is_unauthenticated(
    target: Target, go_client: Program
) -> None:
    authority = "" if target.authority is None else str(target.authority_file)
    observed = go_client(f"localhost:{target.port}", authority, USER, "wrong")
    # Where the server's answer is there before the client has sent all, Arrow's Go client reports the broken sending.
    reply = {
        (fields["error"], fields["message"] if fields["error"] == "Unknown" else "")
        for fields in observed.values()
    }
    assert reply <= {("Unauthenticated", ""), ("Unknown", "EOF")}


def test_node(target: Target, node_client: Program) -> None:
    request = packed("CommandStatementQuery", query="SELECT range AS n FROM range(100000)")
    update = packed("CommandStatementUpdate", query="SET application_name = 'node'")
    observed = node_client(
        f"localhost:{target.port}",
        "plain" if target.authority is None else "tls",
        USER,
        PASSWORD,
        base64.b64encode(request).decode(),
        base64.b64encode(update).decode(),
        GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(target.authority_file),
    )
    assert observed.pop("direct") == {"rows": 100_000, "last": 99_999}
    if target.authority is None:
        stock: dict[str, Any] = observed.pop("stock")
        assert (stock["rows"], stock["text"]) == (20_000, "é")
        assert stock["bad"]["error"] == "INVALID_ARGUMENT"
    # An update without a schema message, as Rust sends it: answered. The count 0 is an empty message.
    assert observed.pop("put_without_schema") == {"received": [""]}
    # What is half closed or no message at all ends with a status, in a sentence without a path.
    assert observed.keys() == {
        "put_of_nothing",
        "put_of_garbage",
        "exchange_of_nothing",
        "garbage_ticket",
    }
    for outcome in observed.values():
        assert outcome["error"] in ("UNKNOWN", "INVALID_ARGUMENT", "UNIMPLEMENTED")
        assert "/" not in outcome["message"]
        assert "Traceback" not in outcome["message"]


def test_rows_arrive_once_and_in_order(target: Target) -> None:
    with target.connect() as connection, connection.cursor() as cur:
        cur.execute("SELECT range AS n FROM range(300000)")
        table = cur.fetch_arrow_table()
    assert table["n"].combine_chunks().equals(pa.array(range(300_000)))
