"""Columns of a new table from the schema that a topic's records are written with, and from what a person says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from connectors.decoding.json.renames import with_fields
from connectors.decoding.json.wishes import (
    Refusal,
    Wishes,
    leave_out_option,
    same_names,
    unfit_floors,
    unfit_renames,
    with_epochs,
)
from planner.epoch_units import type_at, with_type
from planner.evolution.changes import AddColumn, LeftOut, evolve, record_fields
from planner.evolution.writer_types import WriterField, WriterSchema, WriterType
from planner.names import did_you_mean
from planner.schema import PRIMITIVES, TIMESTAMPTZ, Column, EpochUnit, TableSchema
from planner.sql_text import FieldPath, spell, spelled


@dataclass(frozen=True, slots=True)
class FromSchema:
    """Columns in the order of the schema's fields, and what a person should know of them.

    ``left_out`` are fields that have no column. With refusals no table is to be made.
    """

    columns: tuple[Column, ...]
    left_out: tuple[LeftOut, ...]
    refusals: tuple[Refusal, ...]


def columns_from(writer: WriterSchema, wishes: Wishes) -> FromSchema:
    """Find the columns for a writer's schema. Field ids are 0; nested units of times are in the types."""
    fields = record_fields(writer)
    names = [name for name, _ in fields]
    refusals: list[Refusal] = []
    root = WriterType(
        "record",
        fields=tuple(
            WriterField(wishes.renames.get(name, name), kind) for name, kind in fields
        ),
    )
    for path in wishes.leave_out:
        pruned = _without(root, path)
        if pruned is None:
            refusals.append(_no_field(leave_out_option(path), path, root))
        else:
            root = pruned
    evolution = evolve(TableSchema(0, ()), WriterSchema(root))
    columns = tuple(
        Column(0, change.path[0], change.type)
        for change in evolution.changes
        if isinstance(change, AddColumn)
    )
    refusals += [
        _reserved(column) for column in columns if column.name.lower() in wishes.reserved
    ]
    for path, kind in wishes.columns:
        if type_at(columns, path) is None:
            columns = (*columns, Column(0, ".".join(path), kind))
            continue
        columns, _ = with_type(columns, path, kind)
    columns = _as_times(columns, wishes)
    columns, unfit = with_epochs(columns, wishes.epochs, _no_ways)
    refusals += unfit
    refusals += unfit_floors(columns, wishes.floors, _no_ways)
    refusals += [
        Refusal(f"{misfit}: records would not decode", (leave_out_option(misfit.path),))
        for misfit in evolve(_schema(columns), WriterSchema(root)).misfits
    ]
    refusals += same_names(columns)
    refusals += unfit_renames(wishes.renames, columns, names, {})
    return FromSchema(with_fields(columns, wishes.renames), evolution.left_out, tuple(refusals))


def _schema(columns: Sequence[Column]) -> TableSchema:
    return TableSchema(
        0, tuple(replace(column, field_id=at) for at, column in enumerate(columns, 1))
    )


def _as_times(columns: tuple[Column, ...], wishes: Wishes) -> tuple[Column, ...]:
    """Give whole numbers with a unit the type of a moment, unless another time was declared for them."""
    for path, _ in wishes.epochs:
        if type_at(columns, path) in (PRIMITIVES["int"], PRIMITIVES["long"]):
            columns, _ = with_type(columns, path, TIMESTAMPTZ)
    return columns


def _no_ways(path: FieldPath, unit: EpochUnit | None) -> tuple[str, ...]:
    del path, unit
    return ()


def _reserved(column: Column) -> Refusal:
    other = f"{column.name}_2"
    return Refusal(
        f"field {spelled(column.name)}: no column can have this name",
        (leave_out_option((column.name,)), f"--rename {spelled(column.name)}={spelled(other)}"),
    )


def _no_field(option: str, path: FieldPath, root: WriterType) -> Refusal:
    names = [each.name for each in root.fields]
    listed = f"its fields are {', '.join(names[:10])}"
    return Refusal(
        f"{option}: the schema has no such field; {did_you_mean(spell(path), names, listed)}",
        (),
    )


def _without(writer: WriterType, path: FieldPath) -> WriterType | None:
    """Return a type without the field at ``path``; None: it has no such field."""
    name, *rest = path
    if writer.kind == "union":
        items = [_without(each, path) or each for each in writer.items]
        return replace(writer, items=tuple(items)) if tuple(items) != writer.items else None
    if writer.kind in ("array", "map"):
        if name != ("element" if writer.kind == "array" else "value") or not rest:
            return None
        item = _without(writer.items[0], tuple(rest))
        return None if item is None else replace(writer, items=(item,))
    fields: list[WriterField] = []
    for each in writer.fields:
        if each.name != name:
            fields.append(each)
        elif rest:
            kind = _without(each.type, tuple(rest))
            if kind is None:
                return None
            fields.append(replace(each, type=kind))
    return replace(writer, fields=tuple(fields)) if tuple(fields) != writer.fields else None
