"""How a publish is written: by whom (each property, type and layout that is left to Spark, by its reason), with what."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from planner.schema import TIMESTAMPTZ, Column, TableSchema
from planner.tiering.layout import Layout, PartitionTerm, RowKey, RowOrder, SortTerm
from planner.tiering.triggers import ColdSurvey, TierOptions
from planner.tiering.write_plan import (
    ParquetOptions,
    PartitionColumn,
    SparkWriter,
    WritePlan,
    WritingFacts,
    plan_write,
)

SCHEMA = TableSchema(
    0,
    (
        Column(1, "at", TIMESTAMPTZ),
        Column(2, "day", pa.date32()),
        Column(3, "host", pa.string()),
        Column(4, "ratio", pa.float64()),
        Column(5, "at_ns", pa.timestamp("ns")),
        Column(6, "inner", pa.struct([pa.field("a", pa.int32())])),
        Column(10, "id", pa.uuid()),
    ),
)
OPTIONS = TierOptions(target_file_bytes=1000)
FACTS = WritingFacts(
    schema=SCHEMA,
    offsets=1,
    bytes_per_offset=1.0,
    survey=ColdSurvey(OPTIONS),
    properties={},
    partitions=(),
    sort_id=0,
    sort=(),
    parallelism=2,
    max_task_offsets=4_000_000,
    obstacle=None,
)
MIB = 1024**2
DEFAULT = ParquetOptions(
    "zstd", 3, 128 * MIB, MIB, 20_000, 2 * MIB, 1000, (), without_statistics=frozenset({10})
)


def writer(**changes: object) -> ParquetOptions | SparkWriter:
    return plan_write(replace(FACTS, **changes)).writer  # type: ignore[arg-type]


def chosen(**properties: str) -> ParquetOptions | SparkWriter:
    """Property names without ``write.parquet.``, underscores for dashes."""
    return writer(
        properties={
            f"write.parquet.{name.replace('_', '-')}": text for name, text in properties.items()
        }
    )


def test_tasks_write_unless_the_table_says_otherwise() -> None:
    assert writer() == DEFAULT
    spark = ColdSurvey(replace(OPTIONS, writer="spark"))
    assert writer(survey=spark) == SparkWriter("property thermocline.tier.writer")


def test_a_table_without_properties_gets_icebergs_defaults() -> None:
    assert writer() == DEFAULT
    others = {"write.metadata.metrics.default": "none", "commit.retry.num-retries": "1"}
    assert writer(properties=others) == DEFAULT


def test_what_arrow_can_do_as_well_is_obeyed() -> None:
    assert chosen(
        compression_level="9",
        row_group_size_bytes="10",
        page_size_bytes="4096",
        page_row_limit="7",
        dict_size_bytes="5000",
        row_group_check_min_record_count="1",
    ) == ParquetOptions("zstd", 9, 10, 4096, 7, 5000, 1000, (), DEFAULT.without_statistics)


def test_uuids_have_no_statistics_unless_the_table_says_so() -> None:
    inner = pa.struct([pa.field("u", pa.uuid(), metadata={"PARQUET:field_id": "8"})])
    added = (Column(7, "inner", inner), Column(9, "u", pa.uuid()))
    schema = replace(SCHEMA, columns=(*SCHEMA.columns[:-2], *added))
    for properties, expected in (
        ({}, {8, 9}),
        ({"u": "TRUE", "inner.u": "no"}, {8}),
        ({"host": "false", "gone": "false", "ratio": "true"}, {3, 8, 9}),
    ):
        named = {f"write.parquet.stats-enabled.column.{k}": v for k, v in properties.items()}
        options = writer(schema=schema, properties=named)
        assert isinstance(options, ParquetOptions)
        assert options.without_statistics == expected


@pytest.mark.parametrize(
    ("codec", "level", "expected"),
    [
        ("gzip", None, ("gzip", 6)),
        ("gzip", "1", ("gzip", 1)),
        ("snappy", None, ("snappy", None)),
        ("snappy", "40", ("snappy", None)),
        ("lz4_raw", None, ("lz4_raw", None)),
        ("uncompressed", None, ("none", None)),
    ],
)
def test_each_codec_has_its_own_levels(
    codec: str, level: str | None, expected: tuple[str, int | None]
) -> None:
    properties = {"write.parquet.compression-codec": codec}
    if level is not None:
        properties["write.parquet.compression-level"] = level
    options = writer(properties=properties)
    assert isinstance(options, ParquetOptions)
    assert (options.codec, options.level) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("write.parquet.compression-level", "-5"),
        ("write.parquet.compression-level", "23"),
        ("write.parquet.page-size-bytes", "1"),
        ("write.parquet.dict-size-bytes", "4095"),
        ("write.parquet.page-version", "v2"),
        ("write.parquet.bloom-filter-enabled.column.host", "true"),
        ("write.parquet.dict-encoding-enabled.column.host", "false"),
        ("write.parquet.some-day", "yes"),
    ],
)
def test_a_property_that_is_not_known_to_be_obeyed_is_left_to_spark(
    name: str, text: str
) -> None:
    assert writer(properties={name: text}) == SparkWriter(f"property {name}")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sort_id": 1}, "a sort order"),
        (
            {
                "survey": ColdSurvey(
                    replace(OPTIONS, distribution="hash"), partitioned=True, partition_values=2
                )
            },
            "rows are shuffled by partition",
        ),
        ({"obstacle": "files in another kind of store"}, "files in another kind of store"),
        (
            {"properties": {"write.object-storage.enabled": "TRUE"}},
            "paths of a location provider",
        ),
        (
            {"properties": {"write.location-provider.impl": "x.Y"}},
            "paths of a location provider",
        ),
        (
            {
                "survey": ColdSurvey(OPTIONS, partitioned=True, partition_values=None),
                "partitions": (PartitionTerm("host", 3, "identity"),),
            },
            "partitions without a count",
        ),
        (
            {"partitions": tuple(PartitionTerm(f"f{n}", 3, "identity") for n in range(5))},
            "more than 4 partition fields",
        ),
    ],
)
def test_what_only_spark_does_is_left_to_it(change: dict[str, object], reason: str) -> None:
    assert writer(**change) == SparkWriter(reason)


@pytest.mark.parametrize(
    ("source", "transform", "is_date"),
    [
        (1, "year", False),
        (1, "month", False),
        (1, "day", True),
        (1, "hour", False),
        (2, "day", True),
        (2, "month", False),
        (2, "identity", True),
        (3, "identity", False),
    ],
)
def test_partitions_that_a_task_works_out(source: int, transform: str, is_date: bool) -> None:
    options = writer(partitions=(PartitionTerm("part", source, transform),))
    assert isinstance(options, ParquetOptions)
    [column] = options.partitions
    assert column == PartitionColumn("part", source - 1, column.transform, is_date)
    assert column.transform == transform


@pytest.mark.parametrize(
    ("source", "transform"),
    [
        (3, "bucket[4]"),
        (3, "truncate[2]"),
        (3, "void"),
        (3, "day"),
        (2, "hour"),
        (1, "identity"),
        (4, "identity"),
        (5, "day"),
        (7, "identity"),  # a field of the struct
    ],
)
def test_partitions_that_spark_works_out(source: int, transform: str) -> None:
    part = PartitionTerm("part", source, transform)
    assert writer(partitions=(part,)) == SparkWriter(f"partitions by {transform} of part")


def test_a_plan_has_the_layout_and_what_spark_is_told_of_it() -> None:
    assert plan_write(FACTS) == WritePlan(
        Layout(1, "none", fanout=True),
        DEFAULT,
        {
            "write-format": "parquet",
            "compression-codec": "zstd",
            "distribution-mode": "none",
            "fanout-enabled": "true",
        },
    )
    large = replace(FACTS, offsets=9_000_000, max_task_offsets=1_000_000, parallelism=1)
    assert plan_write(large).layout.tasks == 9


def test_rows_in_an_order_of_our_own_have_the_tables_sort_order() -> None:
    plan = plan_write(
        replace(
            FACTS,
            survey=ColdSurvey(OPTIONS, partitioned=True, partition_values=None),
            partitions=(PartitionTerm("id_bucket", 10, "bucket[4]"),),
            sort_id=7,
            sort=(SortTerm(3, "identity", descending=False, nulls_first=True),),
        )
    )
    by_host = RowKey(("host",), pa.string(), "identity")
    order = RowOrder((RowKey(("id",), pa.uuid(), "bucket", 4),), (by_host,))
    assert plan.layout == Layout(1, "none", fanout=False, order=order)
    assert plan.writer == SparkWriter("a sort order")
    assert plan.spark_options["use-table-distribution-and-ordering"] == "false"
    assert plan.spark_options["output-sort-order-id"] == "7"


@pytest.mark.parametrize(
    ("codec", "written"),
    [
        (None, "zstd"),
        ("SNAPPY", "snappy"),
        ("gzip", "gzip"),
        ("lz4_raw", "lz4_raw"),
        # DuckDB does not read Hadoop's framing; Spark's runtime has no brotli.
        ("lz4", "zstd"),
        ("brotli", "zstd"),
        ("nonsense", "zstd"),
    ],
)
def test_files_are_parquet_of_a_codec_that_is_read(codec: str | None, written: str) -> None:
    properties = {"write.format.default": "orc"}
    if codec is not None:
        properties["write.parquet.compression-codec"] = codec
    options = plan_write(replace(FACTS, properties=properties)).spark_options
    assert options["write-format"] == "parquet"
    assert options["compression-codec"] == written
