"""What a table's columns are after changes that are not committed yet: to plan the next schema upon them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from planner.epoch_units import type_at, with_type
from planner.evolution.changes import AddColumn, Change, Widen
from planner.schema import Column, TableSchema


def applied(schema: TableSchema, changes: Sequence[Change]) -> TableSchema:
    """Return the schema with the changes, whose new fields have no ids."""
    columns = schema.columns
    for change in changes:
        columns = _applied(columns, change)
    return TableSchema(schema.schema_id, columns)


def _applied(columns: tuple[Column, ...], change: Change) -> tuple[Column, ...]:
    *above, name = change.path
    if isinstance(change, Widen):
        return with_type(columns, change.path, change.after)[0]
    if above:
        kind = type_at(columns, tuple(above))
        return with_type(columns, tuple(above), _inside(kind, name, change))[0]
    if isinstance(change, AddColumn):
        return (*columns, Column(0, name, change.type))
    return tuple(
        replace(each, required=False) if each.name == name else each for each in columns
    )


def _inside(outer: pa.DataType, name: str, change: Change) -> pa.DataType:
    """Return the type around a new or now optional field."""
    if pa.types.is_list(outer):
        return pa.list_(outer.value_field.with_nullable(True))
    if pa.types.is_map(outer):
        return pa.map_(outer.key_field, outer.item_field.with_nullable(True))
    if isinstance(change, AddColumn):
        return pa.struct([*outer, pa.field(name, change.type)])
    return pa.struct(
        [each.with_nullable(True) if each.name == name else each for each in outer]
    )
