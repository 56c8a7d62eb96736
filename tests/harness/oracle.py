"""An independent JSON decoder, written from docs/json-types.md with the standard library alone.

Tests compare the product with it. It shares no code with ``connectors.decoding.registry`` and must not: it takes the
slowest obvious way, one record and one value at a time. Strict mode only.
"""

from __future__ import annotations

import json
import math
import re
import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat

EPOCH = datetime(1970, 1, 1)
UNITS_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
LARGEST_FLOAT = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


@dataclass(frozen=True)
class Bad:
    """The record does not decode. ``field`` names the first column at fault, None for the whole record."""

    field: str | None


class AnyReason:
    """Stands for the text in ``kafka_error``, which is not specified; ``same`` takes any non-empty string."""


ANY_REASON = AnyReason()


class _Refused(Exception):
    pass


@dataclass(frozen=True)
class _Number:
    text: str


def oracle_decode(
    schema: TableSchema, binding: Binding, record: Mapping[str, Any]
) -> dict[str, Any] | Bad | None:
    """Decode one row of ``RAW_SCHEMA`` (as ``to_pylist`` gives it).

    Returns the row as ``to_pylist`` of the product's rows would give it (compare with ``same``); ``Bad`` for
    a record that policy ``fail`` or ``skip`` keeps out; None for a tombstone.
    """
    assert isinstance(binding.format, JsonFormat)
    assert binding.format.mode == "strict"
    raw = record["kafka_value"]
    if raw is None:
        return None
    row = {
        column.name: record[column.name]
        for column in schema.columns
        if column.name in METADATA_TYPES and column.name not in ("kafka_value", "kafka_error")
    }
    payload = _payload(schema, binding, raw)
    bad = isinstance(payload, Bad)
    if bad and binding.on_error != "null":
        return payload
    for column in schema.columns:
        if column.name == "kafka_value":
            row[column.name] = raw if bad else None
        elif column.name == "kafka_error":
            row[column.name] = ANY_REASON if bad else None
        elif column.name not in METADATA_TYPES:
            row[column.name] = None if isinstance(payload, Bad) else payload[column.name]
    return {column.name: row[column.name] for column in schema.columns}


