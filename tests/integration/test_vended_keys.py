"""A REST catalog that hands out short-lived keys with each table: server, engine and tierer read with those, and no others."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from connectors.iceberg.store import IcebergStore
from connectors.spark.catalogs import catalog_conf
from planner.errors import ColdStoreUnavailable
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.rest_catalog import RestCatalog
from tests.fixtures.server import TieredServer, serving, settings_of
from tests.fixtures.spark import SparkLake
from tests.harness.catalog_gateway import CatalogGateway
from tests.harness.store_gateway import Fault, StoreGateway, StoreRequest
from tests.harness.whole_loop import check_whole_loop
from thermocline.config.settings import IcebergRest
from thermocline.doctor.stores import stores
from thermocline.serve.assembly import running_server


@dataclass
class Vending:
    """The catalog without keys in its properties, and who hands them out. A token may be revoked."""

    properties: dict[str, str]
    root: str
    catalog: CatalogGateway
    store: StoreGateway
    keys: dict[str, str]
    valid: set[str] = field(default_factory=set)
    #: After so many data files all keys expire, once.
    files_left: float = math.inf
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def vend(self) -> dict[str, str]:
        token = f"token-{next(self._numbers)}"
        self.valid.add(token)
        return {**self.keys, "s3.session-token": token}

    def judge(self, request: StoreRequest) -> Fault | None:
        if not request.token:
            return Fault.DENIED
        if request.method == "PUT" and request.path.partition("?")[0].endswith(".parquet"):
            self.files_left -= 1
            if self.files_left == -1:
                self.valid.clear()
        return None if request.token in self.valid else Fault.EXPIRED


@pytest.fixture
def vending_catalog(rest_catalog: RestCatalog, object_store: ObjectStore) -> Iterator[Vending]:
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
        vending_catalog = Vending(properties, rest_catalog.root, catalog, store, keys)
        catalog.vend, store.choose_fault = vending_catalog.vend, vending_catalog.judge
        yield vending_catalog


@pytest.mark.kafka
@pytest.mark.spark
def test_a_topic_is_tiered_and_read_with_keys_that_came_with_the_table(
    vending_catalog: Vending, rest_catalog: RestCatalog, kafka: Kafka, tmp_path: Path
) -> None:
    name = TableName("lake", (rest_catalog.namespace(),), "flows")
    check_whole_loop(
        vending_catalog.properties,
        kafka,
        tmp_path,
        name=name,
        storage_roots=(vending_catalog.root,),
    )
    used = {request.token for request in vending_catalog.store.requests}
    assert "" not in used
    assert len(used) > 3


@pytest.mark.kafka
@pytest.mark.spark
def test_keys_that_expire_while_spark_writes_are_named_and_the_next_round_goes_on(
    vending_catalog: Vending, rest_catalog: RestCatalog, kafka: Kafka, lake: SparkLake
) -> None:
    # A name for each test: Spark keeps what it has once opened.
    catalog = f"vending_{vending_catalog.store.endpoint.rpartition(':')[2]}"
    catalogs = {catalog: vending_catalog.properties}
    for key, value in catalog_conf(catalog, vending_catalog.properties).items():
        lake.session.conf.set(key, value)
    settings = settings_of(catalogs, kafka.settings, storage_roots=(vending_catalog.root,))
    topic = kafka.topic(3)
    with closing(IcebergStore(catalogs)) as store, running_server(settings) as running:
        there = SparkLake(lake.session, catalogs, store, itertools.count(1))
        server = TieredServer(running, settings, own_catalog=catalog, lake=there)
        table = server.bind(
            topic,
            [Column(0, "id", pa.int64())],
            name=TableName(catalog, (rest_catalog.namespace(),), "flows"),
        )
        for partition in range(3):
            kafka.produce(topic, [b'{"id": 1}'] * 400, partition=partition)
        vending_catalog.files_left = 1
        with pytest.raises(ColdStoreUnavailable, match="session token has expired"):
            server.tier(table)
        assert vending_catalog.files_left < 0
        server.refresh(table)
        assert server.ask(f"SELECT sum(id) AS s FROM {table}").to_pylist() == [{"s": 1_200}]
        server.tier(table)
        server.refresh(table)
        cold = server.ask(f'SELECT sum(id) AS s FROM {table.namespace[0]}."flows$cold"')
        assert cold.to_pylist() == [{"s": 1_200}]
        assert server.ask(f"SELECT sum(id) AS s FROM {table}").to_pylist() == [{"s": 1_200}]


def test_keys_that_expire_are_named_and_the_next_ones_taken(
    vending_catalog: Vending, rest_catalog: RestCatalog
) -> None:
    settings = settings_of(
        {"lake": vending_catalog.properties}, {}, storage_roots=(vending_catalog.root,)
    )
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
        vending_catalog.valid.clear()
        with pytest.raises(adbc.Error, match="token has expired") as caught:
            server.ask(second)
        assert f"{name}: " in str(caught.value)
        server.refresh(name)
        assert server.ask(second).to_pylist() == [{"s": 14_950}]


def test_doctor_tries_the_store_with_keys_that_come_with_a_table(
    vending_catalog: Vending, rest_catalog: RestCatalog
) -> None:
    settings = settings_of(
        {"lake": vending_catalog.properties}, {}, storage_roots=(vending_catalog.root,)
    )
    name = TableName("lake", (rest_catalog.namespace(),), "plain")
    with closing(load_catalog("lake", **vending_catalog.properties)) as catalog:
        catalog.create_namespace(name.namespace)
        catalog.create_table((*name.namespace, name.name), pa.schema([("id", pa.int64())]))
    vending_catalog.store.requests.clear()
    states = {each.check: each.state for each in stores(settings, {"lake": [name]})}
    assert states == {"store of lake": "ok", "clock of the store of lake": "ok"}
    assert vending_catalog.store.requests
    assert all(request.token for request in vending_catalog.store.requests)


def test_keys_that_came_with_a_table_go_on_to_engines_where_the_settings_say_so(
    vending_catalog: Vending, rest_catalog: RestCatalog
) -> None:
    name = TableName("lake", (rest_catalog.namespace(),), "plain")
    settings = settings_of(
        {"lake": vending_catalog.properties}, {}, storage_roots=(vending_catalog.root,)
    )

    def handed(**changes: Any) -> tuple[dict[str, str], list[Any]]:
        live = IcebergRest(port=0, **changes)
        with serving(settings.model_copy(update={"iceberg_rest": live})) as server:
            if name not in server.running.pins.tables():
                server.create_plain(pa.table({"id": [1, 2, 3]}), name=name)
            uri = f"http://127.0.0.1:{server.running.rest_port}"
            path = f"/v1/lake/namespaces/{name.schema}/tables/{name.name}"
            with urllib.request.urlopen(uri + path) as answer:
                document = json.load(answer)
                config: dict[str, str] = document["config"]
            if config:
                properties = {"type": "rest", "uri": uri, "warehouse": "lake"}
                with contextlib.closing(load_catalog("live", **properties)) as live_catalog:
                    table = live_catalog.load_table((*name.namespace, name.name))
                    assert table.scan().to_arrow()["id"].to_pylist() == [1, 2, 3]
        return config, document.get("storage-credentials", [])

    assert handed() == ({}, [])
    config, by_location = handed(vended=("lake",))
    assert by_location == []
    assert config["s3.session-token"] in vending_catalog.valid
    assert config["s3.endpoint"] == vending_catalog.store.endpoint
    assert not set(config) & {"token", "credential", "uri", "warehouse"}
    # By place, as a catalog names several stores of one table. What the table says of stores itself changes nothing.
    with contextlib.closing(load_catalog("own", **vending_catalog.properties)) as own:
        table = own.load_table((*name.namespace, name.name))
        evil = {"s3.endpoint": "http://127.0.0.1:9", "py-io-impl": "os.system"}
        table.transaction().set_properties(evil).commit_transaction()
    vending_catalog.catalog.places = (f"{vending_catalog.root}/", "s3://elsewhere/")
    config, by_location = handed(vended=("lake",))
    assert [entry["prefix"] for entry in by_location] == list(vending_catalog.catalog.places)
    for keys in (config, *(entry["config"] for entry in by_location)):
        assert keys["s3.session-token"] in vending_catalog.valid
        assert keys["s3.endpoint"] == vending_catalog.store.endpoint
    vending_catalog.store.choose_fault = lambda _: Fault.DENIED
    with pytest.raises(urllib.error.HTTPError) as caught:
        handed(vended=("lake",))
    assert (caught.value.code, int(caught.value.headers["retry-after"]) > 0) == (503, True)
    caught.value.close()
