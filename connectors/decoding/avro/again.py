"""A record inside itself, as JSON text (docs/avro-types.md, "Recursion")."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, cast

from connectors.decoding.avro.cursor import (
    Cursor,
    Read,
    blocks,
    decimal_of,
    least_bytes,
    read_index,
    read_text,
    uuid_text,
)
from connectors.decoding.json.lenient import json_text
from connectors.decoding.json.parsing import MAX_DEPTH, Number
from connectors.decoding.policy import Unfit
from planner.evolution.table_types import members_of
from planner.evolution.writer_types import Logical, WriterSchema, WriterType


@dataclass(slots=True)
class _Open:
    """A record, array or map that is being read: ``next`` gives where each value goes, and its type."""

    next: Iterator[tuple[Any, WriterType]]
    value: Any


class JsonText:
    """Reads values of one schema as JSON text: without white space, members in the order of the schema.

    ``scalar`` gives how a value without others inside is read. Keeps a stack of its own, since 500 levels are more than
    Python's takes.
    """

    def __init__(
        self, schema: WriterSchema, path: str, scalar: Callable[[WriterType], Read]
    ) -> None:
        self._schema = schema
        self._path = path
        self._scalar = scalar
        #: By the identity of a type of the schema.
        self._reads: dict[int, Read] = {}

    def read(self, cursor: Cursor, writer: WriterType) -> str:
        """Read one value. Raises Unfit, and IndexError or struct.error where the bytes end too early."""
        top: list[Any] = [None]
        stack = [_Open(iter([(0, writer)]), top)]
        while stack:
            for key, each in stack[-1].next:
                target = stack[-1].value
                value = self._of(each)(cursor)
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

    def _of(self, writer: WriterType) -> Read:
        """Return how a type is read: as a scalar, or as an ``_Open`` where it has values inside."""
        read = self._reads.get(id(writer))
        if read is None:
            read = self._reads[id(writer)] = self._built(writer)
        return read

    def _built(self, writer: WriterType) -> Read:
        match writer.kind:
            case "again":
                return self._of(self._schema.recursive[writer.name])
            case "union":
                return self._branch(writer)
            case "record":
                members = [(each.name, each.type) for each in writer.fields]
                return lambda _: _Open(iter(members), {})
            case "array":
                return self._items(writer.items[0])
            case "map":
                return self._entries(writer.items[0])
        read = self._scalar(writer)
        return lambda cursor: _as_json(read(cursor), writer, self._path)

    def _branch(self, writer: WriterType) -> Read:
        names = _branch_names(writer)

        def read(cursor: Cursor) -> Any:
            index = read_index(cursor, len(names), self._path)
            name, item = names[index], writer.items[index]
            return _Open(iter([(name, item)]), {}) if name else self._of(item)(cursor)

        return read

    def _items(self, item: WriterType) -> Read:
        least = least_bytes(item, self._schema)

        def each(cursor: Cursor) -> Iterator[tuple[None, WriterType]]:
            for count in blocks(cursor, least, self._path):
                for _ in range(count):
                    yield None, item

        return lambda cursor: _Open(each(cursor), [])

    def _entries(self, item: WriterType) -> Read:
        least = 1 + least_bytes(item, self._schema)

        def each(cursor: Cursor) -> Iterator[tuple[str, WriterType]]:
            for count in blocks(cursor, least, self._path):
                for _ in range(count):
                    yield read_text(cursor, self._path), item

        return lambda cursor: _Open(each(cursor), {})


def _branch_names(writer: WriterType) -> list[str]:
    """Return the names of a union's branches; empty ones where the value stands alone: null, or the only other."""
    if writer.value.kind != "union":
        return [""] * len(writer.items)
    names = {each: name for name, each in members_of(writer.value)}
    return [names.get(each, "") for each in writer.items]


def _as_json(value: Any, writer: WriterType, path: str) -> Any:
    if writer.logical is not None:
        return _meant(value, writer, path)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float):
        if math.isfinite(value):
            return Number(repr(value))
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return Number(value) if type(value) is int else value


def _meant(value: Any, writer: WriterType, path: str) -> Any:
    """Return a value with a meaning in the form that our JSON decoder takes for its type."""
    logical = cast("Logical", writer.logical)
    if logical.meaning == "decimal":
        return Number(format(decimal_of(value, logical, path), "f"))
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
