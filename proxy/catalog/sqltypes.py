"""Arrow types as SQL names them, with their sizes."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from planner.sql_text import identifier


@dataclass(frozen=True, slots=True)
class SqlType:
    """A type's SQL name; ``precision`` in digits, characters of a time, or bytes; ``scale`` in digits."""

    name: str
    precision: int | None = None
    scale: int | None = None


# Decimal digits of integers, binary precision of floats given as decimal digits (as JDBC's COLUMN_SIZE).
_SIMPLE: dict[pa.DataType, SqlType] = {
    pa.null(): SqlType("NULL"),
    pa.bool_(): SqlType("BOOLEAN", 1),
    pa.int8(): SqlType("TINYINT", 3, 0),
    pa.int16(): SqlType("SMALLINT", 5, 0),
    pa.int32(): SqlType("INTEGER", 10, 0),
    pa.int64(): SqlType("BIGINT", 19, 0),
    pa.uint8(): SqlType("UTINYINT", 3, 0),
    pa.uint16(): SqlType("USMALLINT", 5, 0),
    pa.uint32(): SqlType("UINTEGER", 10, 0),
    pa.uint64(): SqlType("UBIGINT", 20, 0),
    pa.float32(): SqlType("FLOAT", 7),
    pa.float64(): SqlType("DOUBLE", 15),
    pa.date32(): SqlType("DATE", 10),
    pa.month_day_nano_interval(): SqlType("INTERVAL"),
}


@functools.lru_cache(maxsize=4096)
def sql_type(kind: pa.DataType) -> SqlType:
    """The SQL type of an Arrow type; DuckDB's names, since its SQL is what is spoken here."""
    simple = _SIMPLE.get(kind)
    if simple is not None:
        return simple
    if types.is_decimal(kind):
        return SqlType(f"DECIMAL({kind.precision},{kind.scale})", kind.precision, kind.scale)
    if types.is_timestamp(kind):
        digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[kind.unit]
        name = "TIMESTAMP WITH TIME ZONE" if kind.tz else "TIMESTAMP"
        return SqlType(name, 19 + (digits + 1 if digits else 0), digits)
    if types.is_time(kind):
        return SqlType("TIME", 15, 6)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return SqlType(sql_type(kind.value_type).name + "[]")
    if types.is_map(kind):
        return SqlType(f"MAP({sql_type(kind.key_type).name}, {sql_type(kind.item_type).name})")
    if types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        return SqlType(
            f"STRUCT({', '.join(f'{identifier(f.name)} {sql_type(f.type).name}' for f in fields)})"
        )
    if types.is_dictionary(kind):
        return sql_type(kind.value_type)
    if types.is_fixed_size_binary(kind):
        return SqlType("BLOB", kind.byte_width)
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return SqlType("BLOB")
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return SqlType("VARCHAR")
    return SqlType(str(kind).upper())
