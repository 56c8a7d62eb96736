"""What statements over an object store cost in requests, counted in front of a real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from tests.fixtures.object_store import ObjectStore
from tests.fixtures.server import SqlServer, settings_of
from tests.harness.store_gateway import StoreGateway
from thermocline.serve.assembly import running_server

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
            ids = range(number * _ROWS, (number + 1) * _ROWS)
            data = pa.table({"id": pa.array(ids, pa.int64()), "name": ["x"] * _ROWS})
            catalog.create_table_if_not_exists("default.flows", data.schema).append(data)
    settings = settings_of({"lake": properties | {"s3.endpoint": gateway.endpoint}}, {})
    with running_server(settings) as running:
        yield SqlServer(running, settings)


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
