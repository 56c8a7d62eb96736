"""How the pages of types write columns and values."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pyarrow as pa

from planner.schema import TIMESTAMPTZ

#: How the page writes that a column loses what is below a microsecond.
FLOOR = " with a floor"
INT = pa.field("element", pa.int32())
TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal(5, 2)": pa.decimal128(5, 2),
    "decimal(38, 0)": pa.decimal128(38, 0),
    "decimal(38, 38)": pa.decimal128(38, 38),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": TIMESTAMPTZ,
    "string": pa.string(),
    "binary": pa.binary(),
    "fixed(2)": pa.binary(2),
    "uuid": pa.uuid(),
    "list of int": pa.list_(INT),
    "list of required int": pa.list_(INT.with_nullable(False)),
    "map of string to int": pa.map_(pa.string(), pa.int32()),
    "map of int to string": pa.map_(pa.int32(), pa.string()),
    "map of double to int": pa.map_(pa.float64(), pa.int32()),
    "struct of x int, y required int": pa.struct(
        [pa.field("x", pa.int32()), pa.field("y", pa.int32(), nullable=False)]
    ),
}


def access_filter(value: Any) -> str:
    """How the page writes a value."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case str():
            return value.replace("\0", r"\x00")
        case datetime() | date():
            return value.isoformat()
        case [(_, _), *_]:
            return (
                "{"
                + ", ".join(
                    f"{access_filter(key)}: {access_filter(item)}" for key, item in value
                )
                + "}"
            )
        case dict():
            return access_filter(list(value.items()))
        case list():
            return "[" + ", ".join(map(access_filter, value)) + "]"
    return str(value)
