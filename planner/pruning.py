"""Decides which files of a snapshot a statement can leave out, by their columns' statistics.

A file is left out only if it surely has no row that makes every condition of an alternative true; an unknown
value keeps it. The rules are those of the Iceberg spec (Appendix D and "Column metrics"): bounds leave
out nulls and NaN, bounds of text and bytes may be shortened outwards, counts may be missing. NaN is the
largest number, as in DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Operator = Literal[
    "=", "<", "<=", ">", ">=", "between", "in", "starts with", "is null", "is not null"
]


@dataclass(frozen=True, slots=True)
class Condition:
    """A column, an operator and constants of the column's type: none for the null tests, several for ``in``.

    ``between`` has two, both inclusive. Constants are neither null nor NaN.
    """

    column: str
    operator: Operator
    values: tuple[pa.Scalar, ...] = ()


#: A row is wanted when all conditions of one alternative hold. No conditions: every row is.
ScanFilter: TypeAlias = tuple[tuple[Condition, ...], ...]
EVERYTHING: ScanFilter = ((),)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Statistics of one column in each of several files; null where unknown.

    ``lower`` and ``upper`` (inclusive) bound the values that are neither null nor NaN. ``nulls`` and ``nans``
    count values, ``rows`` the rows of the file.
    """

    lower: pa.Array
    upper: pa.Array
    nulls: pa.Array
    nans: pa.Array
    rows: pa.Array

    @classmethod
    def exact(cls, values: pa.Array) -> Bounds:
        """The column has one value in each file, null or not: a partition value."""
        nans = pa.repeat(0, len(values))
        if pa.types.is_floating(values.type):
            nans = pc.fill_null(pc.is_nan(values), fill_value=False).cast(pa.int64())
        nulls = values.is_null().cast(pa.int64())
        return cls(values, values, nulls, nans, pa.repeat(1, len(values)))

    @classmethod
    def joined(cls, parts: Sequence[Bounds]) -> Bounds:
        return cls(
            *(
                pa.concat_arrays([getattr(part, name) for part in parts])
                for name in ("lower", "upper", "nulls", "nans", "rows")
            )
        )


def prune(
    rows: ScanFilter, bounds_of: Callable[[Condition], Iterable[tuple[Bounds, Condition]]]
) -> pa.BooleanArray | None:
    """Return which files may hold a wanted row; None: all of them.

    ``bounds_of`` gives, for a condition on a column, the bounds to compare it with, each with the projected condition: on
    the column's own bounds, or on partition values through their transform.
    """
    masks = []
    for alternative in rows:
        tests = [
            may_hold(bounds, implied)
            for condition in alternative
            for bounds, implied in bounds_of(condition)
        ]
        if not tests:
            return None
        masks.append(reduce(pc.and_, tests))
    return reduce(pc.or_, masks) if masks else None


def may_hold(bounds: Bounds, condition: Condition) -> pa.BooleanArray:
    """Return, per file, whether a row of it may make the condition true. Never null."""
    if condition.operator == "is null":
        return _unless(pc.equal(bounds.nulls, 0))
    only_nulls = pc.fill_null(pc.equal(bounds.nulls, bounds.rows), fill_value=False)
    if condition.operator == "is not null":
        return pc.invert(only_nulls)
    return pc.and_not(_may_reach(bounds, condition), only_nulls)


def _may_reach(bounds: Bounds, condition: Condition) -> pa.BooleanArray:
    lower, upper, values = bounds.lower, bounds.upper, condition.values
    match condition.operator:
        case "<":
            return _unless(pc.greater_equal(lower, values[0]))
        case "<=":
            return _unless(pc.greater(lower, values[0]))
        case ">":
            return _or_nan(bounds, _unless(pc.less_equal(upper, values[0])))
        case ">=":
            return _or_nan(bounds, _unless(pc.less(upper, values[0])))
        case "between":
            return pc.and_(
                _unless(pc.less(upper, values[0])), _unless(pc.greater(lower, values[1]))
            )
        case "starts with":
            prefix = values[0]
            beyond = pc.and_not(
                pc.greater(lower, prefix), pc.starts_with(lower, prefix.as_py())
            )
            return pc.and_(_unless(pc.less(upper, prefix)), _unless(beyond))
        case _:
            between = [
                pc.and_(_unless(pc.greater(lower, value)), _unless(pc.less(upper, value)))
                for value in values
            ]
            return reduce(pc.or_, between)


def _or_nan(bounds: Bounds, reached: pa.BooleanArray) -> pa.BooleanArray:
    """Keep files that may hold NaN, which is greater than every bound."""
    if not pa.types.is_floating(bounds.upper.type):
        return reached
    return pc.or_(reached, _unless(pc.equal(bounds.nans, 0)))


def _unless(surely_not: pa.BooleanArray) -> pa.BooleanArray:
    return pc.invert(pc.fill_null(surely_not, fill_value=False))
