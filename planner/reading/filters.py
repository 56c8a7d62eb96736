"""Which rows of a table can matter to a statement: by statistics of files, by ranges of offsets, by the paths of files.

A file is left out only if it surely has no row that makes every condition of an alternative true; an unknown value
keeps it. The rules are those of the Iceberg spec (Appendix D and "Column metrics"): bounds leave out nulls and NaN,
bounds of text and bytes may be shortened outwards, counts may be missing. NaN is the largest number, as in DuckDB.

A range of the log is one file with exact bounds of partition and offset, which every record has.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP, OFFSET_COLUMNS
from planner.offsets import OffsetRange
from planner.statement.conditions import Operator


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
    def joined(cls, blocks: Sequence[Bounds]) -> Bounds:
        return cls(
            *(
                pa.concat_arrays([getattr(block, name) for block in blocks])
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


def needed_ranges(ranges: Sequence[OffsetRange], rows: ScanFilter) -> tuple[OffsetRange, ...]:
    """Return the ranges that may hold a wanted record, whole."""
    is_bound = all(
        any(condition.column in OFFSET_COLUMNS for condition in alternative)
        for alternative in rows
    )
    if not (ranges and is_bound):
        return tuple(ranges)
    none = pa.repeat(0, len(ranges))
    bounds = {
        KAFKA_PARTITION: Bounds.exact(
            pa.array([item.partition for item in ranges], pa.int32())
        ),
        KAFKA_OFFSET: Bounds(
            lower=pa.array([item.start for item in ranges], pa.int64()),
            upper=pa.array([item.stop - 1 for item in ranges], pa.int64()),
            nulls=none,
            nans=none,
            rows=pa.array([len(item) for item in ranges], pa.int64()),
        ),
    }

    def bounds_of(condition: Condition) -> Iterator[tuple[Bounds, Condition]]:
        if condition.column in bounds:
            yield bounds[condition.column], condition

    mask = prune(rows, bounds_of)
    keeps = [True] * len(ranges) if mask is None else mask.to_pylist()
    return tuple(item for item, keep in zip(ranges, keeps, strict=True) if keep)


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def rows_within(sql: str, ranges: Sequence[OffsetRange], since_us: int | None = None) -> str:
    """Return a SELECT of the rows of ``sql`` in ``ranges`` (one a partition, at least one).

    ``since_us``: and of that time or later, microseconds since 1970.
    """
    spans = ", ".join(
        f"({span.partition}::INTEGER, {span.start}::BIGINT, {span.stop}::BIGINT)"
        for span in ranges
    )
    # The outermost bounds once more, as constants: statistics of files are compared with those.
    conditions = [
        f"rows.{KAFKA_OFFSET} >= {min(span.start for span in ranges)}",
        f"rows.{KAFKA_OFFSET} < {max(span.stop for span in ranges)}",
    ]
    if since_us is not None:
        since = _EPOCH + dt.timedelta(microseconds=since_us)
        conditions.append(f"rows.{KAFKA_TIMESTAMP} >= TIMESTAMPTZ '{since.isoformat()}'")
    return (
        f"SELECT rows.* FROM (\n{sql}\n) AS rows "  # noqa: S608 - our SQL and numbers
        f"JOIN (VALUES {spans}) AS span(part, start, stop) ON rows.{KAFKA_PARTITION} = span.part "
        f"AND rows.{KAFKA_OFFSET} >= span.start AND rows.{KAFKA_OFFSET} < span.stop "
        f"WHERE {' AND '.join(conditions)}"
    )


def in_ranges(ranges: Sequence[OffsetRange], since_us: int | None = None) -> pc.Expression:
    """Return the condition of ``rows_within`` for rows in Arrow."""
    partition, offset = pc.field(KAFKA_PARTITION), pc.field(KAFKA_OFFSET)
    inside = pc.scalar(False)
    for span in ranges:
        inside |= (partition == span.partition) & (offset >= span.start) & (offset < span.stop)
    if since_us is not None:
        since = pa.scalar(since_us, pa.timestamp("us", tz="UTC"))
        inside &= pc.field(KAFKA_TIMESTAMP) >= since
    return inside


#: A file's position, by its path, is below this.
POSITIONS = 1 << 64


@dataclass(frozen=True, slots=True)
class FileSpan:
    """The files whose position is in ``[start, stop)``."""

    start: int = 0
    stop: int = POSITIONS

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop <= POSITIONS:
            raise ValueError(f"not a span of positions: [{self.start}, {self.stop})")

    @property
    def is_whole(self) -> bool:
        """Whether it has all files, also those that cannot be listed."""
        return (self.start, self.stop) == (0, POSITIONS)

    @property
    def is_empty(self) -> bool:
        return self.start == self.stop

    def has(self, path: str) -> bool:
        return self.start <= position_of(path) < self.stop


EVERY_FILE = FileSpan()
NO_FILE = FileSpan(0, 0)


def position_of(path: str) -> int:
    """Return a number that depends on a file's path alone, the same at every replica."""
    return int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest())
