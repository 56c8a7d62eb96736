"""Attaching to a session whose catalogs are other people's: all bound tables as one cut, and catalogs that are not the settings'."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from connectors.iceberg.create import NewTable, create_table
from connectors.kafka.log import KafkaLog
from connectors.spark.catalogs import catalog_conf
from connectors.spark.lake.lake import Lake
from connectors.spark.options import LakeSettings
from planner.errors import BadConfig, LimitExceeded, UnknownTable
from planner.names import TableName
from planner.seam.binding import Binding
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer, sqlite_catalog
from tests.harness.spark_rows import PAYLOAD, bound_flows, record, settings_of
from thermocline.commands.create import first_watermark

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def bind(kafka: Kafka, catalogs: dict[str, dict[str, str]], name: TableName) -> str:
    topic = kafka.topic(1)
    binding = Binding(topic)
    with KafkaLog(kafka.settings) as log:
        first = first_watermark(log.measure([topic])[topic], binding)
    create_table(catalogs, NewTable(name, PAYLOAD, binding), first)
    return topic


def test_all_bound_tables_are_one_cut_where_none_is_named(
    tiered_server: TieredServer,
    kafka: Kafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalogs = {"pool": sqlite_catalog(tmp_path)}
    session = tiered_server.lake.session
    for key, value in catalog_conf("pool", catalogs["pool"]).items():
        session.conf.set(key, value)
    settings = LakeSettings(catalogs, tiered_server.settings.clusters)
    with contextlib.closing(load_catalog("pool", **catalogs["pool"])) as catalog:
        catalog.create_namespace("net")
        catalog.create_table("net.plain", pa.schema([pa.field("id", pa.int64())]))
    with (
        Lake(session, settings) as lake,
        pytest.raises(UnknownTable, match="no table is bound to a topic"),
    ):
        lake.at()
    tables = [TableName("pool", ("net",), name) for name in ("flows", "logins")]
    for number, table in enumerate(tables, 1):
        kafka.produce(bind(kafka, catalogs, table), [record(n) for n in range(number)])
    with Lake(session, settings) as lake:
        cut = lake.at()
        assert sorted(cut.tables) == tables
        assert [cut.table(str(table)).count() for table in tables] == [1, 2]
        monkeypatch.setattr("connectors.spark.lake.sql.MAX_TABLES", 1)
        with pytest.raises(LimitExceeded, match="2 tables are bound to topics, more than 1"):
            lake.at()
        assert lake.at("net.logins").tables == (tables[1],)


def test_a_catalog_that_points_elsewhere_is_another_one(
    tiered_server: TieredServer, kafka: Kafka, tmp_path: Path
) -> None:
    """Of the same name as Spark's, with a table of the same name."""
    table, _ = bound_flows(tiered_server, kafka)
    catalogs = {"lake": sqlite_catalog(tmp_path)}
    bind(kafka, catalogs, table)
    session = tiered_server.lake.session
    with (
        Lake(session, LakeSettings(catalogs, tiered_server.settings.clusters)) as elsewhere,
        pytest.raises(BadConfig) as refusal,
    ):
        elsewhere.at(str(table))
    assert "Spark's catalog lake has another table of that name" in refusal.value.message
    with Lake(session, settings_of(tiered_server)) as lake:
        assert lake.at(str(table)).table(str(table)).count() == 60
