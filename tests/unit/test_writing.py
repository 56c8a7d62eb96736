"""What of a table's properties the tierer's writer does not obey."""

import pytest

from planner.errors import BadBinding, UnsupportedFile
from planner.tiering.write_plan import leading_metrics, write_options
from tests.harness.builders import FLOWS


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
    assert write_options(FLOWS, properties) == {
        "write-format": "parquet",
        "compression-codec": written,
    }


def test_a_table_that_asks_for_encryption_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFile, match=r"net\.flows: property encryption\.key-id asks"):
        write_options(FLOWS, {"encryption.key-id": "k1"})
    assert write_options(FLOWS, {"encryption.key-id": ""})


@pytest.mark.parametrize(
    ("key", "text", "above"),
    [
        ("write.parquet.compression-level", "abc", ""),
        ("write.parquet.row-group-size-bytes", "0", " above 0"),
        ("write.parquet.page-row-limit", "-1", " above 0"),
        ("commit.retry.num-retries", "x", ""),
        ("commit.manifest.min-count-to-merge", "8.0", ""),
        ("write.metadata.previous-versions-max", "", ""),
    ],
)
def test_a_number_that_is_none_is_refused_by_name(key: str, text: str, above: str) -> None:
    with pytest.raises(BadBinding) as caught:
        write_options(FLOWS, {key: text})
    assert caught.value.message == (
        f"{FLOWS}: property {key} is {text!r}; it must be a whole number{above}."
    )


def test_numbers_pass() -> None:
    properties = {
        "write.parquet.compression-level": "-5",
        "write.parquet.row-group-size-bytes": "1024",
        "commit.retry.num-retries": "0",
        "write.parquet.bloom-filter-enabled.column.x-bytes": "7",
        "write.parquet.page-version": "v2",
        "owner.limit": "none",
    }
    assert write_options(FLOWS, properties)


def test_bounds_of_the_leading_columns_are_whole() -> None:
    assert leading_metrics() == {
        "write.metadata.metrics.default": "none",
        "write.metadata.metrics.column.kafka_partition": "full",
        "write.metadata.metrics.column.kafka_offset": "full",
        "write.metadata.metrics.column.kafka_timestamp": "full",
    }
