"""Projects conditions on a column to bounds and partition values of files.

Inclusive projection: a file that may match is never left out (Iceberg spec, "Scan Planning").

Also reads nested columns under the names that files have for their members, where these are not the table's. Iceberg's writers escape what Avro's names may not have, as ``user-agent``, in Parquet too; and a member that was renamed has its
former name in older files. Of a schema, DuckDB 1.5.5 finds nested members by name alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import transforms
from pyiceberg.types import BinaryType, IcebergType, UUIDType

from connectors.iceberg.types import arrow_type
from planner.reading.filters import Bounds, Condition
from planner.sql_text import identifier, literal
from planner.statement.conditions import Operator
from planner.type_text import sql_type

#: Transforms that keep the order of their values.
_ORDERED = (
    transforms.IdentityTransform,
    transforms.TruncateTransform,
    transforms.YearTransform,
    transforms.MonthTransform,
    transforms.DayTransform,
    transforms.HourTransform,
)
_TIMES = _ORDERED[2:]
#: A strict comparison of values becomes this one of transformed values.
_LOOSE: dict[Operator, Operator] = {"<": "<=", ">": ">="}
#: Of a column's type, and of what it may have been before it was widened.
_GREATEST = {pa.int32(): ((1 << 31) - 1,), pa.int64(): ((1 << 31) - 1, (1 << 63) - 1)}


def bound_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which a column's values are compared: text as its bytes, which sort alike."""
    if kind == pa.string() or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return kind


def on_bounds(condition: Condition) -> Condition:
    """Return the condition on a column's bounds."""
    return replace(condition, values=tuple(map(_comparable, condition.values)))


def partition_type(
    transform: transforms.Transform[Any, Any], source: IcebergType
) -> pa.DataType | None:
    """Return the type of a partition value; None where it allows no pruning."""
    if not isinstance(transform, (*_ORDERED, transforms.BucketTransform)):
        return None
    if not transform.can_transform(source):
        return None
    kind = arrow_type(transform.result_type(source))
    return None if kind is None or kind == pa.uuid() else bound_type(kind)


def is_misread(
    transform: transforms.Transform[Any, Any], source: IcebergType, lower: bytes | None
) -> bool:
    """Return whether the extension misreads a partition field of a manifest with this lower bound."""
    match transform:
        case transforms.TruncateTransform():
            return not isinstance(source, BinaryType)
        case transforms.BucketTransform() | transforms.IdentityTransform():
            return isinstance(source, UUIDType)
    if isinstance(transform, _TIMES):
        return lower is None or int.from_bytes(lower, "little", signed=True) < 0
    return False


def on_partition(
    condition: Condition,
    transform: transforms.Transform[Any, Any],
    source: IcebergType,
    kind: pa.DataType,
) -> Condition | None:
    """Return the condition on the partition value, of type ``kind``; None if there is none.

    Every transform but ``void`` keeps null null, and makes no other value null.
    """
    operator = condition.operator
    if operator in ("is null", "is not null"):
        return condition
    if isinstance(transform, transforms.IdentityTransform):
        return on_bounds(condition)
    if operator == "starts with":
        if not isinstance(transform, transforms.TruncateTransform):
            return None
        prefix = condition.values[0].as_py()[: transform.width]
        return replace(condition, values=(_comparable(pa.scalar(prefix)),))
    is_ordered = isinstance(transform, _ORDERED)
    if not is_ordered and operator not in ("=", "in"):
        return None
    apply: Callable[[Any], Any] = transform.transform(source)
    try:
        projected = [apply(_python(value)) for value in condition.values]
        if isinstance(transform, _TIMES):
            operator, projected = _rounded_up(operator, projected)
        values = tuple(_comparable(_of_type(value, kind)) for value in projected)
    except (OverflowError, ValueError):
        return None  # a time that Python cannot represent, or a number that its truncation leaves the type of
    return Condition(condition.column, _LOOSE.get(operator, operator), values)


def partition_bounds(
    bounds: Bounds, transform: transforms.Transform[Any, Any], kind: pa.DataType
) -> Bounds:
    """Return the bounds of partition values as far as they bound what is in the partition.

    Iceberg's Java library truncates a type's least numbers to its greatest (``TruncateUtil`` overflows).
    """
    if not isinstance(transform, transforms.TruncateTransform):
        return bounds
    lower = bounds.lower
    for greatest in _GREATEST.get(kind, ()):
        turned = pc.and_(
            pc.greater(lower, pa.scalar(greatest - transform.width, kind)),
            pc.less_equal(lower, pa.scalar(greatest, kind)),
        )
        lower = pc.if_else(turned, None, lower)
    return replace(bounds, lower=lower)


def _rounded_up(operator: Operator, values: list[int]) -> tuple[Operator, list[int]]:
    """Allow for writers that rounded times before 1970 up (iceberg issue 1680, as Iceberg's own readers do)."""
    match operator:
        case "=" | "in":
            later = [value + 1 for value in values if value < 0]
            return ("in", values + later) if later else (operator, values)
        case "<" | "<=":
            return operator, [value + 1 if value < 0 else value for value in values]
        case "between":
            return operator, [values[0], values[1] + 1 if values[1] < 0 else values[1]]
    return operator, values


def _python(value: pa.Scalar) -> Any:
    """Return a value as pyiceberg's transforms expect it: times as numbers."""
    if pa.types.is_date32(value.type):
        return value.cast(pa.int32()).as_py()
    if pa.types.is_timestamp(value.type):
        return value.cast(pa.int64()).as_py()
    return value.as_py()


def _of_type(value: Any, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_date32(kind):
        return pa.scalar(value, pa.int32()).cast(kind)
    if kind == pa.binary() and isinstance(value, str):
        return pa.scalar(value)
    return pa.scalar(value, kind)


def _comparable(value: pa.Scalar) -> pa.Scalar:
    if value.type == pa.string():
        return pa.scalar(value.as_py().encode(), pa.binary())
    return value.cast(bound_type(value.type))


def renamed_sql(column: str, written: pa.DataType, kind: pa.DataType) -> str:
    """Return SQL for ``column`` as a value of ``kind``, where the files have it as ``written``: alike but for names.

    ``remap_struct`` is what DuckDB's own readers of several files do this with: values stay where they are.
    """
    return f"remap_struct({identifier(column)}, NULL::{sql_type(kind)}, {_members(written, kind)}, NULL)"


def _members(written: pa.DataType, kind: pa.DataType) -> str:
    """Return the names of members by those they get; of a list and a map, DuckDB's own names of what is in them."""
    if pa.types.is_struct(kind):
        pairs = [
            (new.name, old.name, old.type, new.type)
            for old, new in zip(written, kind, strict=True)
        ]
    elif pa.types.is_map(kind):
        pairs = [
            ("key", "key", written.key_type, kind.key_type),
            ("value", "value", written.item_type, kind.item_type),
        ]
    else:
        pairs = [("list", "list", written.value_type, kind.value_type)]
    listed = ", ".join(
        f"{identifier(new)}: {_member(old, *types)}" for new, old, *types in pairs
    )
    return f"{{{listed}}}"


def _member(name: str, written: pa.DataType, kind: pa.DataType) -> str:
    if pa.types.is_nested(kind):
        return f"({literal(name)}, {_members(written, kind)})"
    return literal(name)
