"""Units of times that records have as numbers, for columns that have no field ids yet: top-level and nested ones.

Until a table gives its fields ids, a nested field carries its unit in its Arrow metadata, as a column does in
``Column.epoch_unit``.

Days since 1970, which a date is as a number, as year, month and day.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from planner.schema import FIELD_ID, Column, EpochUnit, TableSchema, field_id, nested_fields
from planner.sql_text import FieldPath, resolve

_EPOCH_UNIT = b"epoch_unit"
#: A field, and its index at each level from the columns inwards.
_Inward = tuple[pa.Field, tuple[int, ...]]


def type_at(columns: Sequence[Column], path: FieldPath) -> pa.DataType | None:
    """Return the type of the field at ``path``, None where there is no such field."""
    located = _locate(columns, path)
    return None if located is None else located[0].type


def with_epoch_unit(
    columns: Sequence[Column], path: FieldPath, unit: EpochUnit
) -> tuple[Column, ...]:
    """Declare the unit of the field at ``path``, which exists and holds times."""
    at, *inward = _indices(columns, path)
    column = columns[at]
    if inward:
        kind = _changed(
            column.type, inward, lambda field: field.with_metadata({_EPOCH_UNIT: unit})
        )
        column = replace(column, type=kind)
    else:
        column = replace(column, epoch_unit=unit)
    return (*columns[:at], column, *columns[at + 1 :])


def with_type(
    columns: Sequence[Column], path: FieldPath, kind: pa.DataType
) -> tuple[tuple[Column, ...], Column]:
    """Give the field at ``path``, which exists, another type; return the column that has it, too."""
    at, *inward = _indices(columns, path)
    column = columns[at]
    if inward:
        changed = _changed(column.type, inward, lambda field: field.with_type(kind))
        column = replace(column, type=changed)
    else:
        column = replace(column, type=kind)
    return (*columns[:at], column, *columns[at + 1 :]), column


def ids_at(paths: Sequence[FieldPath], schema: TableSchema) -> tuple[int, ...]:
    """Return the sorted ids of the fields at ``paths``, without those that ``schema`` does not have."""
    ids = set()
    for path in paths:
        located = _locate(schema.columns, path)
        if located is not None:
            field, (at, *inward) = located
            ids.add(field_id(field) if inward else schema.columns[at].field_id)
    return tuple(sorted(ids))


def units_by_id(
    columns: Sequence[Column], schema: TableSchema
) -> tuple[tuple[int, EpochUnit], ...]:
    """Return the declared units by the ids that ``schema`` gives to the same fields, sorted."""
    ids = {column.name: column for column in schema.columns}
    units: dict[int, EpochUnit] = {}
    for column in columns:
        same = ids[column.name]
        if column.epoch_unit is not None:
            units[same.field_id] = column.epoch_unit
        units |= _nested_units(column.type, same.type)
    return tuple(sorted(units.items()))


def numbered(columns: Sequence[Column]) -> TableSchema:
    """Give each field an id, as a table will with others."""
    ids = itertools.count(1)
    return TableSchema(
        0,
        tuple(
            replace(column, field_id=next(ids), type=_numbered(column.type, ids))
            for column in columns
        ),
    )


def _indices(columns: Sequence[Column], path: FieldPath) -> tuple[int, ...]:
    located = _locate(columns, path)
    if located is None:
        raise ValueError(f"there is no field {path}")
    return located[1]


def _locate(columns: Sequence[Column], path: FieldPath) -> _Inward | None:
    around = pa.struct([pa.field(column.name, column.type) for column in columns])
    start: _Inward = (pa.field("", around), ())
    return resolve(path, start, _inside)


def _inside(outer: _Inward, name: str) -> _Inward | None:
    for at, field in enumerate(nested_fields(outer[0].type)):
        if field.name == name:
            return field, (*outer[1], at)
    return None


def _changed(
    kind: pa.DataType, inward: Sequence[int], change: Callable[[pa.Field], pa.Field]
) -> pa.DataType:
    fields = nested_fields(kind)
    at, *rest = inward
    if rest:
        fields[at] = fields[at].with_type(_changed(fields[at].type, rest, change))
    else:
        fields[at] = change(fields[at])
    return _rebuilt(kind, fields)


def _numbered(kind: pa.DataType, ids: Iterator[int]) -> pa.DataType:
    fields = [
        field.with_metadata({FIELD_ID: str(next(ids))}).with_type(_numbered(field.type, ids))
        for field in nested_fields(kind)
    ]
    return _rebuilt(kind, fields)


def _rebuilt(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_list(kind):
        return pa.list_(fields[0])
    return pa.map_(*fields) if pa.types.is_map(kind) else kind


def _nested_units(declared: pa.DataType, same: pa.DataType) -> dict[int, EpochUnit]:
    units: dict[int, EpochUnit] = {}
    for field, twin in zip(nested_fields(declared), nested_fields(same), strict=True):
        unit = (field.metadata or {}).get(_EPOCH_UNIT)
        if unit is not None:
            units[field_id(twin)] = unit.decode()
        units |= _nested_units(field.type, twin.type)
    return units


_EPOCH = dt.date(1970, 1, 1)
#: After which the calendar begins again.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097


def civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a day since 1970, of any year, where Python's end with 9999: 0 is the one before 1."""
    cycles, rest = divmod(days, _CYCLE_DAYS)
    date = _EPOCH + dt.timedelta(rest)
    return date.year + _CYCLE_YEARS * cycles, date.month, date.day
