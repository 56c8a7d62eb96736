"""Catalogs and schemas of a session: there from the start, and none that do not exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import adbc_driver_flightsql.dbapi as adbc
import pytest
from pyarrow import flight

from tests.fixtures.server import SqlServer
from tests.harness.wire import fetched, get_options, select, set_options


@pytest.fixture
def client(iceberg_server: SqlServer) -> Iterator[flight.FlightClient]:
    with closing(flight.connect(iceberg_server.uri)) as connected:
        yield connected


def test_a_new_session_starts_where_there_is_something(client: flight.FlightClient) -> None:
    assert get_options(client) == {"catalog": "lake", "schema": "net", "time_zone": "UTC"}
    assert fetched(client, "SHOW TABLES") == [{"name": "flows"}]
    assert fetched(client, "SELECT count(*) AS n FROM flows") == [{"n": 3}]


@pytest.mark.parametrize(
    "sql",
    [
        "USE nowhere",
        "USE nowhere.nothing",
        "USE lake.nothing",
        "SET catalog = 'nowhere'",
        "SET CATALOG nowhere",
        "SET database = 'nowhere'",
        "SET schema = 'nothing'",
        "SET SCHEMA nothing",
        "SET search_path = 'nothing'",
    ],
)
def test_a_place_that_does_not_exist_is_refused(client: flight.FlightClient, sql: str) -> None:
    before = get_options(client)
    with pytest.raises(KeyError, match=r"[Tt]here is no (catalog|schema)"):
        client.get_flight_info(select(sql))
    assert get_options(client) == before


def test_options_name_values_that_do_not_exist(
    client: flight.FlightClient, iceberg_server: SqlServer
) -> None:
    result = set_options(client, catalog="nowhere", schema="nothing", time_zone="Nowhere/Land")
    assert {name: error.value for name, error in result.errors.items()} == {
        "catalog": 2,
        "schema": 2,
        "time_zone": 2,
    }
    with adbc.connect(iceberg_server.uri, autocommit=True) as connection:
        with pytest.raises(adbc.Error):
            connection.adbc_current_catalog = "nowhere"
        with pytest.raises(adbc.Error):
            connection.adbc_current_db_schema = "nothing"
        assert connection.adbc_current_catalog == "lake"
        connection.adbc_current_db_schema = "NET.EU"
        assert connection.adbc_current_db_schema == "net.eu"


def test_the_refusal_says_what_there_is(client: flight.FlightClient) -> None:
    with pytest.raises(
        KeyError, match=r'no schema of lake called nothing; there are net, "net\.eu"'
    ):
        client.get_flight_info(select("USE lake.nothing"))


def test_headers_of_the_first_call_are_held_to_it(client: flight.FlightClient) -> None:
    options = flight.FlightCallOptions(headers=[(b"schema", b"nothing")])
    with pytest.raises(KeyError, match="there is no schema"):
        get_options(client, options)
