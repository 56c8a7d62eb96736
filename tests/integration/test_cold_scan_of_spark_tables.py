"""Tables as Spark writes and maintains them, read by pin and cold scan: Spark's own answer is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb
import pytest

from planner.errors import ForeignCommit
from planner.ports import SqlRelation
from planner.reading.extremes import extremes_of
from tests.fixtures.cold import cold_slice
from tests.fixtures.spark import BoundTable, SparkLake

pytestmark = pytest.mark.spark

Read = Callable[[BoundTable], list[tuple[object, ...]]]


@pytest.fixture
def read(duck: duckdb.DuckDBPyConnection) -> Read:
    """Rows by the newest pin, sorted; columns as ``BoundTable.rows`` gives them."""

    def rows(table: BoundTable) -> list[tuple[object, ...]]:
        relation = table.store.scan(cold_slice(table.store.pin(table.name)))
        assert isinstance(relation, SqlRelation)
        columns = "kafka_partition, kafka_offset, host, bytes"
        result = duck.cursor().execute(f"SELECT {columns} FROM ({relation.sql})").fetchall()
        return sorted(result)

    return rows


def offsets_by_statistics(table: BoundTable) -> list[int] | None:
    """Lowest and highest offset by statistics of files."""
    bounds = table.store.bounds(cold_slice(table.store.pin(table.name)), "kafka_offset")
    value = None if bounds is None else extremes_of(bounds)
    return None if value is None else [each.as_py() for each in value]


def read_offsets(rows: Sequence[tuple[int, int, str, int]]) -> list[int]:
    offsets = [row[1] for row in rows]
    return [min(offsets), max(offsets)]


def test_tiered_rows_are_scanned(flows: BoundTable, read: Read) -> None:
    flows.tier(50, 30)
    assert flows.watermark() == {0: 50, 1: 30}
    assert read(flows) == flows.rows()
    assert len(read(flows)) > 0
    assert offsets_by_statistics(flows) == read_offsets(flows.rows())


@pytest.mark.parametrize(
    ("version", "mode"),
    [
        (2, "merge-on-read"),
        (3, "merge-on-read"),
        pytest.param(2, "copy-on-write", marks=pytest.mark.soak),
        (3, "copy-on-write"),
    ],
)
def test_deletes_and_updates_of_both_modes_are_scanned(
    flows: BoundTable, read: Read, mode: str, version: int
) -> None:
    """Position deletes in format 2, deletion vectors in format 3."""
    flows.tier(50, 30)
    flows.sql(
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version'='{version}', "
        f"'write.delete.mode'='{mode}', 'write.update.mode'='{mode}')"
    )
    before = len(read(flows))
    flows.sql("DELETE FROM {t} WHERE kafka_offset IN (0, 3, 4, 5)")
    assert len(read(flows)) < before
    assert read(flows) == flows.rows()
    # Bounds hold for deleted rows, too.
    is_rewritten = mode == "copy-on-write"
    assert offsets_by_statistics(flows) == (
        read_offsets(flows.rows()) if is_rewritten else None
    )
    flows.sql("UPDATE {t} SET host = 'changed' WHERE kafka_offset BETWEEN 10 AND 12")
    assert flows.watermark() == {0: 50, 1: 30}
    assert read(flows) == flows.rows()
    assert "changed" in {row[2] for row in read(flows)}
    flows.tier(60, 30)
    flows.compact()
    assert flows.watermark() == {0: 60, 1: 30}
    assert read(flows) == flows.rows()


def test_schema_and_partition_changes_of_spark_are_scanned(lake: SparkLake, read: Read) -> None:
    flows = lake.create(0, 0, partition_by=["bucket(4, host)"])
    flows.tier(40, 40)
    flows.sql("ALTER TABLE {t} ADD COLUMN asn bigint")
    flows.sql("ALTER TABLE {t} ALTER COLUMN bytes TYPE bigint")
    flows.sql("ALTER TABLE {t} ADD PARTITION FIELD hour(kafka_timestamp)")
    flows.sql("ALTER TABLE {t} DROP PARTITION FIELD bucket(4, host)")
    flows.tier(60, 50)
    flows.sql("ALTER TABLE {t} ADD PARTITION FIELD truncate(2, host)")
    flows.tier(70, 60)
    assert read(flows) == flows.rows()
    assert flows.store.pin(flows.name).schema.names[-1] == "asn"


def test_compressed_metadata_is_scanned(flows: BoundTable, read: Read) -> None:
    flows.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.metadata.compression-codec'='gzip')")
    flows.tier(20, 20)
    assert flows.store.pin(flows.name).metadata_location.endswith(".gz.metadata.json")
    assert read(flows) == flows.rows()


def test_maintenance_of_spark_changes_neither_rows_nor_watermark(
    flows: BoundTable, read: Read
) -> None:
    flows.tier(20, 20)
    flows.tier(40, 30)
    rows = read(flows)
    for step in (
        flows.compact,
        lambda: flows.call("rewrite_manifests"),
        flows.expire_to_one,
        flows.compact,
        flows.expire_to_one,
    ):
        step()
        assert flows.watermark() == {0: 40, 1: 30}
        assert read(flows) == rows


def test_an_insert_of_spark_is_refused_by_name(flows: BoundTable) -> None:
    flows.tier(20, 20)
    flows.sql("INSERT INTO {t} SELECT * FROM {t} LIMIT 1")
    with pytest.raises(ForeignCommit, match="appended rows"):
        flows.store.pin(flows.name)
