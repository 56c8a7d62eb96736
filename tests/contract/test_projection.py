"""What a condition says of a partition value: whatever matches the one matches the other."""

from __future__ import annotations

import decimal
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import transforms
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType

from connectors.iceberg.scan.projection import (
    bound_type,
    on_bounds,
    on_partition,
    partition_bounds,
    partition_type,
)
from connectors.iceberg.types import arrow_type
from planner.reading.filters import Bounds, Condition, may_hold
from planner.statement.conditions import Operator
from tests.harness.cold_tables import POOLS, TRANSFORMS, TYPES

PAIRS = [
    (kind, transform)
    for kind, transforms_of in TRANSFORMS.items()
    for transform in transforms_of
]


def scalars(kind: str) -> list[pa.Scalar]:
    result = arrow_type(TYPES[kind])
    assert result is not None
    stored = [getattr(value, "bytes", value) for value in POOLS[kind]]
    return list(pa.array(stored, result))


def conditions(kind: str) -> Iterator[Condition]:
    values = scalars(kind)
    operators: tuple[Operator, ...] = ("=", "<", "<=", ">", ">=")
    for operator, value in itertools.product(operators, values):
        yield Condition("c", operator, (value,))
    for pair in itertools.product(values[:5], values[-4:]):
        yield Condition("c", "between", pair)
        yield Condition("c", "in", pair)
    if kind == "s":
        yield from (Condition("c", "starts with", (value,)) for value in values)


@pytest.mark.parametrize(("kind", "transform"), PAIRS)
def test_a_row_that_matches_is_in_a_partition_that_matches(
    kind: str, transform: transforms.Transform[Any, Any]
) -> None:
    source, column = TYPES[kind], arrow_type(TYPES[kind])
    target = partition_type(transform, source)
    assert target is not None
    values = pa.array(scalars(kind), column)
    apply = transform.pyarrow_transform(source)
    partitions = Bounds.exact(pa.array(apply(values)).cast(target))
    exact = Bounds.exact(values.cast(bound_type(column))) if kind != "u" else None
    said = 0
    for condition in conditions(kind):
        result = on_partition(condition, transform, source, target)
        if result is None:
            continue
        may = may_hold(partitions, result).to_pylist()
        said += may.count(False)
        if exact is None:
            expected = [
                value.as_py() in [entry.as_py() for entry in condition.values]
                for value in values
            ]
        else:
            expected = may_hold(exact, on_bounds(condition)).to_pylist()
        for value, is_expected, may_be in zip(values, expected, may, strict=True):
            assert may_be or not is_expected, (condition, value)
    assert said, "nothing was ever left out"


def test_nothing_follows_from_transforms_that_are_not_known() -> None:
    void: transforms.Transform[Any, Any] = transforms.VoidTransform()
    for transform in (void, transforms.UnknownTransform("later")):
        assert partition_type(transform, LongType()) is None


def test_writers_that_rounded_times_before_1970_up_are_allowed_for() -> None:
    before = pa.scalar(-1, pa.int64()).cast(pa.timestamp("us"))
    kind = pa.date32()
    for operator in ("=", "<=", "between"):
        request = Condition(
            "c", operator, (before, before) if operator == "between" else (before,)
        )
        result = on_partition(request, transforms.DayTransform(), TYPES["ts"], kind)
        assert result is not None
        days = Bounds.exact(pa.array([-1, 0, 1], pa.int32()).cast(kind))
        assert may_hold(days, result).to_pylist()[:2] == [True, True]
        assert not may_hold(days, result).to_pylist()[2]


@pytest.mark.parametrize(
    ("source", "kind"), [(IntegerType(), pa.int32()), (LongType(), pa.int64())], ids=str
)
def test_partitions_whose_truncation_overflowed_may_hold_the_least_numbers(
    source: IcebergType, kind: pa.DataType
) -> None:
    """As Iceberg's Java library truncates: ``TruncateUtil`` overflows."""
    greatest = (1 << kind.bit_width - 1) - 1
    transform: transforms.Transform[Any, Any] = transforms.TruncateTransform(10)
    values = pa.array([0, greatest - 1, None], kind)
    bounds = partition_bounds(Bounds.exact(values), transform, kind)
    below = on_partition(Condition("c", "<", (pa.scalar(-5, kind),)), transform, source, kind)
    assert below is not None
    assert may_hold(bounds, below).to_pylist() == [False, True, False]
    least = Condition("c", "=", (pa.scalar(-greatest - 1, kind),))
    assert on_partition(least, transform, source, kind) is None


def test_a_column_that_was_widened_has_partitions_from_before() -> None:
    values = Bounds.exact(pa.array([2**31 - 2, 2**31 + 2], pa.int64()))
    bounds = partition_bounds(values, transforms.TruncateTransform(10), pa.int64())
    assert bounds.lower.to_pylist() == [None, 2**31 + 2]


def test_a_decimal_whose_truncation_is_of_no_partition_is_looked_for_everywhere() -> None:
    kind = pa.decimal128(9, 2)
    least = Condition("c", "=", (pa.scalar(decimal.Decimal("-9999999.99"), kind),))
    transform: transforms.Transform[Any, Any] = transforms.TruncateTransform(10)
    assert on_partition(least, transform, DecimalType(9, 2), kind) is None
