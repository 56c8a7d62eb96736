"""Ranges against a measured log."""

from __future__ import annotations

import pytest

from planner.errors import LogTruncated, OffsetsExpired, TopicRecreated
from planner.offsets import OffsetRange
from planner.seam.cut import LogBounds, PartitionBounds
from planner.seam.range_check import check_ranges

BOUNDS = LogBounds(
    "cluster", "flows", "id-1", (PartitionBounds(0, 5, 9), PartitionBounds(2, 0, 3))
)


def test_ranges_inside_the_log_pass_up_to_its_very_bounds() -> None:
    check_ranges(BOUNDS, [OffsetRange(0, 5, 9), OffsetRange(2, 3, 3)], "id-1")


def test_a_start_below_the_log_start_has_expired() -> None:
    with pytest.raises(
        OffsetsExpired, match=r"flows/0: offsets 4 to 9 .* starts at 5"
    ) as caught:
        check_ranges(BOUNDS, [OffsetRange(0, 4, 9)], "id-1")
    assert caught.value.facts["log_start"] == 5


def test_a_stop_above_the_log_end_is_truncation() -> None:
    with pytest.raises(LogTruncated, match=r"flows/2: .* offset 4, but it ends at 3"):
        check_ranges(BOUNDS, [OffsetRange(0, 5, 9), OffsetRange(2, 0, 4)], "id-1")


def test_a_missing_partition_is_truncation() -> None:
    with pytest.raises(LogTruncated, match=r"flows/1: .* no such partition"):
        check_ranges(BOUNDS, [OffsetRange(1, 0, 1)], "id-1")


def test_another_topic_id_is_another_topic_whatever_its_offsets() -> None:
    with pytest.raises(TopicRecreated, match=r"has id id-1, .* measured on id id-0"):
        check_ranges(BOUNDS, [OffsetRange(0, 5, 9)], "id-0")
