"""What a condition of Spark's SQL over one table's columns means without Spark; ``planner.spark_condition_text`` reads it.

It means the same to Spark, DuckDB and Arrow, NULL and NaN included (NaN is the largest number, and equals itself), so that files may be
left out by it (``files_filter``), a scan may apply it (``duckdb_sql``), and rows are chosen by it at last (``mask``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from planner.reading.filters import EVERYTHING, Condition, ScanFilter
from planner.schema import Column
from planner.sql_text import identifier, literal
from planner.statement.conditions import Operator
from planner.type_text import sql_type

Comparator = Literal["=", "<>", "<", "<=", ">", ">=", "in", "is null"]

#: More alternatives take longer to compare with files than they save.
_MAX_ALTERNATIVES = 100
#: What is true where a comparison with a value is false.
_OPPOSITES: dict[Comparator, Operator] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "<>": "="}
_OPERATORS: dict[Comparator, Operator] = {
    "=": "=", "<": "<", "<=": "<=", ">": ">", ">=": ">=", "in": "in"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """``column`` and constants of its type: none for ``is null``, several for ``in``."""

    column: Column
    comparator: Comparator
    values: tuple[pa.Scalar, ...] = ()


@dataclass(frozen=True, slots=True)
class Both:
    """All of ``parts`` hold (``is_any``: one of them does)."""

    parts: tuple[SparkCondition, ...]
    is_any: bool = False


@dataclass(frozen=True, slots=True)
class Negation:
    part: SparkCondition


SparkCondition: TypeAlias = Comparison | Both | Negation


def columns_of(condition: SparkCondition) -> tuple[Column, ...]:
    """Return the columns that a condition reads, each once."""
    if isinstance(condition, Comparison):
        return (condition.column,)
    if isinstance(condition, Negation):
        return columns_of(condition.part)
    return tuple(dict.fromkeys(c for part in condition.parts for c in columns_of(part)))


# --- what it means: to files, to DuckDB, to rows ---


def files_filter(condition: SparkCondition) -> ScanFilter:
    """Return what statistics of files are compared with: every row that makes the condition true makes this true."""
    alternatives = _alternatives(condition, is_negated=False)
    return EVERYTHING if len(alternatives) > _MAX_ALTERNATIVES else alternatives


def both(one: ScanFilter, other: ScanFilter) -> ScanFilter:
    """Return a filter that both of two filters imply; not always the narrowest."""
    if len(one) * len(other) > _MAX_ALTERNATIVES:
        return one
    return tuple((*left, *right) for left in one for right in other)


def _alternatives(condition: SparkCondition, *, is_negated: bool) -> ScanFilter:
    if isinstance(condition, Negation):
        return _alternatives(condition.part, is_negated=not is_negated)
    if isinstance(condition, Comparison):
        return (_compared(condition, is_negated=is_negated),)
    parts = [_alternatives(part, is_negated=is_negated) for part in condition.parts]
    if condition.is_any != is_negated:
        return tuple(alternative for part in parts for alternative in part)
    return reduce(both, parts)


def _compared(leaf: Comparison, *, is_negated: bool) -> tuple[Condition, ...]:
    if leaf.comparator == "is null":
        return (Condition(leaf.column.name, "is not null" if is_negated else "is null"),)
    operators = _OPPOSITES if is_negated else _OPERATORS
    operator = operators.get(leaf.comparator)
    values = [_exact(value, leaf.column.type) for value in leaf.values]
    if operator is None or None in values:
        return ()
    return (Condition(leaf.column.name, operator, tuple(v for v in values if v is not None)),)


def _exact(value: pa.Scalar, kind: pa.DataType) -> pa.Scalar | None:
    """Return a constant in the column's type; None where that has no such value."""
    try:
        scalar = pa.scalar(value.as_py(), kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
        return None
    return scalar if scalar.as_py() == value.as_py() else None


def duckdb_sql(condition: SparkCondition) -> str:
    """Return the condition as DuckDB writes it."""
    if isinstance(condition, Negation):
        return f"(NOT {duckdb_sql(condition.part)})"
    if isinstance(condition, Both):
        joined = (" OR " if condition.is_any else " AND ").join(
            map(duckdb_sql, condition.parts)
        )
        return f"({joined})"
    column = identifier(condition.column.name)
    if condition.comparator == "is null":
        return f"({column} IS NULL)"
    values = [
        f"CAST({literal(str(value.as_py()))} AS {sql_type(value.type)})"
        for value in condition.values
    ]
    # Numbers of other widths DuckDB compares by itself; a cast would hide the column's statistics.
    if condition.column.type == pa.uuid():
        column = f"CAST({column} AS VARCHAR)"
    elif pa.types.is_floating(condition.column.type):
        # Bounds in Parquet leave NaN out, so a file with 1.0 and NaN would be left out for > 5 (DuckDB 1.5.5): hide them.
        column = f"(-(-{column}))"
    if condition.comparator == "in":
        return f"({column} IN ({', '.join(values)}))"
    return f"({column} {condition.comparator} {values[0]})"


def mask(condition: SparkCondition, rows: pa.RecordBatch) -> pa.Array:
    """Return for each row, whose columns are as Spark holds them, whether it is true; null where that is not known."""
    if isinstance(condition, Negation):
        return pc.invert(mask(condition.part, rows))
    if isinstance(condition, Both):
        join = pc.or_kleene if condition.is_any else pc.and_kleene
        return reduce(join, [mask(part, rows) for part in condition.parts])
    column = rows.column(condition.column.name)
    if condition.comparator == "is null":
        return column.is_null()
    kind = compared_as(condition.column.type)
    values = column if column.type == kind else column.cast(kind)
    if condition.comparator == "in":
        return reduce(pc.or_kleene, [pc.equal(values, value) for value in condition.values])
    truth = _FUNCTIONS[condition.comparator](values, condition.values[0])
    if pa.types.is_floating(kind) and condition.comparator in (">", ">="):
        return pc.or_kleene(truth, pc.is_nan(values))
    return truth


_FUNCTIONS: dict[Comparator, Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def compared_as(kind: pa.DataType) -> pa.DataType:
    """Return the type that Spark compares such a column with a constant in."""
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.string() if kind == pa.uuid() else kind
