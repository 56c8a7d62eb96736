"""Files that tasks write to an object store: those of Iceberg's own writer, through faults of the store, and none left behind."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.parquet as pq
import pytest

from connectors.iceberg.store import IcebergStore
from connectors.jobs.round import tier_once
from connectors.spark.catalogs import catalog_conf
from connectors.spark.metadata import identifier
from planner.errors import ColdStoreUnavailable
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.spark import BUDGET, BoundTable, SparkLake
from tests.harness.generated_log import GeneratedLog
from tests.harness.store_gateway import Fault, StoreGateway, StoreRequest

pytestmark = pytest.mark.spark

BY_SPARK = {"thermocline.tier.writer": "spark"}
ENDS = (5_000, 3_000)
#: What differs between two encodings of the same rows, in two folders.
OWN = {"file_path", "file_size_in_bytes", "column_sizes", "split_offsets", "readable_metrics"}
_NUMBERS = itertools.count(1)


@pytest.fixture
def gateway(object_store: ObjectStore) -> Iterator[StoreGateway]:
    with StoreGateway(object_store.port) as started:
        yield started


@pytest.fixture
def lake_on_s3(
    lake: SparkLake, object_store: ObjectStore, gateway: StoreGateway, tmp_path: Path
) -> Iterator[SparkLake]:
    """A lake on S3, behind the gateway."""
    with lake_on(
        lake, object_store.catalog(tmp_path) | {"s3.endpoint": gateway.endpoint}
    ) as made:
        yield made


class lake_on(closing[Any]):
    """A lake over a catalog of its own in the same Spark."""

    def __init__(self, lake: SparkLake, properties: dict[str, str]) -> None:
        # A name for each: Spark keeps what it has once opened.
        name = f"pond_{next(_NUMBERS)}"
        for key, value in catalog_conf(name, properties).items():
            lake.session.conf.set(key, value)
        self._lake = SparkLake(
            lake.session,
            {name: properties},
            IcebergStore({name: properties}),
            itertools.count(1),
            name,
        )
        super().__init__(self._lake.store)

    def __enter__(self) -> SparkLake:
        return self._lake


def tiered(table: BoundTable, ends: tuple[int, int] = ENDS) -> list[dict[str, Any]]:
    """Tier up to ``ends``, and return the metadata of the files that it added."""
    before = {file["file_path"] for file in files(table)}
    log = GeneratedLog(ends)
    tier_once(log, table.target(log), BUDGET)
    return [file for file in files(table) if file["file_path"] not in before]


def files(table: BoundTable) -> list[dict[str, Any]]:
    frame = table.session.table(f"{identifier(table.name)}.files")
    return sorted(
        (row.asDict(recursive=True) for row in frame.collect()),
        key=lambda file: str((file.get("partition"), file["lower_bounds"])),
    )


def stored(store: ObjectStore, file: dict[str, Any]) -> Path:
    parts = urlsplit(file["file_path"])
    return store.folder / parts.netloc / parts.path.lstrip("/")


def writer_of(store: ObjectStore, file: dict[str, Any]) -> str:
    return str(pq.read_metadata(stored(store, file)).created_by).partition(" ")[0]


def parquet_files(store: ObjectStore, lake_on_s3: SparkLake) -> set[Path]:
    [properties] = lake_on_s3.catalogs.values()
    bucket = store.folder / urlsplit(properties["warehouse"]).netloc
    return set(bucket.rglob("*.parquet"))


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param((), marks=pytest.mark.soak),
        ("kafka_partition", "day(kafka_timestamp)"),
    ],
)
def test_files_on_s3_are_those_of_icebergs_writer(
    lake_on_s3: SparkLake, object_store: ObjectStore, terms: tuple[str, ...]
) -> None:
    ours = lake_on_s3.create(0, 0, partition_by=terms)
    spark = lake_on_s3.create(0, 0, partition_by=terms, properties=BY_SPARK)
    if terms:
        # Tells how many partitions there are.
        for table in (ours, spark):
            tiered(table, (10, 10))
    first, second = tiered(ours), tiered(spark)
    assert {writer_of(object_store, file) for file in first} == {"parquet-cpp-arrow"}
    assert {writer_of(object_store, file) for file in second} == {"parquet-mr"}
    assert ours.rows() == spark.rows()
    assert [facts(file) for file in first] == [facts(file) for file in second]
    assert parquet_files(object_store, lake_on_s3) == {
        stored(object_store, file) for table in (ours, spark) for file in files(table)
    }


def facts(file: dict[str, Any]) -> dict[str, Any]:
    folder = unquote(file["file_path"].rpartition("/")[0].partition("/data")[2])
    return {key: value for key, value in file.items() if key not in OWN} | {"folder": folder}


def test_a_store_that_takes_a_file_at_the_third_try_gets_it(
    lake_on_s3: SparkLake, gateway: StoreGateway
) -> None:
    refused: list[str] = []

    def choose(request: StoreRequest) -> Fault | None:
        if request.method != "PUT" or not request.path.endswith(".parquet"):
            return None
        if (count := refused.count(request.path)) == 2:
            return None
        refused.append(request.path)
        return (Fault.FAILED, Fault.BUSY)[count]

    gateway.choose_fault = choose
    table = lake_on_s3.create(0, 0)
    added = tiered(table)
    assert len(refused) >= 2
    assert sum(file["record_count"] for file in added) == len(table.rows()) > 0


def test_a_store_that_refuses_files_is_named_and_the_next_round_goes_on(
    lake_on_s3: SparkLake, gateway: StoreGateway, object_store: ObjectStore
) -> None:
    table = lake_on_s3.create(0, 0)
    gateway.choose_fault = lambda request: (
        Fault.DENIED if request.method == "PUT" and ".parquet" in request.path else None
    )
    with pytest.raises(ColdStoreUnavailable, match="refuses the catalog's key") as caught:
        tiered(table)
    assert str(table.name) in caught.value.message
    assert parquet_files(object_store, lake_on_s3) == set()
    gateway.choose_fault = lambda _: None
    # Spark ends the tasks of a failed job in its own time: one may write its file meanwhile, which nobody commits.
    assert {stored(object_store, file) for file in tiered(table)} <= parquet_files(
        object_store, lake_on_s3
    )


def test_files_of_failed_attempts_are_removed_from_the_store(
    lake_on_s3: SparkLake, object_store: ObjectStore, tmp_path: Path
) -> None:
    table = lake_on_s3.create(0, 0)
    log = GeneratedLog(ENDS, fail_once=tmp_path / "failed")
    tier_once(log, table.target(log), BUDGET)
    assert {stored(object_store, file) for file in files(table)} == parquet_files(
        object_store, lake_on_s3
    )


@pytest.mark.parametrize(
    ("properties", "writer"),
    [
        ({"s3.multipart.size": "5242880"}, "parquet-cpp-arrow"),
        # What the store is to do with the files is for who knows how to ask it.
        ({"s3.acl": "private"}, "parquet-mr"),
        pytest.param({"s3.write.tags.team": "one"}, "parquet-mr", marks=pytest.mark.soak),
        (
            {
                "client.factory": "org.apache.iceberg.aws.AwsClientFactories$DefaultAwsClientFactory"
            },
            "parquet-mr",
        ),
    ],
)
def test_what_arrow_cannot_ask_a_store_for_is_left_to_icebergs_writer(
    lake: SparkLake,
    object_store: ObjectStore,
    tmp_path: Path,
    properties: dict[str, str],
    writer: str,
) -> None:
    with lake_on(lake, object_store.catalog(tmp_path) | properties) as lake_on_s3:
        added = tiered(lake_on_s3.create(0, 0))
        assert {writer_of(object_store, file) for file in added} == {writer}
