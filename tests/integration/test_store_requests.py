"""What statements over an object store cost in requests, counted in front of a real one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from planner.names import TableName
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.server import SqlServer, settings_of
from tests.harness.store_gateway import StoreGateway
from thermocline.serve.assembly import running_server

_FLOWS = TableName("lake", ("default",), "flows")
_FILES, _ROWS = 4, 50_000


@pytest.fixture
def gateway(object_store: ObjectStore) -> Iterator[StoreGateway]:
    with StoreGateway(object_store.port) as started:
        yield started


@pytest.fixture
def server(
    object_store: ObjectStore, gateway: StoreGateway, tmp_path: Path
) -> Iterator[SqlServer]:
    properties = object_store.catalog(tmp_path)
    with closing(load_catalog("lake", **properties)) as catalog:
        catalog.create_namespace("default")
        for number in range(_FILES):
            data = _rows(number)
            catalog.create_table_if_not_exists("default.flows", data.schema).append(data)
    settings = settings_of({"lake": properties | {"s3.endpoint": gateway.endpoint}}, {})
    with running_server(settings) as running:
        yield SqlServer(running, settings)


def _rows(number: int) -> pa.Table:
    """Those of one file."""
    ids = range(number * _ROWS, (number + 1) * _ROWS)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": ["x"] * _ROWS})


def _of_data(gateway: StoreGateway) -> Counter[str]:
    """Requests for data files since the last call, by method."""
    methods = Counter(
        each.method for each in gateway.requests if each.path.endswith(".parquet")
    )
    gateway.requests.clear()
    return methods


def test_what_was_read_once_is_read_again_without_a_request(
    server: SqlServer, gateway: StoreGateway
) -> None:
    total = _FILES * _ROWS
    expected = [{"n": total, "s": total * (total - 1) // 2}]
    statement = "SELECT count(*) AS n, sum(id) AS s FROM flows"
    assert server.ask(statement).to_pylist() == expected
    first = _of_data(gateway)
    # Our look at each footer, and the engine's own.
    assert first["HEAD"] <= 2 * _FILES, first
    assert first["GET"] <= 3 * _FILES, first
    assert server.ask(statement).to_pylist() == expected
    assert gateway.requests == []


def test_a_point_asks_for_one_file_and_a_second_for_nothing(
    server: SqlServer, gateway: StoreGateway
) -> None:
    answer = server.ask("SELECT name FROM flows WHERE id = 60_000")
    assert answer.to_pylist() == [{"name": "x"}]
    methods = _of_data(gateway)
    # Our look at the footer, and the engine's own.
    assert methods["HEAD"] <= 2
    assert 1 <= methods["GET"] <= 4, methods
    answer = server.ask("SELECT name FROM flows WHERE id = 60_001")
    assert answer.to_pylist() == [{"name": "x"}]
    assert not _of_data(gateway)


def test_rows_are_counted_without_asking_for_a_data_file(
    server: SqlServer, gateway: StoreGateway
) -> None:
    assert server.ask("SELECT count(*) AS n FROM flows").to_pylist() == [{"n": _FILES * _ROWS}]
    assert not _of_data(gateway)
    assert server.ask("SELECT count(id) AS n FROM flows").to_pylist() == [{"n": _FILES * _ROWS}]
    assert _of_data(gateway)


def test_a_point_in_a_file_that_was_published_meanwhile_takes_two_round_trips(
    server: SqlServer, gateway: StoreGateway
) -> None:
    gateway.latency_s = 0.005
    server.ask("SELECT name FROM flows WHERE id = 60_000")
    with server.catalog() as catalog:
        catalog.load_table("default.flows").append(_rows(_FILES))
    server.refresh(_FLOWS)
    gateway.requests.clear()
    answer = server.ask(f"SELECT name FROM flows WHERE id = {_FILES * _ROWS + 7}")
    assert answer.to_pylist() == [{"name": "x"}]
    # The column of the condition, then the other. What comes before was read when the pin was refreshed.
    assert len(gateway.requests) <= 2, gateway.requests
    assert {request.method for request in gateway.requests} == {"GET"}


def test_connections_are_used_again_and_one_that_the_store_ended_is_no_error(
    server: SqlServer, gateway: StoreGateway
) -> None:
    gateway.idle_s = 0.3
    first, second, third, fourth = (
        f"SELECT name FROM flows WHERE id = {number * _ROWS}" for number in range(_FILES)
    )
    assert server.ask(first).num_rows == 1
    assert server.ask(second).num_rows == 1
    before = gateway.connections
    assert server.ask(third).num_rows == 1
    assert gateway.connections - before <= 1
    time.sleep(2 * gateway.idle_s)
    assert server.ask(fourth).num_rows == 1
