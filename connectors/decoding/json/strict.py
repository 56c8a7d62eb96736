"""The exact path: what a record means, one record at a time, by docs/json-types.md.

It defines the truth: the fast path must give the same, and leaves doubtful values to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from decimal import ROUND_FLOOR, Context, Decimal
from typing import Any, NoReturn, TypeGuard

import pyarrow as pa

from connectors.decoding.fields import (
    DAY_US,
    MAX_FLOAT,
    MAX_TIME_US,
    MIN_TIME_US,
    UNIT_US,
    Field,
    Unit,
)
from connectors.decoding.json.parsing import (
    FinerTime,
    Number,
    OtherNumber,
    from_base64,
    kind_of,
    parse,
    unscaled,
)
from connectors.decoding.policy import Unfit

#: Holds every decimal of 38 digits; what does not fit becomes NaN instead of an exception.
_EXACT = Context(prec=100, traps=[])
#: An exponent of more digits than this is beyond every type; such text is never expanded.
_MAX_EXPONENT_DIGITS = 6
#: Longer numbers are beyond every type but double and float, which read any length.
_MAX_NUMBER_CHARS = 2_000

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?([0-9]+))?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
#: What Debezium writes for PostgreSQL's infinities, and for times beyond 64 bits.
_INFINITE_US = (9_223_372_036_825_200_000, -9_223_372_036_832_400_000, (1 << 63) - 1)
UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
#: Not a number in JSON's grammar, so written as strings (as protobuf's JSON mapping does).
SPECIAL_FLOATS = {name: float(name) for name in ("NaN", "Infinity", "-Infinity")}

REQUIRED = "it is required, but null or missing"

#: Handles a value that does not fit: raises the Unfit, or returns a substitute.
Fallback = Callable[[Field, Any, Unfit], Any]
_Read = Callable[[Field, Any, Fallback], Any]


def refuse(field: Field, value: Any, unfit: Unfit) -> NoReturn:  # noqa: ARG001
    """The strict fallback."""
    raise unfit


def read_record(
    fields: Sequence[Field], raw: bytes, fallback: Fallback = refuse
) -> tuple[Any, ...]:
    """Read one record: a value per field, in order, as ``arrays.exact_leaf`` takes them.

    Raises:
        Unfit: the record is not an object by RFC 8259, or a value does not fit its field.
    """
    return _members(fields, parse(raw), fallback)


def read_value(field: Field, value: Any, fallback: Fallback = refuse) -> Any:
    """Read one parsed value as ``field``; None is NULL."""
    if value is None:
        if not field.required:
            return None
        return fallback(field, None, Unfit(field.path, REQUIRED))
    if field.misfit:
        return fallback(field, value, Unfit(field.path, field.misfit))
    try:
        return _READ[field.kind](field, value, fallback)
    except Unfit as unfit:
        return fallback(field, value, unfit)


def _members(
    fields: Sequence[Field], value: dict[str, Any], fallback: Fallback
) -> tuple[Any, ...]:
    return tuple([read_value(field, _struct_value(field, value), fallback) for field in fields])


def _struct_value(field: Field, value: dict[str, Any]) -> Any:
    # A loop: a generator for each member makes reading exactly twice as slow.
    for key in field.keys:
        if key in value:
            return value[key]
    return None


def _expected(field: Field, value: object, what: str) -> Unfit:
    return Unfit(field.path, f"expected {what} for {field.kind}, found {kind_of(value)}")


def _boolean(field: Field, value: Any, _: Fallback) -> bool:
    if not isinstance(value, bool):
        raise _expected(field, value, "true or false")
    return value


def _integer(field: Field, value: Any, _: Fallback) -> int:
    if not isinstance(value, Number):
        raise _expected(field, value, "a whole number")
    if not value.removeprefix("-").isdigit():
        raise OtherNumber(field.path, f"a number with fraction or exponent is no {field.kind}")
    bits = 31 if field.kind == "int" else 63
    # 19 digits and a sign hold every long; a longer one is never turned into an int.
    if len(value) > 20 or not -(1 << bits) <= int(value) < 1 << bits:
        raise OtherNumber(field.path, f"the number is beyond {field.kind}")
    return int(value)


def _floating(field: Field, value: Any, _: Fallback) -> float:
    if isinstance(value, Number):
        # A whole number has no sign of zero: -0 is 0.0, -0.0 is -0.0.
        number = 0.0 if value == "-0" else float(value)
        if is_beyond(field, number):
            raise Unfit(field.path, f"the number is beyond {field.kind}")
        return number
    if isinstance(value, str) and value in SPECIAL_FLOATS:
        return SPECIAL_FLOATS[value]
    raise _expected(field, value, 'a number, "NaN", "Infinity" or "-Infinity"')


def is_beyond(field: Field, number: float) -> bool:
    """Whether a number is one that the type rounds to infinity."""
    return abs(number) > MAX_FLOAT if field.kind == "float" else abs(number) == float("inf")


def is_string(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and not isinstance(value, Number)


def _decimal(field: Field, value: Any, _: Fallback) -> Decimal:
    if field.is_connects and not isinstance(value, Number):
        scale, digits = field.scale, value
        if isinstance(value, dict):
            # Debezium's VariableScaleDecimal.
            of_scale = Field(f"{field.path}.scale", "int", pa.int32(), required=False)
            scale, digits = _integer(of_scale, value.get("scale"), refuse), value.get("value")
        if scale is not None:
            if not is_string(digits):
                raise _expected(field, digits, "a decimal's digits in base64")
            return fitted(field, unscaled(field.path, digits, scale))
    if not isinstance(value, str):
        raise _expected(field, value, "a number, or one in a string")
    if (number := exact_number(value)) is None:
        kind = kind_of(value).removeprefix("a ")
        raise Unfit(field.path, f"the {kind} is no number {field.type}")
    return fitted(field, number)


def exact_number(text: str) -> Decimal | None:
    """Read a JSON number exactly. None when it is none, or too long for any decimal or time."""
    matched = _NUMBER.fullmatch(text)
    if matched is None or len(text) > _MAX_NUMBER_CHARS:
        return None
    if len((matched[1] or "").lstrip("0")) > _MAX_EXPONENT_DIGITS:
        return None
    # Drop the exponent of zero, which may be large.
    return Decimal(text) or Decimal(0)


def fitted(field: Field, number: Decimal) -> Decimal:
    """Write a number with the scale of a decimal field.

    Raises:
        Unfit: it has more digits than the type, on either side of the point.
    """
    precision, scale = field.type.precision, field.type.scale
    if number == 0:
        return Decimal((0, (0,), -scale))
    if number.adjusted() >= precision - scale:
        raise OtherNumber(field.path, f"the number is beyond decimal({precision}, {scale})")
    scaled = number.quantize(Decimal((0, (1,), -scale)), context=_EXACT)
    if scaled != number:
        reason = f"the number has digits beyond decimal({precision}, {scale})"
        raise OtherNumber(field.path, reason)
    return scaled


def _date(field: Field, value: Any, _: Fallback) -> int:
    if field.unit is not None and not (field.is_connects and is_string(value)):
        days, rest = divmod(_epoch_us(field, field.unit, value), DAY_US)
        if rest:
            raise Unfit(field.path, "the number is not the start of a day in UTC")
        return days
    if not is_string(value):
        raise _expected(field, value, "a string YYYY-MM-DD")
    if (day := day_number(value)) is None:
        raise Unfit(field.path, "the string is no date YYYY-MM-DD of years 0001 to 9999")
    return day


def day_number(text: str) -> int | None:
    """Days since 1970-01-01 of a date YYYY-MM-DD, or None when there is no such day."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text).toordinal() - 719_163
    except ValueError:
        return None


