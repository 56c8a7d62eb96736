"""Maintenance of tables with several partition specs: deletes that apply to all of them, fields that were removed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.spark.maintenance.filters import partition_filter
from connectors.spark.metadata import each, java
from planner.maintenance.steps import Compaction
from tests.fixtures.spark import BoundTable, SparkLake
from tests.harness.generated_log import expected_rows
from tests.harness.maintaining import Care, folder_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def care(lake: SparkLake) -> Iterator[Care]:
    table = lake.create(0, 0)
    with contextlib.closing(MaintenanceReader(table.catalogs)) as reader:
        yield Care(table, reader)


def delete_equal(table: BoundTable, offset: int) -> None:
    """Commit an equality delete of one offset, as Flink writes them, in the spec without partitions."""
    loaded = table.java()
    field_id = loaded.schema().findField("kafka_offset").fieldId()
    field = pa.field("kafka_offset", pa.int64(), False, {"PARQUET:field_id": str(field_id)})
    path = folder_of(table) / "data" / f"delete-{offset}.parquet"
    pq.write_table(pa.table([[offset]], schema=pa.schema([field])), path)
    jvm = java(table.session)
    gateway = table.session.sparkContext._gateway
    assert gateway is not None
    ids = gateway.new_array(jvm.int, 1)
    ids[0] = field_id
    builder = jvm.org.apache.iceberg.FileMetadata.deleteFileBuilder(loaded.specs().get(0))
    delete = builder.ofEqualityDeletes(ids).withPath(f"file:{path}").withFormat("parquet")
    delete = delete.withFileSizeInBytes(path.stat().st_size).withRecordCount(1).build()
    loaded.newRowDelta().addDeletes(delete).commit()


@pytest.mark.soak
def test_an_equality_delete_of_all_partitions_outlives_a_rewrite_of_some(care: Care) -> None:
    table = care.table
    for end in range(100, 600, 100):
        table.tier(end, end)
    table.sql("ALTER TABLE {t} ADD PARTITION FIELD kafka_partition")
    table.tier(600, 600)
    delete_equal(table, 550)
    rows = [row for row in expected_rows(600, 600) if row[1] != 550]
    assert table.rows() == rows
    step = care.step(Compaction)
    assert isinstance(step, Compaction)
    # What it touches is more than a step, say: the files of the first spec go, and those of the second stay.
    rules = replace(step.rules, max_delete_files=5)
    assert step.drops_deletes
    care.target.take(replace(step, rules=rules, max_files=5))
    assert table.rows() == rows
    # Versions of Iceberg before 1.12 took it for one that applies to no file: none of its own spec is left.
    assert care.facts().files.delete_files == 1
    assert len(care.facts().files.files) < 7


def test_a_field_that_was_removed_takes_no_part_in_a_filter(care: Care) -> None:
    table = care.table
    loaded, jvm = table.java(), java(table.session)
    builder = jvm.org.apache.iceberg.PartitionSpec.builderFor(loaded.schema())
    # As format version 1 leaves a field that is dropped, also once the table is upgraded.
    spec = builder.alwaysNull("host").identity("kafka_partition").build()
    operations = loaded.operations()
    base = operations.current()
    operations.commit(base, base.updatePartitionSpec(spec))
    table.tier(100, 100)
    files = care.facts().files.files
    assert {file.partition for file in files} == {(None, 0), (None, 1)}
    table.sql("ALTER TABLE {t} DROP COLUMN host")
    selected = partition_filter(table.session, table.java(), [(None, 0)])
    scanned = table.java().newScan().filter(selected).planFiles()
    with contextlib.closing(scanned):
        assert len(list(each(scanned))) == 1
