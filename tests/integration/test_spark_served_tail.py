"""Tails that come from a server, of cuts that are read directly otherwise: the rows that the log gives, or none."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

import thermocline.spark as tc
from connectors.flight_server import NoServer
from connectors.spark.lake.lake import Lake
from connectors.spark.remote.load import ServedTails
from connectors.spark.remote.plan import ServerAddress
from planner.names import TableName
from planner.schema import Column
from planner.seam.cut import TableCut
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.events import TYPES
from tests.harness.oracle import same
from tests.harness.spark_rows import (
    bound_flows,
    in_order,
    over_flight,
    record,
    rows_of,
    settings_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture
def served(tiered_server: TieredServer) -> ServedTails:
    return ServedTails(ServerAddress.of(tiered_server.uri))


@pytest.fixture
def spark_lake(tiered_server: TieredServer, served: ServedTails) -> Iterator[Lake]:
    session = tiered_server.lake.session
    with Lake(session, settings_of(tiered_server), served=served) as lake:
        yield lake


def cut_of(lake: Lake, table: TableName) -> TableCut:
    return lake.at(str(table))._cuts[table]


def read(batches: Iterator[pa.RecordBatch] | None) -> pa.Table:
    assert batches is not None
    return pa.Table.from_batches(list(batches))


def test_every_type_is_the_same_from_the_server_as_from_the_log(
    tiered_server: TieredServer, served: ServedTails, spark_lake: Lake, kafka: Kafka
) -> None:
    topic = kafka.topic()
    columns = [Column(0, name, kind) for name, (kind, _, _) in TYPES.items()]
    table = tiered_server.bind(topic, columns)
    records = [{}, dict.fromkeys(TYPES)]
    records += [{name: value} for name, (_, _, items) in TYPES.items() for value in items]
    kafka.produce(topic, [json.dumps(record).encode() for record in records])
    cut = cut_of(spark_lake, table)
    ours, theirs = read(spark_lake._tails._of_log(cut)), read(served.rows(cut))
    assert theirs.schema.equals(ours.schema)
    assert ours.num_rows == len(records)
    for one, other in zip(in_order(ours), in_order(theirs), strict=True):
        assert same(one, other)


def test_a_server_whose_seam_is_elsewhere_is_not_taken_for_it(
    tiered_server: TieredServer, served: ServedTails, spark_lake: Lake, kafka: Kafka
) -> None:
    """Its tail is shorter: rows between the two seams would be in neither side."""
    table, topic = bound_flows(tiered_server, kafka)
    cut = cut_of(spark_lake, table)
    assert read(served.rows(cut)).num_rows == 20
    kafka.produce(topic, [record(500)])
    assert read(served.rows(cut)).num_rows == 20
    tiered_server.tier(table)
    tiered_server.refresh(table)
    assert read(served.rows(cut)).num_rows == 20
    tiered_server.spark(table).expire_to_one()
    tiered_server.refresh(table)
    assert served.rows(cut) is None
    whole = read(spark_lake._tails._of_log(cut))
    assert whole.num_rows == 20


def test_a_server_that_does_not_answer_costs_no_rows(
    tiered_server: TieredServer, kafka: Kafka
) -> None:
    table, _ = bound_flows(tiered_server, kafka)
    session, gone = tiered_server.lake.session, ServedTails(ServerAddress("grpc://127.0.0.1:1"))
    with Lake(session, settings_of(tiered_server), served=gone) as lake:
        # Whether anything is hidden is not known.
        with pytest.raises(NoServer):
            lake.at(str(table))
        # It answered when the first cut was taken.
        lake._checked.add((table, tiered_server.running.pins.get(table).table_uuid))
        cut = lake.at(str(table))
        assert rows_of(cut.table(str(table))) == over_flight(tiered_server, table, cut.token)


def test_settings_and_a_server_are_one_lake(
    tiered_server: TieredServer, kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> None:
    table, _ = bound_flows(tiered_server, kafka)
    config = tmp_path_factory.mktemp("both") / "thermocline.toml"
    lake = "".join(
        f'"{key}" = {json.dumps(value)}\n'
        for key, value in tiered_server.settings.catalogs["lake"].items()
    )
    brokers = tiered_server.settings.kafka["bootstrap.servers"]
    config.write_text(f'[catalogs.lake]\n{lake}[kafka]\n"bootstrap.servers" = "{brokers}"\n')
    session = tiered_server.lake.session
    with tc.connect(session, str(config), server=tiered_server.uri) as direct:
        cut = direct.at(str(table))
        assert cut.table(str(table)).count() == 60
