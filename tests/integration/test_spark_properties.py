"""Table properties that change what a writer does: a tierer's files are read by both scans, whatever they say.

One table is altered in turn, so that each property also meets the files of those before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from connectors.iceberg.scan import planner
from planner.errors import BadBinding, FederationError, UnsupportedFile
from planner.ports import SqlRelation
from planner.seam.cut import cold_cut
from tests.fixtures.spark import BoundTable, SparkLake
from tests.harness.generated_log import Row, expected_rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

METRICS = "write.metadata.metrics"
#: What each asks for; what is left of it is told in docs/table-properties.md. ``ELSEWHERE`` is a folder of its own.
#: What stands together changes different things, so that one publish tries all of it.
PASSING: list[dict[str, str]] = [
    {
        "write.format.default": "orc",
        "write.metadata.compression-codec": "gzip",
        "write.parquet.compression-codec": "lz4",
        "write.distribution-mode": "range",
    },
    {
        "write.format.default": "avro",
        "write.object-storage.enabled": "true",
        "write.metadata.previous-versions-max": "1",
    },
    {
        "write.data.path": "ELSEWHERE/data",
        "write.metadata.path": "ELSEWHERE/metadata",
        "write.parquet.compression-codec": "snappy",
        "write.target-file-size-bytes": "1",
    },
    {f"{METRICS}.default": "none", "write.parquet.compression-codec": "brotli"},
    {
        f"{METRICS}.default": "counts",
        f"{METRICS}.column.kafka_partition": "none",
        f"{METRICS}.column.kafka_offset": "counts",
    },
    {
        "write.parquet.page-version": "v2",
        "write.spark.fanout.enabled": "true",
        "write.wap.enabled": "false",
        "write.spark.accept-any-schema": "true",
        "commit.retry.num-retries": "0",
        "commit.manifest-merge.enabled": "false",
        "history.expire.max-ref-age-ms": "1",
        "gc.enabled": "false",
    },
]
REFUSED: list[tuple[dict[str, str], type[FederationError], str]] = [
    (
        {"encryption.key-id": "k1"},
        UnsupportedFile,
        "encryption.key-id asks for encrypted files",
    ),
    ({"write.parquet.compression-level": "abc"}, BadBinding, "compression-level is 'abc'"),
    (
        {"write.parquet.page-size-bytes": "1"},
        BadBinding,
        "refuses a value of the table's write",
    ),
]


@pytest.fixture(scope="module")
def table(lake: SparkLake) -> BoundTable:
    made = lake.create(0, 0)
    made.tier(10, 10)
    return made


@pytest.fixture
def altered(
    lake: SparkLake, table: BoundTable, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[dict[str, str]]:
    # Within the catalog's roots: what lies elsewhere is read where server.catalog_roots says so.
    elsewhere = f"{lake.catalogs['lake']['warehouse']}/{tmp_path.name}"
    properties = {
        key: text.replace("ELSEWHERE", elsewhere) for key, text in request.param.items()
    }
    before = table.state().properties
    _set(table, properties)
    yield properties
    _set(table, {key: before[key] for key in properties if key in before})
    left = ", ".join(f"'{key}'" for key in properties if key not in before)
    if left:
        table.sql(f"ALTER TABLE {{t}} UNSET TBLPROPERTIES ({left})")


def _set(table: BoundTable, properties: dict[str, str]) -> None:
    pairs = ", ".join(f"'{key}' = '{text}'" for key, text in properties.items())
    if pairs:
        table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({pairs})")


def read(table: BoundTable, duck: duckdb.DuckDBPyConnection) -> list[Row]:
    """Read by our own list of files, or by the extension where a list may name none."""
    cold = cold_cut(table.store.pin(table.name)).cold
    by_extension = planner.MAX_LISTED_FILES == 0
    # With names, as lists that were worked out before are remembered.
    relation = table.store.scan(cold, names=cold.schema.names if by_extension else None)
    assert isinstance(relation, SqlRelation)
    assert not by_extension or "iceberg_scan" in relation.sql
    columns = "kafka_partition, kafka_offset, host, bytes"
    return sorted(duck.execute(f"SELECT {columns} FROM ({relation.sql})").fetchall())


def grown(table: BoundTable) -> tuple[int, int]:
    ends = table.watermark()
    return ends[0] + 10, ends[1] + 5


@pytest.mark.parametrize("altered", PASSING, indirect=True, ids=lambda value: " ".join(value))
def test_a_publish_leaves_files_that_readers_read(
    table: BoundTable,
    altered: dict[str, str],
    duck: duckdb.DuckDBPyConnection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del altered
    ends = publish_and_read(table, duck)
    monkeypatch.setattr("connectors.iceberg.scan.planner.MAX_LISTED_FILES", 0)
    assert read(table, duck) == expected_rows(*ends)


def test_a_manifest_of_zstd_is_read_by_our_own_list(
    lake: SparkLake, duck: duckdb.DuckDBPyConnection
) -> None:
    """In a table of its own: such a manifest stays, and the extension may not look at it."""
    table = lake.create(0, 0)
    table.tier(10, 10)
    _set(table, {"write.manifest.compression-codec": "zstd"})
    publish_and_read(table, duck)


def publish_and_read(table: BoundTable, duck: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Publish some rows; look at their files and read them. Return where the table ends then."""
    ends = grown(table)
    head = table.state().head
    result = table.tier(*ends)
    assert result.watermark.next.as_dict() == dict(enumerate(ends))
    for file in table.sql(
        "SELECT f.file_format, f.lower_bounds, f.upper_bounds, f.null_value_counts FROM {t}.files f "
        f"JOIN {{t}}.entries e ON e.data_file.file_path = f.file_path WHERE e.snapshot_id <> {head} "
        "AND e.snapshot_id = (SELECT max_by(snapshot_id, committed_at) FROM {t}.snapshots)"
    ):
        assert file[0] == "PARQUET"
        for value in file[1:]:
            assert {1, 2, 3} <= set(value)
        assert struct.unpack("<q", file[2][2])[0] < max(ends)
    assert read(table, duck) == expected_rows(*ends)
    return ends


