"""Who writes a table's files: each property, type and layout that is left to Iceberg's Spark writer, by its reason."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from planner.schema import TIMESTAMPTZ, Column, TableSchema
from planner.tiering.layout import Layout, PartitionTerm
from planner.tiering.triggers import TierOptions
from planner.tiering.write_plan import (
    ParquetOptions,
    PartitionColumn,
    SparkWriter,
    WritingFacts,
    choose_writer,
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
    ),
)
FACTS = WritingFacts(
    options=TierOptions(writer="tasks", target_file_bytes=1000),
    properties={},
    schema=SCHEMA,
    partitions=(),
    is_sorted=False,
    layout=Layout(1, "none", fanout=True),
    obstacle=None,
    codec="zstd",
)
MIB = 1024**2
DEFAULT = ParquetOptions("zstd", 3, 128 * MIB, MIB, 20_000, 2 * MIB, 1000, ())


def chosen(**properties: str) -> ParquetOptions | SparkWriter:
    """Property names without ``write.parquet.``, underscores for dashes."""
    return choose_writer(
        replace(
            FACTS,
            properties={
                f"write.parquet.{name.replace('_', '-')}": text
                for name, text in properties.items()
            },
        )
    )


def test_tasks_write_unless_the_table_says_otherwise() -> None:
    options = TierOptions(target_file_bytes=1000)
    assert choose_writer(replace(FACTS, options=options)) == DEFAULT
    spark = replace(options, writer="spark")
    assert choose_writer(replace(FACTS, options=spark)) == SparkWriter(
        "property thermocline.tier.writer"
    )


def test_a_table_without_properties_gets_icebergs_defaults() -> None:
    assert choose_writer(FACTS) == DEFAULT
    others = {"write.metadata.metrics.default": "none", "commit.retry.num-retries": "1"}
    assert choose_writer(replace(FACTS, properties=others)) == DEFAULT


def test_what_arrow_can_do_as_well_is_obeyed() -> None:
    assert chosen(
        compression_level="9",
        row_group_size_bytes="10",
        page_size_bytes="4096",
        page_row_limit="7",
        dict_size_bytes="5000",
        row_group_check_min_record_count="1",
    ) == ParquetOptions("zstd", 9, 10, 4096, 7, 5000, 1000, ())


def test_uuids_have_no_statistics_unless_the_table_says_so() -> None:
    inner = pa.struct([pa.field("u", pa.uuid(), metadata={"PARQUET:field_id": "8"})])
    added = (Column(7, "inner", inner), Column(9, "u", pa.uuid()))
    schema = replace(SCHEMA, columns=(*SCHEMA.columns[:-1], *added))
    for properties, expected in (
        ({}, {8, 9}),
        ({"u": "TRUE", "inner.u": "no"}, {8}),
        ({"host": "false", "gone": "false", "ratio": "true"}, {3, 8, 9}),
    ):
        named = {f"write.parquet.stats-enabled.column.{k}": v for k, v in properties.items()}
        options = choose_writer(replace(FACTS, schema=schema, properties=named))
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
    properties = {} if level is None else {"write.parquet.compression-level": level}
    options = choose_writer(replace(FACTS, codec=codec, properties=properties))
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
    facts = replace(FACTS, properties={name: text})
    assert choose_writer(facts) == SparkWriter(f"property {name}")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"is_sorted": True}, "a sort order"),
        (
            {"layout": Layout(2, "hash", fanout=False)},
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
                "layout": Layout(1, "none", fanout=False),
                "partitions": (PartitionTerm("host", 3, "identity"),),
            },
            "partitions nobody has counted",
        ),
        (
            {"partitions": tuple(PartitionTerm(f"f{n}", 3, "identity") for n in range(5))},
            "more than 4 partition fields",
        ),
    ],
)
def test_what_only_spark_does_is_left_to_it(change: dict[str, object], reason: str) -> None:
    assert choose_writer(replace(FACTS, **change)) == SparkWriter(reason)  # type: ignore[arg-type]


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
    options = choose_writer(
        replace(FACTS, partitions=(PartitionTerm("part", source, transform),))
    )
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
    facts = replace(FACTS, partitions=(PartitionTerm("part", source, transform),))
    assert choose_writer(facts) == SparkWriter(f"partitions by {transform} of part")
