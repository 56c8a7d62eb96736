"""Conditions on partition and offset leave out parts of a tail; a reading rate tells when the rest is there."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.offsets import OffsetRange
from planner.reading.filters import EVERYTHING, Condition, ScanFilter, needed_ranges
from planner.statement.conditions import Operator
from proxy.tail.follower import ReadingRate

RANGES = (OffsetRange(0, 5, 9), OffsetRange(1, 0, 100), OffsetRange(3, 50, 60))


def partition(operator: Operator, *values: int) -> Condition:
    return Condition(
        "kafka_partition", operator, tuple(pa.scalar(n, pa.int32()) for n in values)
    )


def offset(operator: Operator, *values: int) -> Condition:
    return Condition("kafka_offset", operator, tuple(pa.scalar(n, pa.int64()) for n in values))


OTHER = Condition("n", "=", (pa.scalar(1, pa.int64()),))


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        (EVERYTHING, [0, 1, 3]),
        (((partition("=", 1),),), [1]),
        (((partition("in", 0, 3), OTHER),), [0, 3]),
        (((partition("=", 7),),), []),
        (((OTHER,),), [0, 1, 3]),
        (((partition("=", 1),), (OTHER,)), [0, 1, 3]),
        (((partition("=", 1),), (partition("=", 0),)), [0, 1]),
        (((offset(">=", 60),),), [1]),
        (((offset(">", 59),),), [1]),
        (((offset(">=", 59),),), [1, 3]),
        (((offset("<", 5),),), [1]),
        (((offset("<=", 5),),), [0, 1]),
        (((offset("between", 9, 49),),), [1]),
        (((offset("is null"),),), []),
        (((offset("is not null"),),), [0, 1, 3]),
    ],
)
def test_ranges_that_cannot_hold_a_row_are_left_out(rows: ScanFilter, left: list[int]) -> None:
    assert [item.partition for item in needed_ranges(RANGES, rows)] == left


def test_no_ranges_are_none() -> None:
    assert needed_ranges((), ((partition("=", 1),),)) == ()


def test_a_rate_is_that_of_the_last_steps() -> None:
    rate = ReadingRate()
    assert rate.per_s(0.0) is None
    rate.note(1_000, 10.0)
    assert rate.per_s(10.0) is None
    rate.note(500, 11.0)
    rate.note(300, 12.0)
    assert rate.per_s(12.5) == 400
    assert rate.per_s(40.9) == 300
    assert rate.per_s(50.0) is None
