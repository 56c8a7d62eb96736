"""The exact path: one record at a time, by docs/avro-types.md.

It defines the truth: the fast path must give the same, and leaves doubtful records to it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, cast

from connectors.decoding.avro.again import JsonText
from connectors.decoding.avro.cursor import (
    Cursor,
    Read,
    blocks,
    decimal_of,
    least_bytes,
    read_boolean,
    read_bytes,
    read_double,
    read_float,
    read_index,
    read_int,
    read_long,
    read_text,
    skip_items,
    take,
    uuid_text,
)
from connectors.decoding.avro.plan import REQUIRED, Plan, RootPlan, plan_without_field
from connectors.decoding.fields import (
    DAY_US,
    MAX_TIME_US,
    MIN_TIME_US,
    NS_PER_US,
    TIME_KINDS,
    UNIT_US,
    Field,
)
from connectors.decoding.json.parsing import FinerTime, of_digits
from connectors.decoding.json.strict import UUID, fitted, outside_years, read_value
from connectors.decoding.policy import Unfit
from planner.evolution.writer_types import Logical, Meaning, WriterSchema, WriterType
from planner.schema import EpochUnit
from planner.type_text import type_text

UNITS: Mapping[Meaning, EpochUnit] = {
    "timestamp-millis": "ms",
    "timestamp-micros": "us",
    "timestamp-nanos": "ns",
    "local-timestamp-millis": "ms",
    "local-timestamp-micros": "us",
    "local-timestamp-nanos": "ns",
}
MIN_DAY, MAX_DAY = MIN_TIME_US // DAY_US, MAX_TIME_US // DAY_US
_SHORT_OF_END = "the value ends before the record does"


class ExactRecord:
    """Reads records of one schema as the fields of a table. Thread-safe."""

    def __init__(self, root: RootPlan) -> None:
        self.root = root
        self._read = Reads(root.schema).of(root.plan)
        #: What a null in place of a record is.
        self._nothing = (None,) * len(root.plan.field.children if root.plan.field else ())

    def read(self, raw: bytes, at: int) -> tuple[Any, ...]:
        """Read the record that begins at ``at``: a value per field. Raises Unfit."""
        cursor = Cursor(raw, at)
        try:
            if self.root.branch is not None:
                read_index(cursor, len(self.root.schema.root.items), "")
            row = self._read(cursor)
        except (IndexError, struct.error):
            raise Unfit(None, _SHORT_OF_END) from None
        if cursor.at != len(raw):
            raise Unfit(
                None, f"{len(raw) - cursor.at} of its bytes follow the end of the record"
            )
        if row is None:
            for field in self.root.plan.field.children if self.root.plan.field else ():
                _check_required(field)
            return self._nothing
        return row  # type: ignore[no-any-return]

    def is_other(self, raw: bytes, at: int) -> bool:
        """Return whether the record has another full name than the table's records; False where that is unclear."""
        if self.root.is_other or self.root.branch is None:
            return self.root.is_other
        cursor = Cursor(raw, at)
        count = len(self.root.schema.root.items)
        try:
            return read_index(cursor, count, "") != self.root.branch
        except (IndexError, Unfit):
            return False


def _check_required(field: Field) -> None:
    if field.required:
        raise Unfit(field.path, REQUIRED)


