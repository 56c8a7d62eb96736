"""What of a table's properties the tierer's writer does not obey."""

import pytest

from planner.errors import BadBinding, UnsupportedFile
from planner.tiering.write_plan import check_properties, leading_metrics
from tests.harness.builders import FLOWS


def test_a_table_that_asks_for_encryption_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFile, match=r"net\.flows: property encryption\.key-id asks"):
        check_properties(FLOWS, {"encryption.key-id": "k1"})
    check_properties(FLOWS, {"encryption.key-id": ""})


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
        check_properties(FLOWS, {key: text})
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
    check_properties(FLOWS, properties)


def test_bounds_of_the_leading_columns_are_whole() -> None:
    assert leading_metrics() == {
        "write.metadata.metrics.default": "none",
        "write.metadata.metrics.column.kafka_partition": "full",
        "write.metadata.metrics.column.kafka_offset": "full",
        "write.metadata.metrics.column.kafka_timestamp": "full",
    }
