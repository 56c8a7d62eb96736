"""One value as short text for people: never another value, and never more text than there is room for.

Python's times end with the year 9999 and have no nanoseconds; Iceberg's and the engine's go on.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

ELLIPSIS = "…"
#: Structs and lists deeper than this are not opened.
_MAX_DEPTH = 12
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_DAY_S = 86_400
_EPOCH = dt.date(1970, 1, 1).toordinal()
#: The calendar repeats itself after as many years and days.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
#: The engine's infinite times: the largest number of their type, and its negative.
_INFINITE = {32: 2**31 - 1, 64: 2**63 - 1}


def text_of(scalar: pa.Scalar, limit: int) -> str:
    """Return a value's text; of one that is longer than ``limit`` characters the beginning, with ``…``."""
    pieces: list[str] = []
    length = 0
    for piece in _pieces(scalar, limit, 0):
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            return "".join(pieces)[:limit] + ELLIPSIS
    return "".join(pieces)


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _pieces(scalar: Any, limit: int, depth: int) -> Iterator[str]:
    kind = scalar.type
    if not scalar.is_valid:
        yield "NULL"
    elif isinstance(kind, pa.BaseExtensionType):
        yield from _pieces(scalar.value, limit, depth)
    elif pa.types.is_nested(kind) and depth == _MAX_DEPTH:
        yield ELLIPSIS
    elif pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        yield from _inside(
            "{}", ((f"{name}: ", scalar[at]) for at, name in enumerate(names)), limit, depth
        )
    elif pa.types.is_map(kind):
        pairs = (tuple(entry.values()) for entry in scalar.values)
        members = ((f"{text_of(key, limit)}: ", item) for key, item in pairs)
        yield from _inside("{}", members, limit, depth)
    elif pa.types.is_nested(kind) and hasattr(scalar, "values"):
        yield from _inside("[]", (("", each) for each in scalar.values), limit, depth)
    else:
        yield _plain(scalar, kind, limit)


def _inside(
    brackets: str, members: Iterator[tuple[str, Any]], limit: int, depth: int
) -> Iterator[str]:
    yield brackets[0]
    # One more than there is room for tells that there are more.
    for number, (label, member) in enumerate(itertools.islice(members, limit + 1)):
        yield (", " if number else "") + label
        yield from _pieces(member, limit, depth + 1)
    yield brackets[1]


def _plain(scalar: Any, kind: pa.DataType, limit: int) -> str:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Four bytes are the longest character: 10 MB are not decoded for 200 characters.
        return bytes(scalar.as_buffer()[: 4 * (limit + 1)]).decode(errors="ignore")
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return bytes(scalar.as_buffer()[: limit + 1]).hex()
    if pa.types.is_temporal(kind):
        return _time_text(scalar, kind)
    value = scalar.as_py()
    if isinstance(value, bytes):
        return value[: limit + 1].hex()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(
            repr(value), repr(value)
        )
    return str(value)


def _time_text(scalar: Any, kind: pa.DataType) -> str:
    """As ``2024-02-29 13:00:00.000000Z``: times with a zone in UTC, other ones without ``Z``."""
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return str(scalar.cast(pa.string()) if pa.types.is_duration(kind) else scalar.as_py())
    number = scalar.value
    if abs(number) == _INFINITE[kind.bit_width]:
        return "infinity" if number > 0 else "-infinity"
    if pa.types.is_date32(kind):
        return _day(number)
    if pa.types.is_date64(kind):
        return _day(number // (_DAY_S * 1_000))
    if pa.types.is_time(kind):
        return _clock(number, kind.unit)
    days, rest = divmod(number, _DAY_S * _PER_SECOND[kind.unit])
    return f"{_day(days)} {_clock(rest, kind.unit)}{'Z' if kind.tz else ''}"


def _day(days: int) -> str:
    cycles, within = divmod(days + _EPOCH - 1, _CYCLE_DAYS)
    date = dt.date.fromordinal(within + 1)
    year = date.year + cycles * _CYCLE_YEARS
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{date.month:02d}-{date.day:02d}"


def _clock(number: int, unit: str) -> str:
    seconds, fraction = divmod(number, _PER_SECOND[unit])
    minutes, second = divmod(seconds, 60)
    text = f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
    return f"{text}.{fraction:0{_DIGITS[unit]}d}" if _DIGITS[unit] else text
