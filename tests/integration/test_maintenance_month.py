"""A month of a table's life, each day maintained as if a week had passed: what it has stays bounded, and its rows are right."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.store.locations import local_path
from tests.fixtures.spark import SparkLake
from tests.harness.generated_log import expected_rows
from tests.harness.maintaining import Care

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3600)]

DAYS = 30
#: From here on the metadata log has its whole length.
SETTLED = 10


def size_of(care: Care) -> tuple[int, int, int, int]:
    """Data files, manifests, snapshots, and bytes of the metadata file."""
    facts = care.facts()
    path = local_path(care.table.store.pin(care.table.name).metadata_location)
    assert path is not None
    sizes = len(facts.files.files), len(facts.files.manifests), len(facts.committed_ms)
    return (*sizes, path.stat().st_size)


def test_a_month(lake: SparkLake) -> None:
    chance = random.Random(45)
    table = lake.create(
        0,
        0,
        partition_by=("kafka_partition",),
        properties={
            "write.delete.mode": "merge-on-read",
            "thermocline.maintain.mode": "on",
        },
    )
    end, gone, sizes = 0, set[tuple[int, int]](), []
    with closing(MaintenanceReader(table.catalogs)) as reader:
        care = Care(table, reader)
        for day in range(DAYS):
            for _ in range(4):
                end += 20
                table.tier(end, end)
            partition, offset = chance.randrange(2), chance.randrange(end)
            table.sql(
                f"DELETE FROM {{t}} WHERE kafka_partition = {partition} AND kafka_offset = {offset}"
            )
            gone.add((partition, offset))
            if day % 7 == 3:
                table.sql(f"ALTER TABLE {{t}} ADD COLUMN note_{day} string")
            # Nobody may read any more what was newest yesterday.
            care.maintain(hours=7 * 24)
            sizes.append(size_of(care))
            rows = [row for row in expected_rows(end, end) if row[:2] not in gone]
            assert table.rows() == rows, day
            assert table.watermark() == {0: end, 1: end}
    at_first = [max(each[kind] for each in sizes[:SETTLED]) for kind in range(4)]
    later = [max(each[kind] for each in sizes[SETTLED:]) for kind in range(4)]
    # Three columns came since, which the metadata file names.
    assert all(last <= first for last, first in zip(later[:3], at_first[:3], strict=True)), (
        sizes
    )
    assert later[3] <= at_first[3] * 1.5, sizes
