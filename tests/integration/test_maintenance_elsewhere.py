"""Maintenance over S3, with a REST catalog and with one in PostgreSQL: each step, and what servers may still read stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.iceberg.store import IcebergStore
from connectors.spark.catalogs import catalog_conf
from planner.maintenance.steps import (
    Compaction,
    Expiry,
    LogLength,
    OrphanRemoval,
    WatermarkRenewal,
)
from tests.fixtures.catalog_on_s3 import CatalogOnS3
from tests.fixtures.spark import SparkLake
from tests.harness.generated_log import expected_rows
from tests.harness.maintaining import Care

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture
def care(lake: SparkLake, catalog_on_s3: CatalogOnS3) -> Iterator[Care]:
    name = f"{catalog_on_s3.kind}_care"
    catalogs = {name: catalog_on_s3.properties}
    for key, value in catalog_conf(name, catalog_on_s3.properties).items():
        lake.session.conf.set(key, value)
    with closing(IcebergStore(catalogs)) as store:
        elsewhere = SparkLake(lake.session, catalogs, store, lake.numbers, name)
        table = elsewhere.create(0, 0, properties={"write.delete.mode": "merge-on-read"})
        with closing(MaintenanceReader(catalogs)) as reader:
            yield Care(table, reader)


def test_each_step_on_s3(care: Care) -> None:
    table = care.table
    for end in range(100, 600, 100):
        table.tier(end, end)
    table.sql("DELETE FROM {t} WHERE kafka_offset = 50")
    rows = [row for row in expected_rows(500, 500) if row[1] != 50]
    young = care.facts().head
    kinds = care.maintain()
    # The store's clock is now: nothing is old enough to go, and the look is noted.
    assert kinds == [Compaction, OrphanRemoval]
    assert (len(care.facts().files.files), care.facts().files.delete_files) == (1, 0)
    assert care.facts().properties["thermocline-maintain.orphan-bytes"] == "0"
    assert young in care.facts().committed_ms
    kinds = [kind for kind in care.maintain(hours=24 * 30) if kind is not LogLength]
    assert kinds == [WatermarkRenewal, Expiry, OrphanRemoval]
    assert young not in care.facts().committed_ms
    assert table.rows() == rows
    assert table.watermark() == {0: 500, 1: 500}
    table.tier(600, 600)
    assert table.watermark() == {0: 600, 1: 600}
