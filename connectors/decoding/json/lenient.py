"""The lenient mode, opt-in: reads values that strict refuses.

What strict accepts is the same in both modes. What cannot be read even so becomes NULL, at the nearest level that may
be NULL. docs/json-types.md lists what each type takes, and where DuckDB's ``from_json``, the model, differs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal
from typing import Any

from connectors.decoding.fields import DAY_US, MAX_TIME_US, MIN_TIME_US, Field
from connectors.decoding.json.parsing import Number
from connectors.decoding.json.strict import (
    day_number,
    epoch_us,
    exact_number,
    fitted,
    is_beyond,
    is_string,
    is_text,
)
from connectors.decoding.policy import Unfit

#: Rounds to whole units of any type here without running out of digits.
_WIDE = Context(prec=2_100, Emax=9_999_999, Emin=-9_999_999)
#: Numbers of more digits before the point are beyond every integer and decimal.
_MAX_DIGITS = 40

_WORDS = dict.fromkeys(("true", "t", "yes", "y", "1"), True)
_WORDS |= dict.fromkeys(("false", "f", "no", "n", "0"), False)
_SPECIAL = {"nan": "nan", "inf": "inf", "infinity": "inf", "-inf": "-inf", "-infinity": "-inf"}

_TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(?:([Zz])|([+-])([0-9]{2})(?::?([0-9]{2}))?)?)?"
)
_UUID = re.compile(r"\{?([0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12})\}?")


def substitute(field: Field, value: Any, unfit: Unfit) -> Any:
    """The lenient fallback of ``strict.read_record``.

    Raises:
        Unfit: nothing fits and the field is required.
    """
    read = _READ.get(field.kind)
    replacement = None if read is None or value is None else read(field, value)
    if replacement is None and field.required:
        raise unfit
    return replacement


def _number(value: Any) -> Decimal | None:
    """The exact number in a number, a string or a boolean."""
    if isinstance(value, bool):
        return Decimal(int(value))
    return exact_number(value.strip()) if isinstance(value, str) else None


def _boolean(_: Field, value: Any) -> bool | None:
    if isinstance(value, Number):
        return any(digit in "123456789" for digit in re.split("[eE]", value)[0])
    return _WORDS.get(value.strip().lower()) if isinstance(value, str) else None


def _integer(field: Field, value: Any) -> int | None:
    number = _number(value)
    if number is None or number.adjusted() > _MAX_DIGITS:
        return None
    whole = int(number.to_integral_value(ROUND_HALF_EVEN, context=_WIDE))
    bits = 31 if field.kind == "int" else 63
    return whole if -(1 << bits) <= whole < 1 << bits else None


def _floating(field: Field, value: Any) -> float | None:
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return None
    word = value.strip()
    if word.lower() in _SPECIAL:
        return float(_SPECIAL[word.lower()])
    if exact_number(word) is None or is_beyond(field, number := float(word)):
        return None
    return number


def _decimal(field: Field, value: Any) -> Decimal | None:
    number = _number(value)
    if number is None or number.adjusted() > _MAX_DIGITS:
        return None
    one = Decimal((0, (1,), -field.type.scale))
    try:
        return fitted(field, number.quantize(one, ROUND_HALF_UP, context=_WIDE))
    except Unfit:
        return None


def _string(_: Field, value: Any) -> str | None:
    text = json_text(value)
    return text if is_text(text) else None


def json_text(value: Any) -> str:
    """JSON text without spaces, numbers as the record wrote them; a string as it is.

    Written in one pass with a stack of its own: level by level, what is inside would be copied once for each level
    around it, and 500 of them are more than Python's stack takes.
    """
    if isinstance(value, str):
        return value
    written: list[str] = []
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, _Mark):
            written.append(item)
        elif isinstance(item, dict):
            keys = [f"{_quoted(key)}:" for key in item]
            _open(written, pending, "{}", keys, list(item.values()))
        elif isinstance(item, list):
            _open(written, pending, "[]", [""] * len(item), item)
        else:
            written.append(_quoted(item))
    return "".join(written)


def _open(
    written: list[str], pending: list[Any], ends: str, keys: list[str], values: list[Any]
) -> None:
    """Write an object or array; leave nested ones on the stack, between the text before and after them."""
    if not any(isinstance(value, dict | list) for value in values):
        members = (f"{key}{_quoted(value)}" for key, value in zip(keys, values, strict=True))
        written.append(f"{ends[0]}{','.join(members)}{ends[1]}")
        return
    written.append(ends[0])
    pending.append(_Mark(ends[1]))
    for number in range(len(values) - 1, -1, -1):
        pending += [values[number], _Mark(f"{',' if number else ''}{keys[number]}")]


class _Mark(str):
    """Text to be written as it is."""

    __slots__ = ()


def _quoted(value: Any) -> str:
    return value if isinstance(value, Number) else json.dumps(value, ensure_ascii=False)


def _time_us(field: Field, value: Any) -> int | None:
    """Microseconds since 1970, in UTC; a string without offset is taken as UTC."""
    number = None if field.unit is None or isinstance(value, bool) else _number(value)
    if field.unit is not None and number is not None:
        micros = epoch_us(field.unit, number)
        if micros.adjusted() > _MAX_DIGITS:
            return None
        return _in_years(int(micros.to_integral_value(ROUND_FLOOR, context=_WIDE)))
    matched = _matched(value)
    if matched is None:
        return None
    days = day_number(matched[1])
    hour, minute, second, east_hours, east_minutes = (
        int(part or "0") for part in matched.group(2, 3, 4, 8, 9)
    )
    if days is None or max(hour, east_hours) > 23 or max(minute, second, east_minutes) > 59:
        return None
    east_s = (east_hours * 3600 + east_minutes * 60) * (-1 if matched[7] == "-" else 1)
    seconds = hour * 3600 + minute * 60 + second - east_s
    fraction = (matched[5] or "")[:6].ljust(6, "0")
    return _in_years(days * DAY_US + seconds * 1_000_000 + int(fraction))


def _matched(value: Any) -> re.Match[str] | None:
    return _TIME.fullmatch(value.strip()) if is_string(value) else None


def _in_years(micros: int) -> int | None:
    return micros if MIN_TIME_US <= micros <= MAX_TIME_US else None


def _date(field: Field, value: Any) -> int | None:
    """The day as written: an offset does not move it. Of an epoch, the day in UTC."""
    micros = _time_us(field, value)
    if micros is None:
        return None
    matched = _matched(value)
    return micros // DAY_US if matched is None else day_number(matched[1])


def _uuid(_: Field, value: Any) -> bytes | None:
    matched = _UUID.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if matched is None else bytes.fromhex(matched[1].replace("-", ""))


_READ: dict[str, Callable[[Field, Any], Any]] = {
    "boolean": _boolean,
    "int": _integer,
    "long": _integer,
    "float": _floating,
    "double": _floating,
    "decimal": _decimal,
    "date": _date,
    "timestamp": _time_us,
    "timestamptz": _time_us,
    "string": _string,
    "uuid": _uuid,
}
