"""The real server, set up by settings alone: TLS, a credentials file, an identity provider, permissions of files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pandas as pd
import polars as pl
import pytest
from adbc_driver_flightsql import DatabaseOptions
from pyarrow import flight

from proxy.access.authentication.credentials import entry, make_token
from proxy.access.authentication.hashes import make_hash
from tests.fixtures.certificates import Authority
from tests.fixtures.jdbc import Jdbc, query, values
from tests.fixtures.oidc import AUDIENCE, Provider
from tests.fixtures.server import SqlServer, serving
from tests.harness.wire import bearer, fetched, select
from thermocline.config.settings import AccessSettings

TOKEN, DIGEST = make_token()
PASSWORD = "open, sesame"


@pytest.fixture
def secured(
    iceberg_server: SqlServer, authority: Authority, provider: Provider, tmp_path: Path
) -> Iterator[SqlServer]:
    issued = authority.server()
    for name, content in (("cert", issued.certificate), ("key", issued.key)):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    (tmp_path / "users.toml").write_text(
        entry("users", "ada", "password", make_hash(PASSWORD))
        + entry("tokens", "bot", "sha256", DIGEST)
    )
    access = AccessSettings(
        tls_certificate=str(tmp_path / "cert"),
        tls_key=str(tmp_path / "key"),
        credentials_file=str(tmp_path / "users.toml"),
        jwt_issuer=provider.issuer,
        jwt_audience=AUDIENCE,
    )
    server = iceberg_server.settings.server.model_copy(update={"host": "0.0.0.0"})
    with serving(
        iceberg_server.settings.model_copy(update={"access": access, "server": server})
    ) as running:
        running.refresh()
        yield running


def connect(secured: SqlServer, authority: Authority, **options: str) -> adbc.Connection:
    trusted = {DatabaseOptions.TLS_ROOT_CERTS.value: authority.certificate.decode()}
    return adbc.connect(
        f"grpc+tls://localhost:{secured.port}", db_kwargs=trusted | options, autocommit=True
    )


def test_every_stock_client_reads_rows(
    secured: SqlServer, authority: Authority, jdbc: Jdbc, provider: Provider, tmp_path: Path
) -> None:
    sql = "SELECT id, name FROM net.flows ORDER BY id"
    with connect(secured, authority, username="ada", password=PASSWORD) as connection:
        assert pd.read_sql(sql, connection)["id"].tolist() == [1, 2, 3]
        assert pl.read_database(sql, connection)["name"].to_list() == ["a", None, "ü"]
    for token in (TOKEN, provider.token()):
        value = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
        with connect(secured, authority, **value) as connection, connection.cursor() as cur:
            cur.execute(sql)
            assert cur.fetchall() == [(1, "a"), (2, None), (3, "ü")]
    _, outcome, _ = jdbc.run(
        [query(sql)],
        port=secured.port,
        host="localhost",
        properties={
            "user": "ada",
            "password": PASSWORD,
            "useEncryption": "true",
            "tlsRootCerts": str(tmp_path / "ca.pem"),
        },
    )
    assert values(outcome) == [["1", "a"], ["2", None], ["3", "ü"]]


def test_nobody_else_reads_anything(secured: SqlServer, authority: Authority) -> None:
    for options in (
        {},
        {"username": "ada", "password": "x"},
        {"username": "bot", "password": TOKEN},
    ):
        with (
            pytest.raises(adbc.Error, match=r"wrong password|came with neither"),
            connect(secured, authority, **options) as connection,
            connection.cursor() as cur,
        ):
            cur.execute("SELECT 1")


def test_one_user_s_ticket_is_no_use_to_another(
    secured: SqlServer, authority: Authority
) -> None:
    with closing(
        flight.FlightClient(
            f"grpc+tls://localhost:{secured.port}", tls_root_certs=authority.certificate
        )
    ) as client:
        _, inputs = client.authenticate_basic_token("ada", PASSWORD)
        ada = bearer(inputs.decode().removeprefix("Bearer "))
        ticket = (
            client.get_flight_info(select("SELECT id FROM net.flows"), ada).endpoints[0].ticket
        )
        with pytest.raises(Exception, match="ticket") as caught:
            client.do_get(ticket, bearer(TOKEN)).read_all()
        assert "ada" not in str(caught.value)
        assert client.do_get(ticket, ada).read_all().num_rows == 3
        assert len(fetched(client, "SELECT id FROM net.flows", bearer(TOKEN))) == 3
