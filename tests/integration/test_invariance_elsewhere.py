"""The stories of ``test_invariance`` where nobody's laptop is: catalogs in PostgreSQL and behind REST, files on S3, over a
store that answers some requests with 503; and two tierers of one table there.

The tale is one function, so both files tell it; what differs is where the tables are.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.store import IcebergStore
from connectors.spark.catalogs import catalog_conf
from planner.errors import TieringConflict
from planner.names import TableName
from tests.fixtures.catalog_on_s3 import CatalogOnS3
from tests.fixtures.kafka import Kafka
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.server import TieredServer, settings_of
from tests.fixtures.spark import BINDING, PAYLOAD, BoundTable, SparkLake, first_watermark
from tests.harness.generated_log import GeneratedLog, expected_rows
from tests.harness.store_gateway import Fault, StoreGateway, StoreRequest
from tests.harness.stories import STEPS, tell
from thermocline.serve.assembly import running_server

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(900)]

#: All three clients ask three times and more: all of them fail once in ten thousand times.
BUSY_SHARE = 0.02
SHORT_STEPS = 5


@pytest.fixture
def gateway(object_store: ObjectStore) -> Iterator[StoreGateway]:
    chance = random.Random(7)

    def choose(request: StoreRequest) -> Fault | None:
        is_hit = request.method in ("GET", "HEAD") and chance.random() < BUSY_SHARE
        return Fault.BUSY if is_hit else None

    with StoreGateway(object_store.port) as started:
        started.choose_fault = choose
        yield started


@pytest.fixture
def tiered_server_on_s3(
    catalog_on_s3: CatalogOnS3, lake: SparkLake, kafka: Kafka, gateway: StoreGateway
) -> Iterator[TieredServer]:
    """A server and the shared Spark over one more catalog."""
    # A name for each test: Spark keeps what it has once opened.
    name = f"{catalog_on_s3.kind}_{gateway.endpoint.rpartition(':')[2]}"
    catalogs = {name: catalog_on_s3.properties | {"s3.endpoint": gateway.endpoint}}
    for key, value in catalog_conf(name, catalogs[name]).items():
        lake.session.conf.set(key, value)
    settings = settings_of(catalogs, kafka.settings, storage_roots=(catalog_on_s3.root,))
    with closing(IcebergStore(catalogs)) as store, running_server(settings) as running:
        there = SparkLake(lake.session, catalogs, store, itertools.count(1))
        yield TieredServer(running, settings, own_catalog=name, lake=there)


@pytest.mark.parametrize(
    "catalog_on_s3",
    ["rest", pytest.param("postgresql", marks=pytest.mark.soak)],
    indirect=True,
)
def test_the_second_of_two_tierers_is_refused_and_goes_on_from_the_first(
    tiered_server_on_s3: TieredServer,
) -> None:
    lake = tiered_server_on_s3.lake
    name = TableName(tiered_server_on_s3.own_catalog, ("rivals",), "flows")
    first = first_watermark(0, 0, binding=BINDING)
    create_table(lake.catalogs, NewTable(name, PAYLOAD, BINDING), first)
    flows = BoundTable(lake.session, lake.store, lake.catalogs, name)
    late, staged = flows.stage(GeneratedLog((200, 200)))
    flows.tier(150, 150)
    with pytest.raises(TieringConflict, match="plan again"):
        late.publish(staged)
    late.discard(staged)
    assert flows.rows() == expected_rows(150, 150)
    assert flows.branches() == []
    flows.tier(200, 200)
    assert flows.rows() == expected_rows(200, 200)
    assert flows.watermark() == {0: 200, 1: 200}


@pytest.mark.parametrize(
    "catalog_on_s3",
    ["rest", pytest.param("postgresql", marks=pytest.mark.soak)],
    indirect=True,
)
def test_a_short_story_on_s3_changes_no_answer(
    kafka: Kafka, tiered_server_on_s3: TieredServer, gateway: StoreGateway
) -> None:
    with tiered_server_on_s3.cursor() as cursor:
        tell(0, SHORT_STEPS, kafka, tiered_server_on_s3, cursor)
    assert len(gateway.requests) > 20


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 5))
def test_long_stories_on_s3_change_no_answer(
    seed: int, kafka: Kafka, tiered_server_on_s3: TieredServer
) -> None:
    with tiered_server_on_s3.cursor() as cursor:
        tell(seed, len(STEPS) + 1, kafka, tiered_server_on_s3, cursor)
