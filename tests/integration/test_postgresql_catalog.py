"""A catalog in PostgreSQL: restarted, gone, and closed to us."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from planner.errors import CatalogUnavailable
from planner.names import TableName
from tests.fixtures.postgresql import PostgreSQL
from tests.fixtures.server import SqlServer, settings_of
from thermocline.serve.assembly import running_server

FLOWS = TableName("lake", ("default",), "flows")
COUNT = "SELECT count(*) AS n FROM flows"
REFUSES = "the catalog's database refuses our login or a right; check user and password in its uri, and what that user may do"


@pytest.fixture
def properties(postgresql: PostgreSQL, tmp_path: Path) -> dict[str, str]:
    properties = postgresql.catalog(tmp_path)
    with closing(load_catalog("lake", **properties)) as catalog:
        catalog.create_namespace("default")
        data = pa.table({"id": pa.array(range(10), pa.int64())})
        catalog.create_table("default.flows", data.schema).append(data)
    return properties


def refused(server: SqlServer, sql: str) -> str:
    with pytest.raises(adbc.Error) as caught:
        server.ask(sql)
    return re.split(r" \((?:statement|request) ", str(caught.value))[0].removeprefix(
        "IO: [FlightSQL] "
    )


def test_a_server_goes_on_over_a_database_that_was_restarted(
    postgresql: PostgreSQL, properties: dict[str, str]
) -> None:
    settings = settings_of({"lake": properties}, {})
    with running_server(settings) as running:
        server = SqlServer(running, settings)
        assert server.ask(COUNT).to_pylist() == [{"n": 10}]
        postgresql.restart()
        server.refresh(FLOWS)
        assert server.ask(COUNT).to_pylist() == [{"n": 10}]


def test_a_database_that_is_gone_is_named_and_taken_up_again(
    postgresql: PostgreSQL, properties: dict[str, str]
) -> None:
    settings = settings_of({"lake": properties}, {})
    with running_server(settings) as running:
        server = SqlServer(running, settings)
        postgresql.control("stop", "-m", "immediate")
        try:
            with pytest.raises(
                CatalogUnavailable, match="catalog lake does not answer; try again"
            ):
                server.refresh(FLOWS)
        finally:
            postgresql.begin()
        server.refresh(FLOWS)
        assert server.ask(COUNT).to_pylist() == [{"n": 10}]


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (":p%40ss", ":wrong", REFUSES),
        ("//thermocline:", "//nobody:", REFUSES),
        ("/catalog_", "/nowhere_", "the catalog's server has no such database; check its uri"),
    ],
    ids=["password", "user", "database"],
)
def test_what_postgresql_refuses_is_named_without_the_password(
    properties: dict[str, str], before: str, after: str, reason: str
) -> None:
    uri = properties["uri"].replace(before, after)
    assert uri != properties["uri"]
    settings = settings_of({"lake": properties | {"uri": uri}}, {})
    with running_server(settings) as running:
        assert refused(SqlServer(running, settings), COUNT) == f"catalog lake: {reason}"


def test_a_right_taken_away_is_named(
    postgresql: PostgreSQL, properties: dict[str, str]
) -> None:
    settings = settings_of({"lake": properties}, {})
    database = properties["uri"].rpartition("/")[2]
    postgresql.administrate("ALTER TABLE iceberg_tables OWNER TO postgres", database)
    with running_server(settings) as running:
        assert refused(SqlServer(running, settings), COUNT) == f"catalog lake: {REFUSES}"
