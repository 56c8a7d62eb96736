"""Ranges against a measured log, and deletes against the clock."""

from __future__ import annotations

import math

import pytest

from planner.errors import LogTruncated, OffsetsExpired, TombstonesExpired, TopicRecreated
from planner.offsets import OffsetRange
from planner.seam.cut import LogBounds, PartitionBounds
from planner.seam.range_check import check_deletes, check_ranges

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


@pytest.mark.parametrize(
    ("age_s", "retention_s"),
    [(0.0, 0.0), (-5.0, 60.0), (54.0, 60.0), (1e9, math.inf), (3_240.0, None)],
)
def test_deletes_are_there_for_most_of_their_time(
    age_s: float, retention_s: float | None
) -> None:
    check_deletes("lake.net.flows", "flows", age_s=age_s, retention_s=retention_s)


@pytest.mark.parametrize(
    ("age_s", "retention_s", "limit"),
    [
        (0.1, 0.0, "0 s (delete.retention.ms)"),
        (54.1, 60.0, "60 s (delete.retention.ms)"),
        (
            3_240.1,
            None,
            "3,600 s (assumed, since its settings cannot be read: grant DescribeConfigs on it)",
        ),
    ],
)
def test_deletes_that_may_be_gone_are_an_error(
    age_s: float, retention_s: float | None, limit: str
) -> None:
    with pytest.raises(TombstonesExpired) as caught:
        check_deletes("lake.net.flows", "flows", age_s=age_s, retention_s=retention_s)
    assert caught.value.message == (
        f"lake.net.flows: the last time that topic flows was surely read to its end was {age_s:,.0f} s ago, and it keeps "
        f"deletes for {limit}, of which a tenth is left to clocks: some may be gone, and their rows would stay for ever; run "
        f"`thermocline rebuild lake.net.flows`, and raise delete.retention.ms if tiering may stand as long again."
    )
    assert caught.value.facts == {"table": "lake.net.flows", "topic": "flows"}
