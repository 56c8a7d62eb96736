"""Turns conditions on a table's columns into values that files can be pruned by.

DuckDB itself works out the constants, so casts, time zones, ``now()`` and parameters mean the same. One counts only
where, cast to the column's type, it is still equal, and the two types compare without loss (``_COMPARED``). Everything
else needs all rows.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import pyarrow as pa

from planner.errors import FederationError
from planner.reading.filters import EVERYTHING, Condition, ScanFilter
from planner.schema import Column, TableSchema
from planner.statement.ast import Node, fold, kind_of
from planner.statement.conditions import Conjunct, Positions
from planner.statement.row_expression import row_of
from planner.type_text import sql_type

_WHOLE = frozenset(
    (
        *("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"),
        *("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "DECIMAL"),
    )
)
_TIMES = frozenset(("DATE", "TIMESTAMP", "VARCHAR"))
#: Types of constants a column is compared with in a type that keeps its values apart, and in their order.
#: Not: whole numbers with floating ones (2**53 + 1 would equal 2.0**53), numbers with text, and times without
#: zone with those that have one (a clock shows some hours twice).
_COMPARED: tuple[tuple[tuple[pa.DataType, ...], frozenset[str]], ...] = (
    ((pa.int32(), pa.int64()), _WHOLE),
    ((pa.float32(), pa.float64()), _WHOLE | {"FLOAT", "DOUBLE"}),
    ((pa.date32(), pa.timestamp("us")), _TIMES),
    ((pa.timestamp("us", tz="UTC"),), _TIMES | {"TIMESTAMP WITH TIME ZONE"}),
    ((pa.string(),), frozenset(("VARCHAR",))),
    ((pa.uuid(),), frozenset(("UUID", "VARCHAR"))),
    ((pa.bool_(),), frozenset(("BOOLEAN",))),
    ((pa.binary(),), frozenset(("BLOB",))),
)

_NULL = '"NULL"'
#: Literals whose value the tree holds as it is.
_PLAIN = frozenset(("INTEGER", "BIGINT", "VARCHAR"))
_TIMESTAMPTZ = pa.timestamp("us", tz="UTC")
#: Functions of the statement's time.
_NOW = frozenset(("now", "get_current_timestamp", "transaction_timestamp"))
_UNITS_US = {
    "to_hours": 3_600_000_000,
    "to_minutes": 60_000_000,
    "to_seconds": 1_000_000,
    "to_milliseconds": 1_000,
    "to_microseconds": 1,
}
_WIDER = frozenset(("INTEGER", "BIGINT", "DOUBLE"))
#: A century: the engine says what is beyond its times.
_MAX_SPAN_US = 100 * 366 * 24 * 3_600_000_000
#: What fits a column of whole numbers.
_RANGES = {pa.int32(): range(-(1 << 31), 1 << 31), pa.int64(): range(-(1 << 63), 1 << 63)}


#: Returns expressions of ours over the row of constants that a statement selects. Raises FederationError: it fails.
Evaluate: TypeAlias = Callable[[Node, str], pa.Table]


def scan_filter(
    evaluate: Evaluate,
    positions: Positions,
    schema: TableSchema,
    parameters: Mapping[str, Any] | None = None,
    now_us: int | None = None,
) -> ScanFilter:
    """Return what rows of one table must meet, at any of the places that name it, to matter.

    ``parameters`` are those of the statement, by name; ``now_us`` is its time, microseconds since 1970.
    """
    everywhere = list(chain.from_iterable(positions))
    columns = _comparable(schema, everywhere)
    has_clocks = any(conjunct.clocks for conjunct in everywhere)
    names = {fold(name) for name in schema.names} if has_clocks else frozenset()
    per_position = [
        [
            (columns[name], conjunct)
            for conjunct in conjuncts
            if (name := fold(conjunct.column)) in columns and names.isdisjoint(conjunct.clocks)
        ]
        for conjuncts in positions
    ]
    if not all(per_position):
        return EVERYTHING
    values = _Values(parameters or {}, now_us)
    constants = _constants(evaluate, list(chain.from_iterable(per_position)), values)
    if constants is None:
        return EVERYTHING
    alternatives = [
        tuple(
            condition
            for column, conjunct in position
            if (condition := _condition(column, conjunct, constants)) is not None
        )
        for position in per_position
    ]
    return tuple(alternatives) if all(alternatives) else EVERYTHING


def _comparable(schema: TableSchema, conjuncts: Collection[Conjunct]) -> Mapping[str, Column]:
    """Return the conjuncts' columns whose values have an order, by folded name; names that meet there are left out."""
    columns: dict[str, list[Column]] = {fold(conjunct.column): [] for conjunct in conjuncts}
    for column in schema.columns:
        columns.get(fold(column.name), []).append(column)
    return {
        name: same[0]
        for name, same in columns.items()
        if len(same) == 1 and _compared(same[0].type)
    }


def _compared(kind: pa.DataType) -> frozenset[str]:
    if pa.types.is_decimal(kind):
        return _WHOLE
    if pa.types.is_fixed_size_binary(kind):
        return frozenset(("BLOB",))
    return next((allowed for kinds, allowed in _COMPARED if kind in kinds), frozenset())


@dataclass(frozen=True, slots=True)
class _Constant:
    """An operand: its own type, and its value in the column's type where that is the same value."""

    type: str
    value: pa.Scalar | None


