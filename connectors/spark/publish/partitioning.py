"""Shares Arrow rows out by partition, and writes a partition as JSON and as a path.

Iceberg spec, "Partition Transforms" and "JSON single-value serialization"; paths as ``PartitionSpec.partitionToPath``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote_plus

import pyarrow as pa
import pyarrow.compute as pc

from planner.epoch_units import civil
from planner.tiering.write_plan import PartitionColumn

Value = str | int | bool | None
#: The values of one partition in the order of the spec's fields; a date is its days since 1970.
Key = tuple[Value, ...]
_US_PER_HOUR = 3_600_000_000
_HOURS_PER_DAY = 24
_MONTHS_PER_YEAR = 12
_EPOCH_YEAR = 1970
#: Of the Gregorian calendar, after which it begins again. Arrow's years end with 32,767, Python's with 9,999.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
#: The last year that ISO dates write without a sign.
_LAST_PLAIN_YEAR = 9999


def by_partition(
    rows: pa.RecordBatch, columns: Sequence[PartitionColumn]
) -> Iterator[tuple[Key, pa.RecordBatch]]:
    """Yield the rows of each partition, in their order. Rows that are all of one partition are not copied."""
    if not rows.num_rows:
        return
    if not columns:
        yield (), rows
        return
    encoded = [
        transformed(rows.column(column.index), column).dictionary_encode("encode")
        for column in columns
    ]
    codes: Any = pa.scalar(0, pa.int64())
    for values in encoded:
        # Checked: two partitions must never get one code.
        codes = pc.add_checked(
            pc.multiply_checked(codes, len(values.dictionary)), values.indices.cast(pa.int64())
        )
    present = pc.unique(codes).to_pylist()
    for code in present:
        key: list[Value] = []
        rest = code
        for values in reversed(encoded):
            rest, index = divmod(rest, len(values.dictionary))
            key.append(values.dictionary[index].as_py())
        chosen = rows if len(present) == 1 else rows.filter(pc.equal(codes, code))
        yield tuple(reversed(key)), chosen


def transformed(values: pa.Array, column: PartitionColumn) -> pa.Array:
    """Return the partition's value of each row; that of a null is null."""
    kind = values.type
    is_date = pa.types.is_date32(kind)
    if column.transform == "identity":
        return values.cast(pa.int32()) if is_date else values
    if column.transform == "hour":
        return _floored(values.cast(pa.int64()), _US_PER_HOUR)
    days = (
        values.cast(pa.int32())
        if is_date
        else _floored(values.cast(pa.int64()), _US_PER_HOUR * _HOURS_PER_DAY)
    )
    if column.transform == "day":
        return days
    days = days.cast(pa.int64())
    cycles = _floored(days, _CYCLE_DAYS)
    rest = pc.subtract(days, pc.multiply(cycles, _CYCLE_DAYS))
    plain = rest.cast(pa.int32()).cast(pa.date32())
    years = pc.add(pc.subtract(pc.year(plain), _EPOCH_YEAR), pc.multiply(cycles, _CYCLE_YEARS))
    if column.transform == "year":
        return years
    return pc.add(pc.multiply(years, _MONTHS_PER_YEAR), pc.subtract(pc.month(plain), 1))


def _floored(numbers: pa.Array, divisor: int) -> pa.Array:
    quotients = pc.divide(numbers, divisor)
    is_above = pc.greater(pc.multiply(quotients, divisor), numbers)
    return pc.subtract(quotients, is_above.cast(pa.int64()))


def partition_json(key: Key, columns: Sequence[PartitionColumn]) -> list[Value]:
    """Return the values of Iceberg's JSON form."""
    return [
        _iso_date(value) if column.is_date and isinstance(value, int) else value
        for value, column in zip(key, columns, strict=True)
    ]


def partition_path(key: Key, columns: Sequence[PartitionColumn]) -> str:
    """Return the folders of a partition, without slashes around them; nothing without partitions."""
    return "/".join(
        f"{_quoted(column.name)}={_quoted(_text(value, column))}"
        for value, column in zip(key, columns, strict=True)
    )


def _text(value: Value, column: PartitionColumn) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    match column.transform:
        case "year":
            return f"{_EPOCH_YEAR + value:04d}"
        case "month":
            years, month = divmod(value, _MONTHS_PER_YEAR)
            return f"{_EPOCH_YEAR + years:04d}-{month + 1:02d}"
        case "hour":
            days, hour = divmod(value, _HOURS_PER_DAY)
            return f"{_date(days)}-{hour:02d}"
    return _date(value) if column.is_date else str(value)


def _quoted(text: str) -> str:
    """As ``java.net.URLEncoder`` does."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def _date(days: int) -> str:
    year, month, day = civil(days)
    return f"{year:04d}-{month:02d}-{day:02d}"


def _iso_date(days: int) -> str:
    """As ``java.time.LocalDate`` writes and reads it."""
    year, month, day = civil(days)
    sign = "+" if year > _LAST_PLAIN_YEAR else "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}"
