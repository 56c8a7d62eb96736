"""Checks that a binding declares epoch units and floors for times alone."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

import pyarrow as pa

from planner.errors import BadBinding
from planner.names import shell_word
from planner.schema import EpochUnit, TableSchema, field_id_if_any, nested_paths
from planner.seam.binding import Binding
from planner.type_text import type_text


def check_times(table: str, schema: TableSchema, binding: Binding) -> None:
    """Check all payload columns and the fields inside them.

    Raises:
        BadBinding: an epoch unit or a floor is declared for a field that holds no time.
    """
    units = dict(binding.format.epoch_units)
    for column in schema.payload:
        unit = units.get(column.field_id, column.epoch_unit)
        _check(table, binding, column.name, column.type, (column.field_id, unit))
        for path, field in _inside(nested_paths(column.name, column.type)):
            field_id = field_id_if_any(field) or 0
            _check(table, binding, path, field.type, (field_id, units.get(field_id)))


def _inside(fields: Sequence[tuple[str, pa.Field]]) -> Iterator[tuple[str, pa.Field]]:
    for path, field in fields:
        yield path, field
        yield from _inside(nested_paths(path, field.type))


def _check(
    table: str,
    binding: Binding,
    path: str,
    kind: pa.DataType,
    declared: tuple[int, EpochUnit | None],
) -> None:
    """``declared`` is the field's id and its unit."""
    field_id, unit = declared
    is_timestamp = pa.types.is_timestamp(kind)
    if unit is not None and not (is_timestamp or pa.types.is_date(kind)):
        raise BadBinding(
            f"{table}: an epoch unit is declared for {path}, which is {type_text(kind)}; only date, timestamp and "
            f"timestamptz can have one: remove the property thermocline.epoch_unit.<field id>, or, while the table has "
            f"no rows, make it anew: `{_anew(table, binding, path, unit)}`.",
            table=table,
            column=path,
        )
    if field_id in binding.format.floors and not is_timestamp:
        raise BadBinding(
            f"{table}: a floor of times is declared for {path}, which is {type_text(kind)}; only timestamp and timestamptz "
            f"can have one.",
            table=table,
            column=path,
        )


def _anew(table: str, binding: Binding, path: str, unit: EpochUnit) -> str:
    """Return the command that makes the table anew with ``path`` as a time."""
    cluster = f" --kafka {binding.kafka}" if binding.kafka else ""
    return (
        f"thermocline create {shell_word(table)} --topic {binding.topic}{cluster} --replace --infer --epoch "
        f"{shlex.quote(f'{path}={unit}')}"
    )
