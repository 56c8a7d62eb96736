"""A bound table that Spark and Flight are both asked about."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource

from connectors.spark.lake.source import source_class
from connectors.spark.options import LakeSettings
from connectors.spark.remote.plan import ServerAddress
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer

PAYLOAD = (
    Column(0, "id", pa.int32()),
    Column(0, "host", pa.string()),
    Column(0, "load", pa.float64()),
    Column(0, "seen_at", pa.timestamp("us", tz="UTC")),
    Column(0, "place", pa.struct([pa.field("city", pa.string()), pa.field("zip", pa.int32())])),
)


def record(number: int, **more: Any) -> bytes:
    load = number / 4
    return json.dumps(
        {
            "id": number,
            "host": f"host-{number % 7}",
            "load": load,
            "seen_at": f"2026-11-24T08:{number % 60:02}:00+00:00",
            "place": {"city": f"c{number % 3}", "zip": number},
            **more,
        }
    ).encode()


def settings_of(server: TieredServer) -> LakeSettings:
    return LakeSettings(
        catalogs={name: dict(each) for name, each in server.settings.catalogs.items()},
        clusters=server.settings.clusters,
    )


def source_of(of: LakeSettings | ServerAddress, **options: str) -> DataSource:
    """The registered source as Spark makes it, in this process: Spark starts one for each load."""
    settings, server = (of, None) if isinstance(of, LakeSettings) else (None, of)
    return source_class(settings, server)(CaseInsensitiveDict(options))  # type: ignore[arg-type]


def read_here(of: LakeSettings | ServerAddress, **options: str) -> list[dict[str, Any]]:
    """The rows of a ``load()``, read in this process by what tasks read with."""
    source = source_of(of, **options)
    reader = source.reader(source.schema())  # type: ignore[arg-type]
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [row for batch in batches for row in batch.to_pylist()]  # type: ignore[union-attr]


def bound_flows(tiered_server: TieredServer, kafka: Kafka) -> tuple[TableName, str]:
    """Bind a table of 40 cold and 20 hot rows in two partitions, and its topic."""
    topic = kafka.topic(2)
    table = tiered_server.bind(topic, PAYLOAD)
    for partition in (0, 1):
        kafka.produce(
            topic, [record(n + 100 * partition) for n in range(20)], partition=partition
        )
    tiered_server.tier(table)
    for partition in (0, 1):
        kafka.produce(
            topic, [record(n + 100 * partition) for n in range(20, 30)], partition=partition
        )
    tiered_server.refresh(table)
    return table, topic


def rows_of(frame: DataFrame, *names: str) -> list[dict[str, Any]]:
    frame = frame.select(*names) if names else frame
    return in_order(frame.toArrow())


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(
        table.to_pylist(), key=lambda row: (row["kafka_partition"], row["kafka_offset"])
    )


def over_flight(server: TieredServer, table: TableName, token: str) -> list[dict[str, Any]]:
    sql = f"FROM {table} AT (VERSION => '{token}')"
    return in_order(server.ask(sql))
