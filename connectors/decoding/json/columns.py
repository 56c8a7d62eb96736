"""A column of parsed values to an Arrow array, where each value is certain.

A pattern is exact: no text it matches can fail or be misread by the conversion after it.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.decoding.arrays import Doubt, uuids
from connectors.decoding.fields import (
    DAY_US,
    MAX_TIME_US,
    MIN_TIME_US,
    NS_PER_US,
    TIME_KINDS,
    UNIT_US,
    Field,
    Unit,
)
from connectors.decoding.json.parsing import BASE64, Number, unscaled
from connectors.decoding.policy import Unfit

#: Arrow compiles a pattern at each use: in that time, 0.09 ms, Python matches this many texts.
_FEW = 256

_YEAR = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_LEAP_YEAR = (
    r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
)
_DAY = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    rf"|{_LEAP_YEAR}-02-29)"
)
_TIME = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_BELOW_MICROSECOND = r"(\.[0-9]{6})[0-9]+"
_OFFSET = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"

_PATTERNS: dict[str, str] = {
    "date": rf"^{_DAY}$",
    "timestamp": rf"^{_DAY}{_TIME}$",
    "timestamptz": rf"^{_DAY}{_TIME}{_OFFSET}$",
    "binary": r"^(?:[0-9a-fA-F]{2})*$",
    "fixed": r"^(?:[0-9a-fA-F]{2})*$",
    "uuid": r"^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
}


def _pattern(field: Field) -> str | None:
    if field.is_connects and field.kind in ("binary", "fixed"):
        return f"^{BASE64}$"
    if field.floor:
        # With digits below a microsecond, which are cut off before Arrow reads the text.
        return _PATTERNS[field.kind].replace("{1,6}", "+")
    if field.kind == "decimal":
        # Exponents and zeros beyond the scale may fit as well; the exact path knows.
        scale, whole = field.type.scale, field.type.precision - field.type.scale
        digits = rf"(?:0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
        return rf"^-?{digits}(?:\.[0-9]{{1,{scale}}})?$" if scale else rf"^-?{digits}$"
    return _PATTERNS.get(field.kind)


def certain_leaf(field: Field, values: Sequence[Any]) -> pa.Array:
    """Build the array of a field from what msgspec gave; raises Doubt where a value is not certain."""
    if field.kind == "decimal":
        values = _number_texts(field, values)
    return certain_array(field, pa.array(values, unchecked_type(field)))


def unchecked_type(field: Field) -> pa.DataType:
    """The type that the values of a field have before ``certain_array`` has looked at them."""
    if field.unit is not None:
        return pa.int64()
    return field.type if _pattern(field) is None else pa.string()


def certain_array(field: Field, values: pa.Array) -> pa.Array:
    """Convert values of ``unchecked_type``; raises Doubt where one is not certain."""
    if field.unit is not None:
        return _epoch_times(field, field.unit, values)
    pattern = _pattern(field)
    if pattern is None:
        return values
    _require_match(values, pattern)
    if field.is_connects and field.kind in ("binary", "fixed"):
        return _of_connects(field, values)
    if field.kind in TIME_KINDS:
        return _times(field, values)
    if field.kind == "fixed":
        _require(pc.equal(pc.binary_length(values), 2 * field.type.byte_width))
    if field.kind in ("binary", "fixed"):
        return pa.array([_unhex(value) for value in values.to_pylist()], field.type)
    if field.kind == "uuid":
        texts = values.to_pylist()
        return uuids([_unhex(value and value.replace("-", "")) for value in texts])
    return values.cast(field.type)


def _of_connects(field: Field, values: pa.Array) -> pa.Array:
    octets = [None if each is None else base64.b64decode(each) for each in values.to_pylist()]
    width = field.type.byte_width if field.kind == "fixed" else None
    if width is not None:
        odd = [at for at, each in enumerate(octets) if each is not None and len(each) != width]
        if odd:
            raise Doubt(odd)
    return pa.array(octets, field.type)


def _times(field: Field, text: pa.Array) -> pa.Array:
    """Read texts of which every one matches its kind's pattern."""
    if field.floor:
        text = pc.replace_substring_regex(text, _BELOW_MICROSECOND, r"\1")
    times = text.cast(field.type)
    if field.kind == "timestamptz":
        micros = times.view(pa.int64())
        at_least = pc.greater_equal(micros, MIN_TIME_US)
        _require(pc.and_(at_least, pc.less_equal(micros, MAX_TIME_US)))
    return times