class Reads:
    """Builds the reading functions of one schema. They give values as ``arrays.exact_leaf`` takes them."""

    def __init__(self, schema: WriterSchema) -> None:
        self._schema = schema

    def of(self, plan: Plan) -> Read:
        return getattr(self, f"_{plan.how}")(plan)  # type: ignore[no-any-return]

    def _null(self, plan: Plan) -> Read:
        def refuse(_: Cursor) -> None:
            raise Unfit(plan.path, REQUIRED)

        return refuse if plan.is_required else lambda _: None

    def _boolean(self, plan: Plan) -> Read:
        return lambda cursor: read_boolean(cursor, plan.path)

    def _whole(self, plan: Plan) -> Read:
        path, field = plan.path, plan.field
        raw = _integer(plan.writer, path)
        kind = "long" if field is None else field.kind
        if field is None or kind == "long" or (kind == "int" and plan.writer.kind == "int"):
            return raw
        if kind == "int":
            return lambda cursor: _within_int(raw(cursor), path)
        if kind == "decimal":
            return lambda cursor: fitted(field, Decimal(raw(cursor)))
        return lambda cursor: _as_float(raw(cursor), kind, path)

    def _epoch(self, plan: Plan) -> Read:
        field, raw = _field(plan), _integer(plan.writer, plan.path)
        meaning = plan.writer.logical and plan.writer.logical.meaning
        if meaning == "date":
            return lambda cursor: _day(raw(cursor), field)
        unit = UNITS[meaning] if meaning else cast("EpochUnit", field.unit)
        if field.kind == "date":
            return lambda cursor: _day_of(_micros(raw(cursor), unit, field), field)
        return lambda cursor: _micros(raw(cursor), unit, field)

    def _floating(self, plan: Plan) -> Read:
        return read_float if plan.writer.kind == "float" else read_double

    def _decimal(self, plan: Plan) -> Read:
        field, logical, raw = _field(plan), cast("Logical", plan.writer.logical), _octets(plan)
        path = plan.path
        is_same = field.type.scale == logical.scale
        is_within = is_same and field.type.precision >= logical.digits

        def read(cursor: Cursor) -> Decimal:
            number = decimal_of(raw(cursor), logical, path)
            return number if is_within else fitted(field, number)

        return read

    def _scaled(self, plan: Plan) -> Read:
        field, reads = _field(plan), [self.of(item) for item in plan.items]
        names = [each.name for each in plan.writer.fields]

        def read(cursor: Cursor) -> Decimal:
            values = dict(zip(names, [read(cursor) for read in reads], strict=True))
            scale, digits = values.get("scale"), values.get("value")
            if not isinstance(scale, int) or not isinstance(digits, bytes):
                raise Unfit(plan.path, "the record has no scale with the digits of a decimal")
            return fitted(field, of_digits(plan.path, digits, scale))

        return read

    def _bytes(self, plan: Plan) -> Read:
        field, raw = plan.field, _octets(plan)
        if field is None or field.kind != "fixed" or plan.writer.kind == "fixed":
            return raw
        width: int = field.type.byte_width

        def read(cursor: Cursor) -> bytes:
            octets: bytes = raw(cursor)
            if len(octets) != width:
                raise Unfit(
                    field.path,
                    f"expected {width} bytes for {type_text(field.type)}, found {len(octets)}",
                )
            return octets

        return read

    def _rest(self, plan: Plan) -> Read:
        width = (
            plan.field.type.byte_width if plan.field and plan.field.kind == "fixed" else None
        )

        def read(cursor: Cursor) -> bytes:
            octets = take(cursor, len(cursor.data) - cursor.at)
            if width is not None and len(octets) != width:
                raise Unfit(plan.path, f"expected {width} bytes, found {len(octets)}")
            return octets

        return read

    def _text(self, plan: Plan) -> Read:
        return lambda cursor: read_text(cursor, plan.path)

    def _uuid_text(self, plan: Plan) -> Read:
        path = plan.path
        if plan.field is None or plan.field.kind == "string":
            return self._text(plan)

        def read(cursor: Cursor) -> bytes:
            text = read_text(cursor, path)
            if UUID.fullmatch(text) is None:
                raise Unfit(path, "the string is no uuid 8-4-4-4-12 of hexadecimal digits")
            return bytes.fromhex(text.replace("-", ""))

        return read

    def _uuid_bytes(self, plan: Plan) -> Read:
        raw = _octets(plan)
        if plan.field is None or plan.field.kind == "uuid":
            return raw
        return lambda cursor: uuid_text(raw(cursor))

    def _time_text(self, plan: Plan) -> Read:
        path, field = plan.path, replace(_field(plan), unit=None)
        return lambda cursor: read_value(field, read_text(cursor, path))

    def _enum(self, plan: Plan) -> Read:
        path, symbols = plan.path, plan.writer.symbols

        def read(cursor: Cursor) -> str:
            return symbols[read_index(cursor, len(symbols), path)]

        return read

    def _record(self, plan: Plan) -> Read:
        reads = [self.of(item) for item in plan.items]
        required = [child for _, child in plan.required]
        if plan.field is not None and plan.slots == tuple(range(len(plan.field.children))):
            return lambda cursor: tuple([read(cursor) for read in reads])
        width = len(plan.field.children) if plan.field else 0
        # What has no member is read into a slot of its own, the last.
        steps = [
            (width if slot is None else slot, read)
            for slot, read in zip(plan.slots, reads, strict=True)
        ]

        def read(cursor: Cursor) -> tuple[Any, ...]:
            row = [None] * (width + 1)
            for slot, read in steps:
                row[slot] = read(cursor)
            for child in required:
                _check_required(child)
            return tuple(row[:width])

        return read

    def _array(self, plan: Plan) -> Read:
        (item,) = plan.items
        read, least = self.of(item), least_bytes(item.writer, self._schema)
        if plan.field is None:
            return lambda cursor: skip_items(cursor, least, plan.path, read)

        def read_all(cursor: Cursor) -> list[Any]:
            items: list[Any] = []
            for count in blocks(cursor, least, plan.path):
                items += [read(cursor) for _ in range(count)]
            return items

        return read_all

    def _map(self, plan: Plan) -> Read:
        key, item = (self.of(each) for each in plan.items)
        least = 1 + least_bytes(plan.items[1].writer, self._schema)

        def read_entry(cursor: Cursor) -> tuple[Any, Any]:
            return key(cursor), item(cursor)

        if plan.field is None:
            return lambda cursor: skip_items(cursor, least, plan.path, read_entry)

        def read(cursor: Cursor) -> list[tuple[Any, Any]]:
            # Of a key twice the last value counts, as in Java and Python.
            entries: dict[Any, Any] = {}
            for count in blocks(cursor, least, plan.path):
                entries.update(read_entry(cursor) for _ in range(count))
            return list(entries.items())

        return read

    def _optional(self, plan: Plan) -> Read:
        reads, path = [self.of(item) for item in plan.items], plan.path
        count = len(reads)

        def read(cursor: Cursor) -> Any:
            return reads[read_index(cursor, count, path)](cursor)

        return read

    def _union(self, plan: Plan) -> Read:
        reads, path, slots = [self.of(item) for item in plan.items], plan.path, plan.slots
        nulls = [item.how == "null" for item in plan.items]
        width = len(plan.field.children) if plan.field else 0

        def read(cursor: Cursor) -> tuple[Any, ...] | None:
            index = read_index(cursor, len(reads), path)
            if nulls[index]:
                if plan.is_required:
                    raise Unfit(path, REQUIRED)
                return None
            value, slot = reads[index](cursor), slots[index]
            for other, child in plan.required:
                if other != slot:
                    _check_required(child)
            row = [None] * width
            if slot is not None:
                row[slot] = value
            return tuple(row)

        return read

    def _again(self, plan: Plan) -> Read:
        text = JsonText(
            self._schema,
            plan.path,
            lambda writer: self.of(plan_without_field(writer, plan.path)),
        )
        return lambda cursor: text.read(cursor, plan.writer)

    def _other(self, plan: Plan) -> Read:
        field = _field(plan)
        to = type_text(field.type)
        reason = f"the writer's {writer_text(plan.writer)} does not fit {to}"
        is_number = plan.writer.kind in ("int", "long") and plan.writer.logical is None
        if is_number and field.kind in TIME_KINDS:
            reason += " without an epoch unit"

        def refuse(_: Cursor) -> None:
            raise Unfit(plan.path, reason)

        return refuse