@pytest.mark.parametrize(
    ("altered", "error", "text"),
    REFUSED,
    indirect=["altered"],
    ids=lambda value: str(value)[:40],
)
def test_what_cannot_be_written_is_refused_by_name(
    table: BoundTable, altered: dict[str, str], error: type[FederationError], text: str
) -> None:
    del altered
    before = table.watermark()
    with pytest.raises(error, match=text):
        table.tier(*grown(table))
    assert table.watermark() == before
    assert table.branches() == []


FOREIGN = [
    (
        {"write.format.default": "orc"},
        r"data files that are not read \(. ORC\)",
        ("rewrite_data_files", "options => map('rewrite-all', 'true')"),
    ),
    (
        {"write.delete.mode": "merge-on-read", "write.delete.format.default": "avro"},
        r"delete files that are not read \(1 AVRO\)",
        ("rewrite_position_delete_files", "options => map('rewrite-all', 'true')"),
    ),
    (
        {"write.delete.mode": "merge-on-read", "write.manifest.compression-codec": "zstd"},
        "manifests of codec zstandard",
        (
            "rewrite_data_files",
            "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')",
        ),
    ),
]


@pytest.mark.parametrize(("properties", "text", "repair"), FOREIGN)
def test_what_others_write_is_named_until_it_is_rewritten(
    lake: SparkLake,
    duck: duckdb.DuckDBPyConnection,
    properties: dict[str, str],
    text: str,
    repair: tuple[str, ...],
) -> None:
    table = lake.create(0, 0)
    table.tier(60, 40)
    _set(table, properties)
    table.sql("DELETE FROM {t} WHERE kafka_partition = 0 AND kafka_offset = 50")
    left = [row for row in expected_rows(60, 40) if row[:2] != (0, 50)]
    with pytest.raises(UnsupportedFile, match=rf"{table.name}: snapshot \d+ has {text}"):
        read(table, duck)
    # What the sentence says to do.
    keys = ", ".join(f"'{key}'" for key in properties)
    table.sql(f"ALTER TABLE {{t}} UNSET TBLPROPERTIES ({keys})")
    table.call(*repair)
    assert read(table, duck) == left
    table.tier(70, 40)
    assert read(table, duck) == sorted([*left, *expected_rows(70, 40, starts=(60, 40))])


def test_a_partition_column_that_was_widened_is_tiered_and_read(
    lake: SparkLake, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iceberg cannot narrow it again, so this is for good."""
    table = lake.create(0, 0)
    table.tier(60, 40)
    table.sql("ALTER TABLE {t} ALTER COLUMN kafka_partition TYPE bigint")
    table.tier(70, 50)
    # The resolver goes by bounds of four bytes and of eight.
    table.sql("UPDATE {t} SET host = 'changed' WHERE kafka_partition = 0 AND kafka_offset = 50")
    table.tier(80, 60)
    table.compact()
    table.tier(90, 60)
    changed = [
        (0, 50, "changed", 500) if row[:2] == (0, 50) else row for row in expected_rows(90, 60)
    ]
    assert read(table, duck) == changed
    monkeypatch.setattr("connectors.iceberg.scan.planner.MAX_LISTED_FILES", 0)
    assert read(table, duck) == changed
