"""Describes the columns and parameters of a statement without running it.

DuckDB knows no types of unbound parameters, so each is replaced by a marker, a text literal, which DuckDB
casts to the type that the place needs; the casts are read from the bound plan (``json_serialize_plan``, 1 ms). A
marker as an operand of arithmetic is ambiguous to the binder: those are numbers, DOUBLE, or INTEGER next to a date.
LIMIT and OFFSET take BIGINT.

That is a guess, for clients that ask before they bind. Once values are bound, the types of the columns are those the
statement has with these values: not only their types count (``strptime(x, '%z')`` has another one than without the
zone), and a client compares what it was told with what comes.

Everything is bound to empty relations of the same types: no file is opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import duckdb
import pyarrow as pa

from connectors import syntax_trees
from planner.errors import BadParameter
from planner.statement.ast import Node, parameters
from planner.statement.parameters import (
    addends,
    cast,
    constant,
    counts,
    integers,
    operands,
    substituted,
    whole_numbers,
)
from proxy.engine import macros
from proxy.engine.relations import Relation, empty_prelude, nested

Cursor = duckdb.DuckDBPyConnection
Unparse = Callable[[Node], str]
#: An Arrow scalar of any type or unit, or a plain Python value.
Parameter: TypeAlias = Any

_BIGINT: Node = {"id": "BIGINT"}
_INTEGER: Node = {"id": "INTEGER"}
_DOUBLE: Node = {"id": "DOUBLE"}
_VARCHAR: Node = {"id": "VARCHAR"}
#: Placeholders of a value: folding NULL into an expression may lose its type, an empty text may not fit.
_NULL = constant(None, "NULL")
_EMPTY = constant("", "VARCHAR")
_MARK = "thermocline parameter "


def describe(
    cursor: Cursor, unparse: Unparse, document: Node, relations: Sequence[Relation]
) -> tuple[pa.Schema, tuple[pa.DataType, ...]]:
    """Return a statement's columns, and the types of its parameters in their order.

    Raises:
        duckdb.Error: it does not bind.
    """
    before = empty_prelude(relations)
    names = parameters(document)
    if not names:
        return _columns(cursor, before, unparse(document), []), ()
    kinds = _kinds(cursor, before, unparse, document)
    types = tuple(arrow_type(kinds[name]) for name in names)
    named = _columns(cursor, before, unparse(document), dict.fromkeys(names))
    for text in (_EMPTY, _NULL):
        filled = {
            name: cast(text if kind == _VARCHAR else _NULL, kind)
            for name, kind in kinds.items()
        }
        with contextlib.suppress(duckdb.Error):
            columns = _columns(cursor, before, unparse(substituted(document, filled)), [])
            fields = zip(columns, named.names, strict=True)
            return pa.schema([field.with_name(name) for field, name in fields]), types
    # Parameters of unknown type were taken for text, which does not fit everywhere; NULL does.
    return named, types


def describe_bound(
    cursor: Cursor,
    unparse: Unparse,
    document: Node,
    relations: Sequence[Relation],
    values: Sequence[Parameter],
) -> pa.Schema:
    """Return the columns of a statement with these values bound.

    Raises:
        duckdb.Error: it does not bind.
        BadParameter: as ``bound``.
    """
    sql = unparse(document)
    macros.set_time(cursor, sql)
    execute(cursor, f"{empty_prelude(relations)}{nested(sql)} LIMIT 0", document, values)
    return cursor.to_arrow_reader(1).schema


def _columns(cursor: Cursor, before: str, sql: str, values: Any) -> pa.Schema:
    macros.set_time(cursor, sql)
    cursor.execute(f"{before}{nested(sql)} LIMIT 0", values)
    return cursor.to_arrow_reader(1).schema


def _kinds(cursor: Cursor, before: str, unparse: Unparse, document: Node) -> dict[str, Node]:
    """Return the engine type of every parameter, VARCHAR if unknown."""
    names = parameters(document)
    numbers = dict.fromkeys(operands(document), _DOUBLE)
    limits = dict.fromkeys(counts(document) | whole_numbers(document), _BIGINT)
    limits |= dict.fromkeys(integers(document), _INTEGER)
    days = numbers | dict.fromkeys(addends(document), _INTEGER)
    for types in (limits, numbers | limits, days | limits):
        filled = {name: constant(_MARK + name, "VARCHAR") for name in names}
        filled |= {name: cast(constant(1, "INTEGER"), kind) for name, kind in types.items()}
        plan = _plan(cursor, before + nested(unparse(substituted(document, filled))))
        if plan is not None:
            return dict.fromkeys(names, _VARCHAR) | _projections(plan) | types
    return dict.fromkeys(names, _VARCHAR) | numbers | limits


def _plan(cursor: Cursor, sql: str) -> Any:
    """Return the bound plan, or None if it does not bind."""
    macros.set_time(cursor, sql)
    row = cursor.execute("SELECT json_serialize_plan(?)", [sql]).fetchone()
    plan = syntax_trees.read(row[0]) if row else {"error": True}
    return None if plan["error"] else plan


def _projections(plan: Any) -> dict[str, Node]:
    """Return the types markers are cast to; a parameter used twice has the first."""
    nodes: dict[str, Node] = {}
    pending: list[tuple[Any, Node]] = [(plan, {})]
    while pending:
        item, around = pending.pop()
        if isinstance(item, list):
            pending += [(child, around) for child in item]
        elif isinstance(item, dict) and item.get("expression_class") != "BOUND_CONSTANT":
            pending += [(child, item) for child in item.values()]
        elif isinstance(item, dict) and around.get("expression_class") == "BOUND_CAST":
            text = (item.get("value") or {}).get("value")
            if isinstance(text, str) and text.startswith(_MARK):
                nodes.setdefault(text.removeprefix(_MARK), around["return_type"])
    return nodes


_INT64 = range(-(1 << 63), 1 << 63)
_INT32 = range(-(1 << 31), 1 << 31)
#: What Arrow raises of a valid value that Python has no value for: a date beyond the year 9999, an interval of months.
_WITHOUT_VALUE = (
    *(ValueError, ArithmeticError, LookupError, TypeError),
    *(NotImplementedError, pa.ArrowException),
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


def execute(cursor: Cursor, sql: str, document: Node, values: Sequence[Parameter]) -> None:
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
    **{f"TIMESTAMP{unit}": pa.timestamp("ms") for unit in ("", "_S", "_MS", "_NS")},
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("ms", "UTC"),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIME": pa.time32("ms"),
    "BLOB": pa.binary(),
}