def _field(plan: Plan) -> Field:
    """Return the field of a plan whose ``how`` is of values that have one."""
    return cast("Field", plan.field)


def _integer(writer: WriterType, path: str) -> Read:
    return read_long if writer.kind == "long" else lambda cursor: read_int(cursor, path)


def _octets(plan: Plan) -> Read:
    size, path = plan.writer.size, plan.path
    if plan.writer.kind == "fixed":
        return lambda cursor: take(cursor, size)
    return lambda cursor: read_bytes(cursor, path)


def _within_int(number: int, path: str) -> int:
    if not -(1 << 31) <= number < 1 << 31:
        raise Unfit(path, "the number is beyond int")
    return number


def _as_float(number: int, kind: str, path: str) -> float:
    value = float(number)
    if kind == "float":
        (value,) = struct.unpack("<f", struct.pack("<f", value))
    if int(value) != number:
        raise Unfit(path, f"no {kind} has exactly this number")
    return value


def _micros(number: int, unit: EpochUnit, field: Field) -> int:
    if unit == "ns":
        micros, rest = divmod(number, NS_PER_US)
        if rest and not field.floor:
            raise FinerTime(
                field.path,
                f"a {field.kind} holds microseconds, the number of nanoseconds has more digits",
                field.field_id,
            )
    else:
        micros = number * UNIT_US[unit]
    if not MIN_TIME_US <= micros <= MAX_TIME_US:
        raise outside_years(field, micros)
    return micros


def _day_of(micros: int, field: Field) -> int:
    days, rest = divmod(micros, DAY_US)
    if rest:
        raise Unfit(field.path, "the number is not the start of a day in UTC")
    return days


def _day(number: int, field: Field) -> int:
    if not MIN_DAY <= number <= MAX_DAY:
        raise Unfit(field.path, "the date is outside the years 0001 to 9999")
    return number


def writer_text(writer: WriterType) -> str:
    """Name a writer's type for messages: ``long``, ``long (timestamp-micros)``, ``record net.Peer``, ``union of int, string``."""
    if writer.kind == "union":
        return f"union of {', '.join(each.name or each.kind for each in writer.items)}"
    name = f"{writer.kind} {writer.name}" if writer.name else writer.kind
    return name if writer.logical is None else f"{name} ({writer.logical.meaning})"
