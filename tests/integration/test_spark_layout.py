"""How tiered rows lie in files: every transform, both format versions, few files, and the log read once."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.jobs.round import tier_once
from planner.offsets import OffsetRange
from planner.ports import Log, TopicSource
from tests.fixtures.spark import BUDGET, BoundTable, SparkLake
from tests.harness.generated_log import GeneratedLog, expected_rows

pytestmark = pytest.mark.spark


@dataclass(frozen=True)
class CountedLog(GeneratedLog):
    """Leaves a file per range that was fetched, in executors too."""

    folder: Path = Path()

    def fetch(
        self, source: TopicSource, ranges: Sequence[OffsetRange], **options: Any
    ) -> Generator[pa.RecordBatch, None, None]:
        for span in ranges:
            name = f"{span.partition}-{span.start}-{span.stop}-{uuid.uuid4()}"
            (self.folder / name).touch()
        yield from super().fetch(source, ranges, **options)

    def fetched(self) -> list[tuple[int, ...]]:
        names = (path.name.split("-")[:3] for path in self.folder.iterdir())
        return sorted(tuple(int(part) for part in name) for name in names)

    def opened(self) -> contextlib.AbstractContextManager[Log]:
        return contextlib.nullcontext(self)


def files(flows: BoundTable) -> list[Path]:
    return [
        Path(unquote(urlsplit(row["file_path"]).path))
        for row in flows.sql("SELECT file_path FROM {t}.files")
    ]


@pytest.mark.parametrize(
    ("distribution", "sort_by"),
    [
        ("none", ()),
        ("hash", ("bytes desc",)),
        pytest.param("auto", ("bytes desc",), marks=pytest.mark.soak),
        pytest.param("none", ("bytes desc",), marks=pytest.mark.soak),
        pytest.param("hash", (), marks=pytest.mark.soak),
        pytest.param("auto", (), marks=pytest.mark.soak),
    ],
)
def test_the_log_is_read_once(
    lake: SparkLake, tmp_path: Path, distribution: str, sort_by: tuple[str, ...]
) -> None:
    flows = lake.create(
        *(0, 0),
        partition_by=["hour(kafka_timestamp)"],
        sort_by=sort_by,
        properties={
            "thermocline.tier.distribution": distribution,
            # What Iceberg's own writer would do by default for a sorted table: sample the log first.
            "write.distribution-mode": "range",
        },
    )
    log = CountedLog((9_000, 4_000), folder=tmp_path)
    tier_once(log, flows.target(log), BUDGET)
    assert flows.rows() == expected_rows(9_000, 4_000)
    fetched = log.fetched()
    for partition, end in enumerate((9_000, 4_000)):
        ranges = [items[1:] for items in fetched if items[0] == partition]
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == end


TRANSFORMS = [
    ("year(kafka_timestamp)", "bucket(2, host)"),
    ("month(kafka_timestamp)", "truncate(8, host)"),
    ("day(kafka_timestamp)", "kafka_partition"),
    ("hour(kafka_timestamp)", "truncate(20000, bytes)"),
]


# A soak has every transform in both versions.
@pytest.mark.parametrize(
    ("version", "terms"),
    [
        *((2 + number % 2, terms) for number, terms in enumerate(TRANSFORMS)),
        *(
            pytest.param(3 - number % 2, terms, marks=pytest.mark.soak)
            for number, terms in enumerate(TRANSFORMS)
        ),
    ],
)
def test_every_transform_in_both_versions(
    lake: SparkLake, version: int, terms: tuple[str, ...]
) -> None:
    flows = lake.create(0, 0, partition_by=terms, sort_by=["host"])
    if version == 3:
        flows.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    flows.tier(3_000, 1_000)
    flows.tier(4_500, 4_000)
    assert flows.rows() == expected_rows(4_500, 4_000)
    value = flows.sql("SELECT count(DISTINCT partition) AS n FROM {t}.files")[0]["n"]
    assert value > 1 or terms[0].startswith("month")
    for file in files(flows):
        hosts = pq.read_table(file, columns=["host"])["host"].to_pylist()
        assert hosts == sorted(hosts)


def test_a_publish_leaves_one_file_in_each_partition_it_touches(lake: SparkLake) -> None:
    flows = lake.create(0, 0, partition_by=["truncate(5000, bytes)"])
    # Ten a row: four partitions. The second publish is late data for all of them.
    flows.tier(2_000, 0)
    assert len(files(flows)) == 4
    flows.tier(2_000, 2_000)
    assert len(files(flows)) == 8
    assert flows.sql("SELECT count(DISTINCT partition) AS n FROM {t}.files")[0]["n"] == 4
    assert flows.rows() == expected_rows(2_000, 2_000)


def test_the_partitions_of_a_live_table_change(lake: SparkLake) -> None:
    flows = lake.create(0, 0, partition_by=["day(kafka_timestamp)"])
    flows.tier(500, 500)
    flows.sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, host)")
    flows.tier(1_000, 800)
    flows.sql("ALTER TABLE {t} DROP PARTITION FIELD kafka_timestamp_day")
    flows.tier(1_500, 900)
    flows.sql("ALTER TABLE {t} WRITE ORDERED BY bytes DESC")
    flows.tier(2_000, 900)
    assert flows.rows() == expected_rows(2_000, 900)
    specs = {row["spec_id"] for row in flows.sql("SELECT spec_id FROM {t}.files")}
    assert len(specs) == 3
    flows.compact()
    flows.tier(2_100, 1_000)
    assert flows.rows() == expected_rows(2_100, 1_000)


@pytest.mark.parametrize(("codec", "expected"), [(None, "ZSTD"), ("snappy", "SNAPPY")])
def test_files_are_compressed_as_the_table_says(
    lake: SparkLake, codec: str | None, expected: str
) -> None:
    properties = {} if codec is None else {"write.parquet.compression-codec": codec}
    flows = lake.create(0, properties=properties)
    flows.tier(500)
    [file] = files(flows)
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == expected


def test_files_end_at_their_target_size(lake: SparkLake) -> None:
    flows = lake.create(
        0,
        properties={
            # Looked at every thousand rows.
            "write.target-file-size-bytes": "5000",
            "write.parquet.row-group-size-bytes": "4096",
        },
    )
    flows.tier(2_000)
    assert len(files(flows)) > 1
    assert all(file.stat().st_size < 60_000 for file in files(flows))
    assert flows.rows() == expected_rows(2_000)


def test_many_partitions_are_shuffled_so_that_each_has_one_file(lake: SparkLake) -> None:
    flows = lake.create(0, 0, partition_by=["bucket(24, host)"])
    flows.tier(2_000, 2_000)
    before = len(files(flows))
    assert before >= 24
    # The publish before told how many partitions there are.
    flows.tier(4_000, 4_000)
    assert len(files(flows)) - before == 24
    assert flows.rows() == expected_rows(4_000, 4_000)