def _timestamp(field: Field, value: Any, _: Fallback) -> int:
    if field.unit is not None:
        return _epoch_us(field, field.unit, value)
    zoned = field.kind == "timestamptz"
    form = "YYYY-MM-DDTHH:MM[:SS[.ffffff]]" + ("(Z|+HH:MM|-HH:MM)" if zoned else "")
    if not is_string(value):
        raise _expected(field, value, f"a string {form}")
    matched = _TIMESTAMP.fullmatch(value)
    if matched is None:
        raise Unfit(field.path, f"the string is no {field.kind} {form}")
    day, hour, minute, second, fraction, offset = matched.groups()
    if zoned is (offset is None):
        had = "no offset from UTC" if zoned else "an offset from UTC"
        raise Unfit(field.path, f"the string has {had}; a {field.kind} is {form}")
    fraction = fraction or ""
    if fraction[6:].strip("0") and not field.floor:
        reason = f"a {field.kind} holds microseconds, the string has more digits"
        raise FinerTime(field.path, reason, field.field_id)
    days, hours, minutes, seconds = day_number(day), int(hour), int(minute), int(second or "0")
    if days is None or hours > 23 or minutes > 59 or seconds > 59:
        raise Unfit(field.path, f"the string is no {field.kind} of years 0001 to 9999")
    seconds += hours * 3600 + minutes * 60 - _offset_s(field, offset or "Z")
    micros = int(fraction[:6].ljust(6, "0"))
    return _in_years(field, days * DAY_US + seconds * 1_000_000 + micros)


def _offset_s(field: Field, offset: str) -> int:
    """Return the seconds that an offset lies east of UTC: Z, or a sign with HH, HHMM or HH:MM."""
    if offset == "Z":
        return 0
    hours, minutes = int(offset[1:3]), int(offset[3:].removeprefix(":") or "0")
    if hours > 23 or minutes > 59:
        raise Unfit(field.path, "the offset from UTC is not between -23:59 and +23:59")
    return (hours * 3600 + minutes * 60) * (-1 if offset[0] == "-" else 1)


