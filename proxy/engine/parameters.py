"""Parameters on their way in: values to bind, and the types a client is told to send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from planner.errors import BadParameter
from planner.statement.ast import Node, parameters
from planner.statement.parameters import addends, integers

#: An Arrow scalar of any type or unit, or a plain Python value.
Parameter: TypeAlias = Any

_INT64 = range(-(1 << 63), 1 << 63)
_INT32 = range(-(1 << 31), 1 << 31)
#: What Arrow raises of a valid value that Python has no value for: a date beyond the year 9999, an interval of months.
_WITHOUT_VALUE = (
    ValueError,
    ArithmeticError,
    LookupError,
    TypeError,
    NotImplementedError,
    pa.ArrowException,
)


def bound(
    document: Node, values: Sequence[Parameter], *, narrow: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return what to bind for the parameters of a statement, by name; ``values`` are in their order.

    Whole numbers are BIGINT. INTEGER, where they fit, are those that stand where functions take nothing else, and
    those named in ``narrow``.

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
    plain = [_plain(name, value) for name, value in zip(names, values, strict=True)]
    if any(map(_is_whole, plain)):
        narrow |= integers(document)
    return {
        name: _value(value, name in narrow) for name, value in zip(names, plain, strict=True)
    }


def execute(
    cursor: duckdb.DuckDBPyConnection, sql: str, document: Node, values: Sequence[Parameter]
) -> None:
    """Execute ``sql``, the text of ``document``, with the values of its parameters.

    A day plus a BIGINT is nothing DuckDB knows, a day plus an INTEGER is. The text does not tell which of
    both is a number, and INTEGER overflows sooner: so it is tried where the statement does not bind otherwise.

    Raises:
        duckdb.Error: it does not bind, or fails at once.
        BadParameter: as ``bound``.
    """
    try:
        cursor.execute(sql, bound(document, values))
    except duckdb.BinderException:
        narrow = addends(document) if values else frozenset()
        if not narrow:
            raise
        cursor.execute(sql, bound(document, values, narrow=narrow))


def _plain(name: str, value: Parameter) -> Any:
    """Return a Python value DuckDB compares exactly."""
    try:
        if isinstance(value, pa.Scalar):
            if pa.types.is_timestamp(value.type) and value.type.unit == "ns":
                value = value.cast(pa.timestamp("us", value.type.tz), safe=False)
            value = value.as_py()
    except _WITHOUT_VALUE as error:
        raise BadParameter(
            f"parameter {name} has a value outside what the engine holds.", parameter=name
        ) from error
    return value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _value(value: Any, is_narrow: bool) -> Any:
    """Give whole numbers of every size one type, but for those in a place for INTEGER."""
    if not _is_whole(value):
        return value
    if is_narrow and value in _INT32:
        return duckdb.Value(value, duckdb.sqltypes.INTEGER)
    return duckdb.Value(value, duckdb.sqltypes.BIGINT) if value in _INT64 else value


def arrow_type(kind: Node) -> pa.DataType:
    """Return the type a client is told to send for a parameter of an engine type.

    int64 for every whole number: Go's database/sql refuses an int64 for an int32 in the client. Milliseconds
    for every time: JDBC writes them under any unit. Text for all that stock
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
