"""Column types as users write them: the Iceberg spec's own spelling, nested types included.

``long``, ``decimal(10,2)``, ``fixed[16]``, ``list<string>``, ``map<string, double>``,
``struct<a: int, b: list<date>>``. Names in structs are bare or quoted: ``struct<$oid: string, "a b": int>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from itertools import chain, repeat
from typing import TypeVar

import pyarrow as pa

from planner.errors import BadConfig, UnsupportedType
from planner.schema import PRIMITIVES
from planner.sql_text import identifier, quoted_at, spelled

_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d+|[<>(),:\[\]])")

#: A field's name without quotes, up to the colon.
_BARE_NAME = re.compile(r'[^\s"<>(),:\[\]]+')

_SPACE = re.compile(r"\s*")
_MAX_DEPTH = 32
_MAX_DECIMAL_DIGITS = 38
_T = TypeVar("_T")


def parse_type(text: str) -> pa.DataType:
    """Return the pyarrow type a text names.

    Raises:
        BadConfig: the text is not a type; says what was expected and where.
    """
    reader = _Reader(text)
    kind = reader.type(0)
    reader.end()
    return kind


def type_text(kind: pa.DataType) -> str:
    """Return the text that ``parse_type`` reads as ``kind``, a type of a column."""
    if pa.types.is_struct(kind):
        members = (f"{spelled(field.name)}: {type_text(field.type)}" for field in kind)
        return f"struct<{', '.join(members)}>"
    if pa.types.is_list(kind):
        return f"list<{type_text(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_text(kind.key_type)}, {type_text(kind.item_type)}>"
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    return next(name for name, primitive in PRIMITIVES.items() if primitive == kind)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def type(self, depth: int) -> pa.DataType:
        if depth > _MAX_DEPTH:
            raise self._wrong("fewer nested types")
        name, inner = self._take("a type name"), partial(self.type, depth + 1)
        match name.lower():
            case "decimal":
                precision, scale = self._inside("()", self._number, self._number)
                if not (1 <= precision <= _MAX_DECIMAL_DIGITS and scale <= precision):
                    raise self._wrong("decimal(precision up to 38, scale up to precision)")
                return pa.decimal128(precision, scale)
            case "fixed":
                return pa.binary(*self._inside("[]", self._number))
            case "list":
                return pa.list_(*self._inside("<>", inner))
            case "map":
                return pa.map_(*self._inside("<>", inner, inner))
            case "struct":
                return self._struct(depth)
            case simple if simple in PRIMITIVES:
                return PRIMITIVES[simple]
        raise self._wrong(f"one of {', '.join(PRIMITIVES)}, decimal, fixed, list, map, struct")

    def end(self) -> None:
        if self._text[self._position :].strip():
            raise self._wrong("the end")

    def _struct(self, depth: int) -> pa.DataType:
        fields: list[pa.Field] = []
        self._expect("<")
        while True:
            name = self._field_name()
            self._expect(":")
            fields.append(pa.field(name, self.type(depth + 1)))
            if self._take("',' or '>'") == ">":
                return pa.struct(fields)
            self._position -= 1
            self._expect(",")

    def _field_name(self) -> str:
        space = _SPACE.match(self._text, self._position)
        start = self._position if space is None else space.end()
        if self._text.startswith('"', start):
            name, self._position = quoted_at(self._text, start)
            return name
        match = _BARE_NAME.match(self._text, start)
        if match is None:
            raise self._wrong("a field name")
        self._position = match.end()
        return match[0]

    def _take(self, expected: str) -> str:
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise self._wrong(expected)
        self._position = match.end()
        return match.group(1)

    def _expect(self, token: str) -> None:
        if self._take(repr(token)) != token:
            raise self._wrong(repr(token))

    def _inside(self, marks: str, *reads: Callable[[], _T]) -> list[_T]:
        """Read what is between two marks, with commas between."""
        values = []
        for before, read in zip(chain(marks[0], repeat(",")), reads, strict=False):
            self._expect(before)
            values.append(read())
        self._expect(marks[1])
        return values

    def _number(self) -> int:
        token = self._take("a number")
        if not token.isdigit():
            raise self._wrong("a number")
        return int(token)

    def _wrong(self, expected: str) -> BadConfig:
        return BadConfig(
            f"{self._text!r} is not a column type: expected {expected} near character {self._position}.",
            type=self._text,
        )


def sql_type(kind: pa.DataType) -> str:
    """Return DuckDB's type for a column type. Raises UnsupportedType: there is none."""
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "BLOB"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMPTZ" if kind.tz else _TIMESTAMPS[kind.unit]
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if pa.types.is_struct(kind) and kind.num_fields:
        return f"STRUCT({', '.join(f'{identifier(field.name)} {sql_type(field.type)}' for field in kind)})"
    raise UnsupportedType(f"columns of type {kind} cannot be queried.", type=str(kind))


_TIMESTAMPS = {
    "s": "TIMESTAMP_S",
    "ms": "TIMESTAMP_MS",
    "us": "TIMESTAMP",
    "ns": "TIMESTAMP_NS",
}

_SIMPLE: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.large_binary(): "BLOB",
    pa.uuid(): "UUID",
}


def exact_select(schema: pa.Schema, source: str, exact: Collection[str] | None = None) -> str:
    """Select every column by name, cast to its exact type. A cast to the same type costs nothing.

    ``exact`` are columns of files whose statistics are trusted; None: the rows are in no files.
    """
    columns = ", ".join(
        f"CAST({identifier(field.name) if exact is None or field.name in exact else _guarded(field)} "
        f"AS {sql_type(field.type)}) AS {identifier(field.name)}"
        for field in schema
    )
    return f"SELECT {columns} FROM {source}"  # noqa: S608 - names are quoted


def _guarded(field: pa.Field) -> str:
    """Return an expression of a file's column whose filters are not answered from statistics if they may lie.

    Bounds in Parquet and Iceberg leave NaN out, in SQL it is the largest number: a file that holds 1.0 and NaN
    was skipped for ``x > 5``, for ``ORDER BY x DESC LIMIT 1`` and within structs (DuckDB 1.5.5). Lists and maps
    are not pruned.
    """
    name = identifier(field.name)
    if pa.types.is_floating(field.type):
        # The same bits, in a third of the time that a multiplication by 1 takes.
        return f"-(-{name})"
    if _holds_float(field.type):
        return f"CASE WHEN {name} IS NULL THEN NULL ELSE {name} END"
    return name


def _holds_float(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_holds_float(field.type) for field in kind)
    return bool(pa.types.is_floating(kind))
