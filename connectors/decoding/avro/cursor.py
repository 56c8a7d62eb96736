"""Avro's binary encoding (specification 1.12, "Binary Encoding"), value by value, nothing beyond its bytes.

Where the bytes end too early, functions raise IndexError or struct.error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

from connectors.decoding.policy import Unfit
from planner.evolution.writer_types import Logical, WriterSchema, WriterType

#: Elements without bytes (null, a record of none) that one record may have: five bytes could else ask for 2^31 of them.
MAX_EMPTY_ITEMS = 10_000

#: Holds every decimal of 38 digits.
_EXACT = Context(prec=100)
_FLOAT = struct.Struct("<f").unpack_from
_DOUBLE = struct.Struct("<d").unpack_from


@dataclass(slots=True)
class Cursor:
    """A position in the bytes of one record."""

    data: bytes
    at: int
    #: Elements without bytes that were counted so far.
    empty: int = 0


#: Reads one value and moves the cursor behind it. Raises ``Unfit``, IndexError or struct.error.
Read = Callable[[Cursor], Any]


def read_long(cursor: Cursor) -> int:
    """Read a varint of at most 64 bits, zigzag."""
    data = cursor.data
    at = cursor.at
    byte = data[at]
    if byte < 0x80:
        cursor.at = at + 1
        return (byte >> 1) ^ -(byte & 1)
    number = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70 or number >> 64:
            raise Unfit(None, "a number has more than 64 bits")
    cursor.at = at + 1
    return (number >> 1) ^ -(number & 1)


def read_int(cursor: Cursor, path: str) -> int:
    number = read_long(cursor)
    if not -0x80000000 <= number <= 0x7FFFFFFF:
        raise Unfit(path, "the writer's int is beyond 32 bits")
    return number


def read_index(cursor: Cursor, count: int, path: str) -> int:
    """Read the index of an enum's symbol or of a union's branch."""
    at = cursor.at
    byte = cursor.data[at]
    if byte < 0x80 and not byte & 1:
        cursor.at = at + 1
        index = byte >> 1
    else:
        index = read_long(cursor)
    if not 0 <= index < count:
        raise Unfit(path or None, f"index {index} is none of the schema's {count} choices")
    return index


def read_boolean(cursor: Cursor, path: str) -> bool:
    byte = cursor.data[cursor.at]
    if byte > 1:
        raise Unfit(path, f"byte {byte:02x} is no boolean")
    cursor.at += 1
    return byte == 1


def read_float(cursor: Cursor) -> float:
    (number,) = _FLOAT(cursor.data, cursor.at)
    cursor.at += 4
    return number  # type: ignore[no-any-return]


def read_double(cursor: Cursor) -> float:
    (number,) = _DOUBLE(cursor.data, cursor.at)
    cursor.at += 8
    return number  # type: ignore[no-any-return]


def take(cursor: Cursor, size: int) -> bytes:
    start = cursor.at
    end = start + size
    if end > len(cursor.data):
        raise IndexError(end)
    cursor.at = end
    return cursor.data[start:end]


def read_bytes(cursor: Cursor, path: str) -> bytes:
    size = read_long(cursor)
    if size < 0:
        raise Unfit(path, "its length is negative")
    return take(cursor, size)


def read_text(cursor: Cursor, path: str) -> str:
    octets = read_bytes(cursor, path)
    try:
        return octets.decode()
    except UnicodeDecodeError as cause:
        raise Unfit(path, f"the string is not UTF-8 (byte {cause.start})") from None


def blocks(cursor: Cursor, least: int, path: str) -> Iterator[int]:
    """Yield the number of elements of each block of an array or map, until the empty one.

    ``least``: bytes that an element has at least. A count that the bytes cannot hold is refused before anything is read.
    A negative count is followed by the size of its block, which must be true.
    """
    while count := read_long(cursor):
        end = None
        if count < 0:
            count = -count
            size = read_long(cursor)
            end = cursor.at + size
            if size < 0 or end > len(cursor.data):
                raise Unfit(path, "the size of a block is not that of its bytes")
        if not least:
            cursor.empty += count
            if cursor.empty > MAX_EMPTY_ITEMS:
                raise Unfit(
                    path, f"a record has more than {MAX_EMPTY_ITEMS:,} elements without bytes"
                )
        elif count * least > len(cursor.data) - cursor.at:
            raise Unfit(path, "it has more elements than bytes")
        yield count
        if end is not None and cursor.at != end:
            raise Unfit(path, "the size of a block is not that of its bytes")


def skip_items(cursor: Cursor, least: int, path: str, read: Read) -> None:
    """Read all elements of an array or map; those of no bytes are counted."""
    for count in blocks(cursor, least, path):
        if least:
            for _ in range(count):
                read(cursor)


def least_bytes(writer: WriterType, schema: WriterSchema) -> int:
    """Return the fewest bytes that a value takes; 0 means that none takes any, or that no value ends."""
    return _least(writer, schema, {})


def _least(writer: WriterType, schema: WriterSchema, recursive: dict[str, int]) -> int:
    """``recursive`` has the records inside themselves that were looked at, 0 while that goes on."""
    if writer.kind == "again":
        if writer.name not in recursive:
            recursive[writer.name] = 0
            inner = schema.recursive[writer.name]
            recursive[writer.name] = _least(inner, schema, recursive)
        return recursive[writer.name]
    if writer.kind == "record":
        return sum(_least(each.type, schema, recursive) for each in writer.fields)
    if writer.kind == "fixed":
        return writer.size
    return {"null": 0, "float": 4, "double": 8}.get(writer.kind, 1)


def uuid_text(octets: bytes) -> str:
    digits = octets.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def decimal_of(octets: bytes, logical: Logical, path: str) -> Decimal:
    """Return the decimal that two's complement says. Raises Unfit: it has more digits than the writer's type."""
    unscaled = int.from_bytes(octets, signed=True)
    if abs(unscaled) >= 10**logical.digits:
        raise Unfit(path, f"the number is beyond {logical.limit}")
    return Decimal(unscaled).scaleb(-logical.scale, context=_EXACT)
