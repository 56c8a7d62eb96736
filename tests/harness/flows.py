"""Writes, rounds and answers of the lake's table flows."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from tests.harness.lake import FLOWS, Lake
from tests.harness.ledger import Place
from tests.harness.records import GOOD

PLACES = "SELECT kafka_partition, kafka_offset FROM flows"


def write(lake: Lake, partition: int, count: int, kind: str = GOOD) -> None:
    for _ in range(count):
        lake.produce(lake.topics["flows"], partition, kind)


def tier(lake: Lake, max_rows: int = 1000) -> None:
    target, plan = lake.plan_tiering(FLOWS, max_rows)
    lake.publish(lake.stage(FLOWS, target, plan))


def written(lake: Lake) -> Counter[Place]:
    """Every committed row, once."""
    topic = lake.topics["flows"]
    return Counter(
        (partition, offset)
        for partition, slots in enumerate(topic.partitions)
        for offset in range(topic.end(partition))
        if slots[offset].state == "committed" and slots[offset].record
    )


def places(table: pa.Table) -> Counter[Place]:
    columns = (table[name].to_pylist() for name in ("kafka_partition", "kafka_offset"))
    return Counter(zip(*columns, strict=True))
