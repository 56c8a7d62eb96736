"""Names, texts and types as DuckDB spells them in SQL."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from planner.errors import UnsupportedType


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def same_name(name: str, names: Collection[str]) -> str | None:
    """Find a name as SQL compares names: the exact one, else one that differs in case."""
    if name in names:
        return name
    return next((other for other in sorted(names) if other.lower() == name.lower()), None)


def sql_type(kind: pa.DataType) -> str:
    """Return DuckDB's type for a column type.

    Raises:
        UnsupportedType: there is none.
    """
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