def _epoch_us(field: Field, unit: Unit, value: Any) -> int:
    if not isinstance(value, Number):
        name = "days" if unit == "d" else unit
        raise _expected(field, value, f"a number of {name} since 1970")
    number = exact_number(value)
    # Year 9999 is 2.5e20 nanoseconds: no unit needs a larger number.
    if number is None or (number != 0 and number.adjusted() > 21):
        raise Unfit(field.path, f"the number is beyond {field.kind}")
    micros = epoch_us(unit, number)
    whole = micros.to_integral_value(ROUND_FLOOR, context=_WIDE)
    if micros != whole and not field.floor:
        reason = "the number of time units is not a whole number of microseconds"
        if field.kind == "date":
            raise Unfit(field.path, reason)
        raise FinerTime(field.path, reason, field.field_id)
    return _in_years(field, int(whole))


def epoch_us(unit: Unit, number: Decimal) -> Decimal:
    """Microseconds since 1970, with their fraction, of ``number`` units."""
    if unit == "ns":
        return number.scaleb(-3, context=_WIDE)
    return _WIDE.multiply(number, Decimal(UNIT_US[unit]))


#: Holds every number of ``_MAX_NUMBER_CHARS`` exactly.
_WIDE = Context(prec=_MAX_NUMBER_CHARS + 30, Emax=9_999_999, Emin=-9_999_999)


def _in_years(field: Field, micros: int) -> int:
    if not MIN_TIME_US <= micros <= MAX_TIME_US:
        raise outside_years(field, micros)
    return micros


def outside_years(field: Field, micros: int) -> Unfit:
    reason = f"the time is outside the years 0001 to 9999 of {field.kind}"
    is_infinite = micros in _INFINITE_US
    more = "; Debezium writes so what PostgreSQL has as infinity" if is_infinite else ""
    return Unfit(field.path, reason, f"field {field.path}: {reason}{more}")


def _string(field: Field, value: Any, _: Fallback) -> str:
    if not is_string(value):
        raise _expected(field, value, "a string")
    if not is_text(value):
        raise Unfit(field.path, "the string has half of a surrogate pair")
    return value


def is_text(text: str) -> bool:
    """Whether UTF-8 exists for it: json lets the escape of half a surrogate pair pass."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _binary(field: Field, value: Any, _: Fallback) -> bytes:
    if field.is_connects:
        octets = from_base64(value) if is_string(value) else None
        if octets is None:
            raise _expected(field, value, "a string in base64")
        if field.kind == "fixed" and len(octets) != field.type.byte_width:
            raise Unfit(field.path, f"the string has not the bytes of {field.type}")
        return octets
    if not is_string(value) or not _HEX.fullmatch(value):
        raise _expected(field, value, "a string of hexadecimal pairs")
    if field.kind == "fixed" and len(value) != (digits := 2 * field.type.byte_width):
        raise Unfit(field.path, f"the string has not the {digits} digits of {field.type}")
    return bytes.fromhex(value)


def _uuid(field: Field, value: Any, _: Fallback) -> bytes:
    if not isinstance(value, str) or not UUID.fullmatch(value):
        raise _expected(field, value, "a string 8-4-4-4-12 of hexadecimal digits")
    return bytes.fromhex(value.replace("-", ""))


def _list(field: Field, value: Any, fallback: Fallback) -> list[Any]:
    if not isinstance(value, list):
        raise _expected(field, value, "an array")
    return [read_value(field.children[0], item, fallback) for item in value]


def _map(field: Field, value: Any, fallback: Fallback) -> list[tuple[Any, Any]]:
    key, item = field.children
    if not isinstance(value, dict):
        raise _expected(field, value, "an object")
    if field.is_object:
        return [
            (read_value(key, name, fallback), read_value(item, member, fallback))
            for name, member in value.items()
        ]
    names, member = value.get("keys"), value.get("values")
    if not isinstance(names, list) or not isinstance(member, list) or len(names) != len(member):
        reason = 'expected an object with arrays "keys" and "values" of one length for map'
        raise Unfit(field.path, reason)
    keys = [read_value(key, name, fallback) for name in names]
    if len({_identity(value) for value in keys}) != len(keys):
        raise Unfit(field.path, "the map has a key twice")
    return list(zip(keys, (read_value(item, one, fallback) for one in member), strict=True))


def _identity(key: Any) -> Any:
    """What makes two keys the same: the value; NaN is the same as NaN."""
    if isinstance(key, list | tuple):
        return (type(key), *map(_identity, key))
    return "NaN" if isinstance(key, float) and key != key else key


def _struct(field: Field, value: Any, fallback: Fallback) -> tuple[Any, ...]:
    if not isinstance(value, dict):
        raise _expected(field, value, "an object")
    return _members(field.children, value, fallback)


_READ: dict[str, _Read] = {
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "string": _string,
    "binary": _binary,
    "fixed": _binary,
    "uuid": _uuid,
    "list": _list,
    "map": _map,
    "struct": _struct,
}