def _require_match(text: pa.Array, pattern: str) -> None:
    """Raise Doubt where a text does not match; None does."""
    if len(text) > _FEW:
        return _require(pc.match_substring_regex(text, pattern))
    matches = _compiled(pattern)
    texts = enumerate(text.to_pylist())
    if doubts := [at for at, value in texts if value is not None and not matches(value)]:
        raise Doubt(doubts)
    return None


@functools.cache
def _compiled(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Match whole texts, as between RE2's ``^`` and ``$``."""
    return re.compile(pattern.removeprefix("^").removesuffix("$")).fullmatch


def _require(certain: pa.Array) -> None:
    if pc.all(certain).as_py() is False:
        raise Doubt(pc.indices_nonzero(pc.invert(certain)).to_pylist())


def _unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _number_texts(field: Field, values: Sequence[Any]) -> Sequence[str | None]:
    """Texts of numbers, and of strings, which a decimal may be written as too."""
    if field.is_connects:
        return _connects_numbers(field, values)
    kinds = set(map(type, values))
    allowed = {str, int} if field.required else {str, int, type(None)}
    if not kinds <= allowed:
        raise Doubt([at for at, value in enumerate(values) if type(value) not in allowed])
    if int in kinds:
        return [str(value) if type(value) is int else value for value in values]
    return values


def _connects_numbers(field: Field, values: Sequence[Any]) -> Sequence[str | None]:
    """Texts of numbers that Kafka Connect wrote: as such, as text, as digits of the field's scale or of one beside them."""
    texts: list[str | None] = []
    doubts = []
    for at, value in enumerate(values):
        scale, digits = field.scale, value
        if type(value) is dict:
            scale, digits = value.get("scale"), value.get("value")
        text = None
        if value is None:
            if field.required:
                doubts.append(at)
        elif type(value) in (int, Number) or (scale is None and type(value) is str):
            text = str(value)
        elif type(scale) is int and type(digits) is str:
            try:
                text = format(unscaled(field.path, digits, scale), "f")
            except Unfit:
                doubts.append(at)
        else:
            doubts.append(at)
        texts.append(text)
    if doubts:
        raise Doubt(doubts)
    return texts


def _epoch_times(field: Field, unit: Unit, numbers: pa.Array) -> pa.Array:
    """Times of numbers within ``epoch_bounds``; nothing is lost or overflows."""
    micros = (
        pc.divide(numbers, NS_PER_US) if unit == "ns" else pc.multiply(numbers, UNIT_US[unit])
    )
    if field.kind == "date":
        return pc.divide(micros, DAY_US).cast(pa.int32()).cast(field.type)
    return micros.cast(field.type)


def epoch_bounds(field: Field, unit: Unit) -> tuple[int, int, int]:
    """Whole numbers that are a time in years 0001 to 9999, and for a date the start of a day.

    Of a field with a floor they are at least 0, since Arrow divides towards it.

    Returns the lowest, the highest, and what each is a multiple of.
    """
    per_us = NS_PER_US if unit == "ns" else 1
    units_us = UNIT_US.get(unit, 1)
    step = DAY_US * per_us // units_us if field.kind == "date" else 1 if field.floor else per_us
    # The year 0001 in nanoseconds is beyond 64 bits; the exact path reads those.
    lowest = 0 if field.floor else max(-(1 << 63), -(-MIN_TIME_US * per_us // units_us))
    highest = min((1 << 63) - 1, MAX_TIME_US * per_us // units_us)
    return lowest, highest, step
