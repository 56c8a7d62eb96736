"""The least and the greatest value of a column by the bounds of its files, where these are values that rows have.

By Iceberg's specification bounds enclose values (data file fields 125 and 128). Writers make those of numbers, dates and
timestamps exact, and Spark answers ``min`` and ``max`` by them, too (Iceberg's ``AggregateEvaluator``). Not taken are those of

* text and bytes, which writers shorten;
* uuids, which writers order in two ways;
* booleans, which are read as fast;
* floats of a file whose NaN are not counted or that has some, and a zero, as files tell -0.0 from 0.0, which SQL does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from planner.reading.filters import Bounds
from planner.sql_text import identifier, literal
from planner.type_text import sql_type

#: As many as ``extremes_of`` gives values.
ROWS = 2


def extremes_of(bounds: Bounds) -> tuple[pa.Scalar, pa.Scalar] | None:
    """Return the least and the greatest value of a column, both null if it has none; None: only reading tells.

    ``bounds`` has every file.
    """
    kind = bounds.lower.type
    if not _is_exact(kind):
        return None
    is_empty = pc.fill_null(pc.equal(bounds.nulls, bounds.rows), fill_value=False)
    has_values = pc.invert(is_empty)
    lower, upper = bounds.lower.filter(has_values), bounds.upper.filter(has_values)
    if lower.null_count or upper.null_count:
        return None
    least, greatest = pc.min(lower), pc.max(upper)
    try:
        values = least.as_py(), greatest.as_py()
    except (OverflowError, ValueError):
        return None  # a time that Python cannot represent
    if pa.types.is_floating(kind):
        nans = pc.fill_null(bounds.nans.filter(has_values), 1)
        if 0 in values or pc.any(pc.not_equal(nans, 0)).as_py():
            return None
    return least, greatest


def extreme_rows(columns: Mapping[str, tuple[pa.Scalar, pa.Scalar]]) -> str:
    """Return a SELECT of two rows, the least and the greatest values of columns; there is at least one."""
    names = ", ".join(map(identifier, columns))
    rows = ", ".join(
        f"({', '.join(map(_written, row))})" for row in zip(*columns.values(), strict=True)
    )
    return f"SELECT {names} FROM (VALUES {rows}) AS extremes({names})"  # noqa: S608 - quoted


def _written(value: pa.Scalar) -> str:
    """Write a value as an expression of its own type."""
    plain = value.as_py()
    text = f"{plain:f}" if isinstance(plain, Decimal) else str(plain)
    return f"CAST({'NULL' if plain is None else literal(text)} AS {sql_type(value.type)})"


def _is_exact(kind: pa.DataType) -> bool:
    of = pa.types
    checks = (of.is_integer, of.is_floating, of.is_decimal, of.is_date, of.is_timestamp)
    return any(is_one(kind) for is_one in checks)
