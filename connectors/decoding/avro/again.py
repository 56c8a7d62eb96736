"""A record inside itself, as JSON text (docs/avro-types.md, "Recursion")."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, cast

from connectors.decoding.avro.cursor import (
    Cursor,
    blocks,
    least_bytes,
    read_boolean,
    read_bytes,
    read_double,
    read_float,
    read_index,
    read_int,
    read_long,
    read_text,
    take,
    uuid_text,
)
from connectors.decoding.json.lenient import json_text
from connectors.decoding.json.parsing import MAX_DEPTH, Number
from connectors.decoding.policy import Unfit
from planner.evolution.table_types import members_of
from planner.evolution.writer_types import Logical, WriterSchema, WriterType

_EXACT = Context(prec=100)


@dataclass(slots=True)
class _Open:
    """A record, array or map that is being read: ``next`` gives where each value goes, and its type."""

    next: Iterator[tuple[Any, WriterType]]
    value: Any


class JsonText:
    """Reads values of one schema as JSON text: without white space, members in the order of the schema.

    Keeps a stack of its own, since 500 levels are more than Python's takes.
    """

    def __init__(self, schema: WriterSchema, path: str) -> None:
        self._schema = schema
        self._path = path
        #: By the identity of a type of the schema: names of a union's branches, least bytes of an element.
        self._names: dict[int, list[str]] = {}
        self._least: dict[int, int] = {}

    def read(self, cursor: Cursor, writer: WriterType) -> str:
        """Read one value. Raises Unfit, and IndexError or struct.error where the bytes end too early."""
        top: list[Any] = [None]
        stack = [_Open(iter([(0, writer)]), top)]
        while stack:
            for key, each in stack[-1].next:
                target = stack[-1].value
                value = self._value(cursor, each)
                opened = value if isinstance(value, _Open) else None
                value = value if opened is None else opened.value
                if isinstance(target, list) and key is None:
                    target.append(value)
                else:
                    target[key] = value
                if opened is not None:
                    stack.append(opened)
                    if len(stack) > MAX_DEPTH + 1:
                        raise Unfit(
                            self._path, f"it is nested more than {MAX_DEPTH} levels deep"
                        )
                    break
            else:
                stack.pop()
        return json_text(top[0])

    def _value(self, cursor: Cursor, writer: WriterType) -> Any:
        """Read a scalar, or open what has values inside."""
        if writer.kind == "again":
            writer = self._schema.recursive[writer.name]
        if writer.kind == "union":
            return self._branch(cursor, writer)
        if writer.kind == "record":
            return _Open(iter([(each.name, each.type) for each in writer.fields]), {})
        if writer.kind == "array":
            return _Open(self._items(cursor, writer.items[0]), [])
        if writer.kind == "map":
            return _Open(self._entries(cursor, writer.items[0]), {})
        return _scalar(cursor, writer, self._path)

    def _branch(self, cursor: Cursor, writer: WriterType) -> Any:
        index = read_index(cursor, len(writer.items), self._path)
        names = self._names.get(id(writer))
        if names is None:
            names = self._names[id(writer)] = _branch_names(writer)
        if not names[index]:
            return self._value(cursor, writer.items[index])
        return _Open(iter([(names[index], writer.items[index])]), {})

    def _items(self, cursor: Cursor, item: WriterType) -> Iterator[tuple[None, WriterType]]:
        for count in blocks(cursor, self._least_of(item), self._path):
            for _ in range(count):
                yield None, item

    def _entries(self, cursor: Cursor, item: WriterType) -> Iterator[tuple[str, WriterType]]:
        for count in blocks(cursor, 1 + self._least_of(item), self._path):
            for _ in range(count):
                yield read_text(cursor, self._path), item

    def _least_of(self, item: WriterType) -> int:
        least = self._least.get(id(item))
        if least is None:
            least = self._least[id(item)] = least_bytes(item, self._schema)
        return least


def _branch_names(writer: WriterType) -> list[str]:
    """Return the names of a union's branches; empty ones where the value stands alone: null, or the only other."""
    if writer.value.kind != "union":
        return [""] * len(writer.items)
    names = {each: name for name, each in members_of(writer.value)}
    return [names.get(each, "") for each in writer.items]


def _scalar(cursor: Cursor, writer: WriterType, path: str) -> Any:
    value = _read(cursor, writer, path)
    if writer.logical is not None:
        return _meant(value, writer, path)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        if math.isfinite(value):
            return Number(repr(value))
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return Number(value) if type(value) is int else value


def _read(cursor: Cursor, writer: WriterType, path: str) -> Any:
    match writer.kind:
        case "null":
            return None
        case "boolean":
            return read_boolean(cursor, path)
        case "int":
            return read_int(cursor, path)
        case "long":
            return read_long(cursor)
        case "float":
            return read_float(cursor)
        case "double":
            return read_double(cursor)
        case "fixed":
            return take(cursor, writer.size)
        case "bytes":
            return read_bytes(cursor, path)
        case "enum":
            return writer.symbols[read_index(cursor, len(writer.symbols), path)]
    return read_text(cursor, path)


def _meant(value: Any, writer: WriterType, path: str) -> Any:
    """Return a value with a meaning in the form that our JSON decoder takes for its type."""
    logical = cast("Logical", writer.logical)
    if logical.meaning == "decimal":
        unscaled = int.from_bytes(value, signed=True)
        if abs(unscaled) >= 10**logical.digits:
            raise Unfit(path, f"the number is beyond {logical.limit}")
        return Number(format(Decimal(unscaled).scaleb(-logical.scale, context=_EXACT), "f"))
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return uuid_text(value) if logical.meaning == "uuid" else value.hex()
    if logical.meaning.startswith("time-"):
        return Number(value)
    write = _TIMES[logical.meaning.removeprefix("local-")]
    try:
        text = write(value)
    except OverflowError:
        raise Unfit(path, "the time is outside the years 0001 to 9999") from None
    return text + "Z" if logical.meaning.startswith("timestamp-") else text


def _moment(seconds: int, nanoseconds: int) -> str:
    moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)  # noqa: DTZ001
    return moment.isoformat() + (f".{nanoseconds:09d}".rstrip("0") if nanoseconds else "")


def _of_units(units: int) -> Callable[[int], str]:
    def write(value: int) -> str:
        seconds, rest = divmod(value, units)
        return _moment(seconds, rest * (1_000_000_000 // units))

    return write


_TIMES: dict[str, Callable[[int], str]] = {
    "date": lambda days: (date(1970, 1, 1) + timedelta(days=days)).isoformat(),
    "timestamp-millis": _of_units(1_000),
    "timestamp-micros": _of_units(1_000_000),
    "timestamp-nanos": _of_units(1_000_000_000),
}
