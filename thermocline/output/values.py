"""A column's values as Python's, and as text where Python has no such value: never another one.

Python's times end with the year 9999 and have no nanoseconds; Iceberg's and the engine's go on. Arrow's own text of such a
time is another year in some types (``timestamp[us, UTC]``, pyarrow 26).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from planner.epoch_units import civil

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_S = 86_400
#: Days since 1970 of the first of year 1, and of the first of year 10000.
_FIRST_DAY, _END_DAY = -719_162, 2_932_897
#: The engine's infinite times: the largest number of their type, and its negative.
_INFINITE = {32: 2**31 - 1, 64: 2**63 - 1}


def plain_values(column: pa.Array) -> list[Any]:
    """Return a column's values as Python's; a time that Python does not have, as text."""
    if _has_nanoseconds(column.type) or is_far(column):
        return [_value(each) for each in column]
    values: list[Any] = column.to_pylist()
    return values


def is_far(column: pa.Array) -> bool:
    """Return whether a time in it, at any depth, is none of Python's: of another year, or 24:00."""
    kind = column.type
    if pa.types.is_struct(kind):
        return any(map(is_far, column.flatten()))
    if pa.types.is_map(kind):
        return is_far(column.keys) or is_far(column.items)
    if _is_list(kind):
        return is_far(column.flatten())
    bounds = _bounds(kind)
    if bounds is None:
        return False
    numbers = column.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    least, most = pc.min_max(numbers).values()
    return least.is_valid and not bounds[0] <= least.as_py() <= most.as_py() < bounds[1]


def _bounds(kind: pa.DataType) -> tuple[int, int] | None:
    """The numbers of a type that Python's times have, the second exclusive; None for a type that is no time."""
    if pa.types.is_date32(kind):
        return _FIRST_DAY, _END_DAY
    if pa.types.is_timestamp(kind):
        per_day = _DAY_S * _PER_SECOND[kind.unit]
        # A zone may move a time by a day.
        margin = 0 if kind.tz in (None, "UTC") else 1
        return (_FIRST_DAY + margin) * per_day, (_END_DAY - margin) * per_day
    if pa.types.is_time(kind):
        return 0, _DAY_S * _PER_SECOND[kind.unit]
    return None


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return bool(kind.unit == "ns")
    return any(_has_nanoseconds(kind.field(index).type) for index in range(kind.num_fields))


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
    )


def _value(scalar: Any) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {name: _value(each) for name, each in scalar.items()}
    if pa.types.is_map(kind):
        entries = (entry.values() for entry in scalar.values)
        return [(_value(key), _value(item)) for key, item in entries]
    if _is_list(kind):
        return [_value(each) for each in scalar.values]
    bounds = _bounds(kind)
    if bounds is None:
        return scalar.cast(pa.string()).as_py() if _has_nanoseconds(kind) else scalar.as_py()
    if bounds[0] <= scalar.value < bounds[1] and not _has_nanoseconds(kind):
        return scalar.as_py()
    return _text(kind, scalar.value)


def _text(kind: pa.DataType, number: int) -> str:
    """Write a time as Arrow does where it can: ``58877-01-01 00:00:00.000000Z``. One with a zone is in UTC."""
    if abs(number) == _INFINITE[kind.bit_width]:
        return "infinity" if number > 0 else "-infinity"
    if pa.types.is_date32(kind):
        return _day(number)
    days, rest = divmod(number, _DAY_S * _PER_SECOND[kind.unit])
    if pa.types.is_time(kind):
        return _clock(number, kind.unit)
    return f"{_day(days)} {_clock(rest, kind.unit)}{'Z' if kind.tz else ''}"


def _day(days: int) -> str:
    year, month, day = civil(days)
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{month:02d}-{day:02d}"


def _clock(number: int, unit: str) -> str:
    seconds, fraction = divmod(number, _PER_SECOND[unit])
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
    return f"{text}.{fraction:0{_DIGITS[unit]}d}" if _DIGITS[unit] else text
