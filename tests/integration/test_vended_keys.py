"""A REST catalog that hands out short-lived keys with each table: server, engine and tierer read with those, and no others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.rest_catalog import RestCatalog
from tests.fixtures.server import serving, settings_of
from tests.harness.catalog_gateway import CatalogGateway
from tests.harness.store_gateway import Fault, StoreGateway, StoreRequest
from tests.harness.whole_loop import check_whole_loop


@dataclass
class Vending:
    """The catalog without keys in its properties, and who hands them out. A token may be revoked."""

    properties: dict[str, str]
    root: str
    store: StoreGateway
    keys: dict[str, str]
    valid: set[str] = field(default_factory=set)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def vend(self) -> dict[str, str]:
        token = f"token-{next(self._numbers)}"
        self.valid.add(token)
        return {**self.keys, "s3.session-token": token}

    def judge(self, request: StoreRequest) -> Fault | None:
        if not request.token:
            return Fault.DENIED
        return None if request.token in self.valid else Fault.EXPIRED


@pytest.fixture
def vending(rest_catalog: RestCatalog, object_store: ObjectStore) -> Iterator[Vending]:
    with (
        CatalogGateway(rest_catalog.port) as catalog,
        StoreGateway(object_store.port) as store,
    ):
        properties = rest_catalog.catalog() | {
            "uri": catalog.uri,
            "s3.endpoint": store.endpoint,
        }
        names = ("s3.access-key-id", "s3.secret-access-key")
        keys = {name: properties.pop(name) for name in names}
        vending = Vending(properties, rest_catalog.root, store, keys)
        catalog.vend, store.choose_fault = vending.vend, vending.judge
        yield vending


@pytest.mark.kafka
@pytest.mark.spark
def test_a_topic_is_tiered_and_read_with_keys_that_came_with_the_table(
    vending: Vending, rest_catalog: RestCatalog, kafka: Kafka, tmp_path: Path
) -> None:
    name = TableName("lake", (rest_catalog.namespace(),), "flows")
    check_whole_loop(
        vending.properties, kafka, tmp_path, name=name, storage_roots=(vending.root,)
    )
    used = {request.token for request in vending.store.requests}
    assert "" not in used
    assert len(used) > 3


def test_keys_that_expire_are_named_and_the_next_ones_taken(
    vending: Vending, rest_catalog: RestCatalog
) -> None:
    settings = settings_of({"lake": vending.properties}, {}, storage_roots=(vending.root,))
    with serving(settings) as server:
        name = TableName("lake", (rest_catalog.namespace(),), "plain")
        rows = pa.table({"id": pa.array(range(100), pa.int64())})
        server.create_plain(rows, name=name)
        with server.catalog() as catalog:
            later = pa.table({"id": pa.array(range(100, 200), pa.int64())})
            catalog.load_table((*name.namespace, name.name)).append(later)
        server.refresh(name)
        # A file for each.
        first, second = (
            f"SELECT sum(id) AS s FROM {name} WHERE id {where}" for where in ("< 100", ">= 100")
        )
        assert server.ask(first).to_pylist() == [{"s": 4_950}]
        vending.valid.clear()
        with pytest.raises(adbc.Error, match="token has expired") as caught:
            server.ask(second)
        assert f"{name}: " in str(caught.value)
        server.refresh(name)
        assert server.ask(second).to_pylist() == [{"s": 14_950}]