def oracle_rows(
    schema: TableSchema, binding: Binding, records: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The rows of many records, in their order; under policy ``fail`` none of them may be bad."""
    rows = []
    for record in records:
        row = oracle_decode(schema, binding, record)
        assert not (isinstance(row, Bad) and binding.on_error == "fail"), record
        if isinstance(row, dict):
            rows.append(row)
    return rows


def same(expected: Any, actual: Any) -> bool:
    """Equal in type and value: True is not 1, -0.0 is not 0.0, NaN is NaN, 1.50 is not 1.5."""
    if isinstance(expected, AnyReason):
        return isinstance(actual, str) and bool(actual)
    if type(expected) is not type(actual):
        return False
    if isinstance(expected, dict):
        return list(expected) == list(actual) and all(
            same(value, actual[key]) for key, value in expected.items()
        )
    if isinstance(expected, list | tuple):
        return len(expected) == len(actual) and all(map(same, expected, actual))
    if isinstance(expected, float):
        return struct.pack("<d", expected) == struct.pack("<d", actual) or (
            math.isnan(expected) and math.isnan(actual)
        )
    if isinstance(expected, Decimal):
        return str(expected) == str(actual)
    return bool(expected == actual)


@dataclass(frozen=True)
class _Times:
    units: dict[int, Any]
    floors: set[int]


@dataclass(frozen=True)
class _At:
    """One field: its id, its epoch unit, and whether it loses what is below a microsecond."""

    field_id: int
    unit: str | None
    floor: bool


def _payload(schema: TableSchema, binding: Binding, raw: bytes) -> dict[str, Any] | Bad:
    try:
        value = _object(raw)
    except _Refused:
        return Bad(None)
    times = _Times(dict(binding.format.epoch_units), set(binding.format.floors))
    columns = [column for column in schema.columns if column.name not in METADATA_TYPES]
    row = {}
    for column in columns:
        unit = times.units.get(column.field_id, column.epoch_unit)
        keys = [key for key in _names(column) if not _is_former_name(key, column, columns)]
        items = [value[key] for key in keys if key in value]
        try:
            field = pa.field(column.name, column.type, nullable=not column.required)
            at = _At(column.field_id, unit, column.field_id in times.floors)
            row[column.name] = _value(field, at, times, items[0] if items else None)
        except _Refused:
            return Bad(column.name)
    return row


def _names(column: Column) -> tuple[str, ...]:
    return column.keys if column.keys else (column.name,)


def _is_former_name(key: str, column: Column, columns: list[Column]) -> bool:
    return any(
        other.name == key and key in _names(other) for other in columns if other is not column
    )


def _object(raw: bytes) -> dict[str, Any]:
    def constant(_: str) -> Any:
        raise _Refused

    try:
        text = raw.decode("utf-8")
        if _too_deep(text):
            raise _Refused
        document = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=constant
        )
    except ValueError as cause:
        raise _Refused from cause
    if not isinstance(document, dict):
        raise _Refused
    return document


def _too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= 500:
        return False
    depth = 0
    in_string = escaped = False
    for character in text:
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            if depth > 500:
                return True
        elif character in "]}":
            depth -= 1
    return False


def _value(field: pa.Field, at: _At, times: _Times, value: Any) -> Any:
    kind = field.type
    if value is None:
        if not field.nullable:
            raise _Refused
        return None

    def inner(field: pa.Field, item: Any) -> Any:
        field_id = int((field.metadata or {}).get(b"PARQUET:field_id", 0))
        below = _At(field_id, times.units.get(field_id), field_id in times.floors)
        return _value(field, below, times, item)

    if pa.types.is_struct(kind):
        _expect(isinstance(value, dict))
        return {field.name: inner(field, value.get(field.name)) for field in kind}
    if pa.types.is_list(kind):
        _expect(isinstance(value, list))
        return [inner(kind.value_field, item) for item in value]
    if pa.types.is_map(kind):
        return _entries(kind, inner, value)
    if at.unit is not None:
        return _epoch(kind, at.unit, at.floor, value)
    return _scalar(kind, at.floor, value)


def _expect(value: bool) -> None:
    if not value:
        raise _Refused


def _entries(kind: pa.DataType, inner: Any, value: Any) -> list[tuple[Any, Any]]:
    _expect(isinstance(value, dict))
    if kind.key_type == pa.string():
        pairs = list(value.items())
    else:
        keys, items = value.get("keys"), value.get("values")
        _expect(isinstance(keys, list) and isinstance(items, list) and len(keys) == len(items))
        pairs = list(zip(keys, items, strict=True))
    read = [(inner(kind.key_field, key), inner(kind.item_field, item)) for key, item in pairs]
    for index, (key, _) in enumerate(read):
        for other, _ in read[:index]:
            _expect(not (key == other or (key != key and other != other)))
    return read


def _scalar(kind: pa.DataType, floor: bool, value: Any) -> Any:
    if kind == pa.bool_():
        _expect(isinstance(value, bool))
        return value
    if kind in (pa.int32(), pa.int64()):
        _expect(isinstance(value, _Number) and bool(re.fullmatch("-?[0-9]{1,20}", value.text)))
        bits = 31 if kind == pa.int32() else 63
        _expect(-(2**bits) <= int(value.text) <= 2**bits - 1)
        return int(value.text)
    if kind in (pa.float32(), pa.float64()):
        return _float(kind, value)
    if pa.types.is_decimal(kind):
        _expect(isinstance(value, _Number | str))
        return _decimal(kind, value.text if isinstance(value, _Number) else value)
    _expect(isinstance(value, str))
    if kind == pa.string():
        _expect(not any(0xD800 <= ord(character) <= 0xDFFF for character in value))
        return value
    if kind == pa.date32():
        return _date(value)
    if pa.types.is_timestamp(kind):
        return _timestamp(kind, floor, value)
    if kind == pa.uuid():
        _expect([len(part) for part in value.split("-")] == [8, 4, 4, 4, 12])
        return uuid.UUID(bytes=_hex(value.replace("-", "")))
    raw = _hex(value)
    _expect(kind == pa.binary() or len(raw) == kind.byte_width)
    return raw


def _hex(text: str) -> bytes:
    _expect(len(text) % 2 == 0 and all(digit in "0123456789abcdefABCDEF" for digit in text))
    return bytes(int(text[at : at + 2], 16) for at in range(0, len(text), 2))


def _float(kind: pa.DataType, value: Any) -> float:
    if isinstance(value, str):
        _expect(value in ("NaN", "Infinity", "-Infinity"))
        return float(value)
    _expect(isinstance(value, _Number))
    number = float(value.text)
    if re.fullmatch("-0", value.text):
        number = 0.0
    if kind == pa.float64():
        _expect(not math.isinf(number))
        return number
    _expect(abs(number) <= LARGEST_FLOAT)
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def _exact(text: str) -> Fraction:
    """A JSON number as a fraction; refuses what is far beyond every type, so that nothing explodes."""
    matched = re.fullmatch(r"(-?)(0|[1-9][0-9]*)(?:\.([0-9]+))?(?:[eE]([+-]?)([0-9]+))?", text)
    _expect(matched is not None and len(text) <= 2_000)
    assert matched is not None
    exponent = (matched[5] or "0").lstrip("0")
    _expect(len(exponent) <= 6)
    digits = int(matched[2] + (matched[3] or ""))
    if digits == 0:
        return Fraction(0)
    power = int((matched[4] or "") + (exponent or "0")) - len(matched[3] or "")
    _expect(-4_000 < power < 4_000)
    return (-1 if matched[1] else 1) * digits * Fraction(10) ** power


def _decimal(kind: pa.DataType, text: str) -> Decimal:
    unscaled = _exact(text) * 10**kind.scale
    _expect(unscaled.denominator == 1 and abs(unscaled) < 10**kind.precision)
    digits = tuple(int(digit) for digit in str(abs(unscaled.numerator)))
    return Decimal((1 if unscaled < 0 else 0, digits, -kind.scale))


def _date(text: str) -> date:
    _expect(re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is not None)
    try:
        return date.fromisoformat(text)
    except ValueError as cause:
        raise _Refused from cause


def _timestamp(kind: pa.DataType, floor: bool, text: str) -> datetime:
    east = timedelta(0)
    if kind.tz is not None:
        if text.endswith("Z"):
            text = text[:-1]
        else:
            cut = max(text.rfind("+"), text.rfind("-"))
            offset = text[cut:]
            _expect(offset[1:].replace(":", "").isdecimal() and offset.isascii())
            _expect([len(part) for part in offset[1:].split(":")] in ([2], [4], [2, 2]))
            digits = offset[1:].replace(":", "").ljust(4, "0")
            _expect(int(digits[:2]) <= 23 and int(digits[2:]) <= 59)
            east = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
            east = -east if offset[0] == "-" else east
            text = text[:cut]
    whole, point, fraction = text.partition(".")
    _expect(
        re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?", whole)
        is not None
    )
    if point:
        _expect(len(whole) == 19 and re.fullmatch("[0-9]+", fraction) is not None)
        _expect(floor or int(fraction[6:] or "0") == 0)
    try:
        value = datetime.strptime(
            whole.replace(" ", "T").ljust(19, " ").replace("   ", ":00"), "%Y-%m-%dT%H:%M:%S"
        )
        value = value.replace(microsecond=int(fraction[:6].ljust(6, "0"))) - east
    except (ValueError, OverflowError) as cause:
        raise _Refused from cause
    return value if kind.tz is None else value.replace(tzinfo=UTC)


def _epoch(kind: pa.DataType, unit: str, floor: bool, value: Any) -> date | datetime:
    _expect(isinstance(value, _Number))
    micros = _exact(value.text) * 1_000_000 / UNITS_PER_SECOND[unit]
    _expect(floor or micros.denominator == 1)
    try:
        text = EPOCH + timedelta(microseconds=math.floor(micros))
    except OverflowError as cause:
        raise _Refused from cause
    if kind == pa.date32():
        _expect(text.time() == EPOCH.time())
        return text.date()
    return text if kind.tz is None else text.replace(tzinfo=UTC)
