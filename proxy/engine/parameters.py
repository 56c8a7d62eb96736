"""Parameters on their way in: values to bind, and the types a client is told to send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from planner.errors import BadParameter
from planner.statement.ast import Node, parameters

#: An Arrow scalar of any type or unit, or a plain Python value.
Parameter: TypeAlias = Any
Values: TypeAlias = list[Any] | dict[str, Any]

_INT64 = range(-(1 << 63), 1 << 63)


def bound(document: Node, values: Sequence[Parameter]) -> Values:
    """Return what to bind for the parameters of a statement, given in their order.

    Raises:
        BadParameter: too many, too few, or a value the engine cannot hold.
    """
    names = parameters(document)
    if len(names) != len(values):
        raise BadParameter(
            f"the statement has {len(names)} parameters, {len(values)} values were given.",
            expected=len(names),
            given=len(values),
        )
    held = [_value(name, value) for name, value in zip(names, values, strict=True)]
    if names == tuple(str(number) for number in range(1, len(names) + 1)):
        return held
    return dict(zip(names, held, strict=True))


def _value(name: str, value: Parameter) -> Any:
    """Return a Python value DuckDB compares exactly. Whole numbers keep one type whatever their size."""
    try:
        if isinstance(value, pa.Scalar):
            if pa.types.is_timestamp(value.type) and value.type.unit == "ns":
                value = value.cast(pa.timestamp("us", value.type.tz), safe=False)
            value = value.as_py()
    except (ValueError, OverflowError, NotImplementedError) as error:
        raise BadParameter(
            f"parameter {name} has a value outside what the engine holds.", parameter=name
        ) from error
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    return duckdb.Value(value, duckdb.sqltypes.BIGINT) if value in _INT64 else value


def arrow_type(kind: Node) -> pa.DataType:
    """Return the type a client is told to send for a parameter of an engine type.

    int64 for every whole number: Go's database/sql refuses an int64 for an int32 in the client. Milliseconds
    for every time: JDBC writes them whatever the unit says (flight-sql.md 4.7). Text for all that stock
    clients cannot bind. Decimals keep their scale, which a client's vector enforces, but may be longer.
    """
    name = kind["id"]
    if name == "DECIMAL":
        return pa.decimal128(38, kind["type_info"]["scale"])
    return _TYPES.get(name, pa.string())


_TYPES = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"), pa.int64()),
    **dict.fromkeys(("UTINYINT", "USMALLINT", "UINTEGER"), pa.int64()),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT"), pa.decimal128(38, 0)),
    **dict.fromkeys(("FLOAT", "DOUBLE"), pa.float64()),
    **dict.fromkeys(
        ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), pa.timestamp("ms")
    ),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("ms", "UTC"),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
    "BLOB": pa.binary(),
}