def _constants(
    evaluate: Evaluate,
    conjuncts: Sequence[tuple[Column, Conjunct]],
    values: _Values,
) -> Mapping[int, _Constant] | None:
    """Work out every operand, by the ``id`` of its node; None where that fails, as the statement then will."""
    operands = [
        (operand, column) for column, conjunct in conjuncts for operand in conjunct.operands
    ]
    plain = {id(operand): _plain(operand, values, column.type) for operand, column in operands}
    constants = {key: constant for key, constant in plain.items() if constant is not None}
    if len(constants) == len(plain):
        return constants
    casts = (
        f"TRY_CAST(c{number} AS {sql_type(column.type)}) AS v{number}, typeof(c{number}) AS t{number}, "
        f"TRY_CAST(c{number} AS {sql_type(column.type)}) = c{number} AS e{number}"
        for number, (_, column) in enumerate(operands)
    )
    try:
        row = evaluate(row_of([operand for operand, _ in operands]), ", ".join(casts))
    except FederationError:
        return None
    return {
        id(operand): _Constant(
            row[f"t{number}"][0].as_py(),
            _scalar(row[f"v{number}"][0], column.type)
            if row[f"e{number}"][0].as_py()
            else None,
        )
        for number, (operand, column) in enumerate(operands)
    }


@dataclass(frozen=True, slots=True)
class _Values:
    """What a plain operand may stand for: the values of parameters by name, and the statement's time."""

    parameters: Mapping[str, Any]
    now_us: int | None


def _plain(operand: Node, values: _Values, kind: pa.DataType) -> _Constant | None:
    """Return the value of a plain literal, or of a time so long ago. The engine takes 2 ms to say the same."""
    if kind == _TIMESTAMPTZ:
        time_us = None if values.now_us is None else _time_us(operand, values.now_us)
        if time_us is None:
            return None
        return _Constant("TIMESTAMP WITH TIME ZONE", pa.scalar(time_us, kind))
    value: object = None
    if kind_of(operand) == "PARAMETER":
        value = values.parameters.get(operand["identifier"])
    elif kind_of(operand) == "CONSTANT" and operand["value"]["type"]["id"] in _PLAIN:
        value = operand["value"].get("value")
    if isinstance(value, pa.Int64Scalar | pa.StringScalar):
        value = value.as_py()
    if type(value) is int and value in _RANGES.get(kind, ()):
        return _Constant("BIGINT", pa.scalar(value, kind))
    if type(value) is str and kind == pa.string():
        return _Constant("VARCHAR", pa.scalar(value))
    return None


def _time_us(operand: Node, now_us: int) -> int | None:
    """Return ``now()``, or ``now() - INTERVAL 10 MINUTE``, in microseconds; None: it is something else.

    Of units that are as long in every time zone: a day is not.
    """
    if _is_now(operand):
        return now_us
    if kind_of(operand) != "FUNCTION" or operand["function_name"] not in ("-", "+"):
        return None
    children = operand["children"]
    span_us = _span_us(children[1]) if len(children) == 2 and _is_now(children[0]) else None
    if span_us is None or abs(span_us) > _MAX_SPAN_US:
        return None
    return now_us + (span_us if operand["function_name"] == "+" else -span_us)


def _is_now(node: Node) -> bool:
    if kind_of(node) == "COLUMN_REF":
        return [fold(name) for name in node["column_names"]] == ["current_timestamp"]
    if kind_of(node) != "FUNCTION" or node["schema"] or node["catalog"]:
        return False
    return node["function_name"] in _NOW and not node["children"]


def _span_us(node: Node) -> int | None:
    """Return the microseconds of ``INTERVAL 10 MINUTE``: the parser makes a function of it, over a cast whole number."""
    unit_us = _UNITS_US.get(node["function_name"]) if kind_of(node) == "FUNCTION" else None
    if unit_us is None or len(node["children"]) != 1:
        return None
    (count,) = node["children"]
    while (inner := _same_number(count)) is not None:
        count = inner
    if kind_of(count) != "CONSTANT" or count["value"]["type"]["id"] != "INTEGER":
        return None
    value = count["value"].get("value")
    return value * unit_us if type(value) is int else None


def _same_number(node: Node) -> Node | None:
    """Return the INTEGER that a node makes no other number of; None: it may make another one."""
    if kind_of(node) == "CAST" and node["cast_type"]["id"] in _WIDER:
        child: Node = node["child"]
        return child
    if kind_of(node) == "FUNCTION" and node["function_name"] == "trunc":
        child, *others = node["children"]
        return None if others else child
    return None


def _scalar(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """Return the engine's value in the column's type; None for null and for NaN, which no bound knows.

    Times stay numbers: the engine's reach further than Python's.
    """
    if not value.is_valid or (pa.types.is_floating(kind) and math.isnan(value.as_py())):
        return None
    if pa.types.is_fixed_size_binary(kind) and len(value.as_py()) != kind.byte_width:
        return None
    if kind == pa.uuid():
        return pa.array([uuid.UUID(str(value.as_py())).bytes], pa.binary(16)).cast(kind)[0]
    if pa.types.is_timestamp(kind):
        return value.cast(pa.int64()).cast(kind)
    return value.cast(kind)


def _condition(
    column: Column, conjunct: Conjunct, constants: Mapping[int, _Constant]
) -> Condition | None:
    operands = [constants[id(operand)] for operand in conjunct.operands]
    if conjunct.operator == "in":
        # NULL in a list never makes IN true.
        operands = [constant for constant in operands if constant.type != _NULL]
    elif conjunct.operator in ("is null", "is not null"):
        return Condition(column.name, conjunct.operator)
    elif conjunct.operator == "starts with" and column.type != pa.string():
        return None
    allowed = _compared(column.type)
    if len(operands) > 1 and column.type == pa.uuid():
        allowed -= {"VARCHAR"}  # several are compared as text
    values = [constant.value for constant in operands]
    if not values or any(
        constant.value is None or constant.type.partition("(")[0] not in allowed
        for constant in operands
    ):
        return None
    return Condition(column.name, conjunct.operator, tuple(values))
