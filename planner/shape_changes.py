"""What changed about how a table's records are decoded since its rows were tiered.

A watermark has a hash of it only (``Binding.shape``), so properties that a person may have changed are tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import get_args

import pyarrow as pa

from planner.schema import EpochUnit, TableSchema, field_id_if_any, nested_fields
from planner.seam.binding import Binding, OnError, shape_under
from planner.seam.formats import JsonFormat, JsonMode, RecordFormat

_SHORT_TIMES = "strict JSON takes ISO 8601's short times now, such as 10:01Z"


def shape_changes(binding: Binding, schema: TableSchema, shape: str) -> tuple[str, ...]:
    """Return what changed from ``shape`` to the binding's, a line each: ``thermocline.on_error: fail -> skip``.

    Empty where no binding gives ``shape`` that has another error policy, JSON mode and unit of one time, or floor.
    """
    today = binding.format.forms
    for forms, earlier in itertools.product((today, 1), _earlier(binding, schema)):
        if shape_under(earlier, forms) == shape:
            short_times = (_SHORT_TIMES,) if forms < today else ()
            return *_differences(earlier, binding), *short_times
    return ()


def _earlier(binding: Binding, schema: TableSchema) -> Iterator[Binding]:
    """Return bindings that may have been the table's, those with the fewest changes first."""
    payload = schema.payload
    times = [each for column in payload for each in _times(column.type, column.field_id)]
    policies = [binding.on_error, *get_args(OnError)]
    for on_error, today in itertools.product(policies, _modes(binding.format)):
        for other in _formats(today, times):
            yield replace(binding, on_error=on_error, format=other)


def _modes(today: RecordFormat) -> list[RecordFormat]:
    if not isinstance(today, JsonFormat):
        return [today]
    return [replace(today, mode=mode) for mode in (today.mode, *get_args(JsonMode))]


def _formats(today: RecordFormat, times: Sequence[int]) -> Iterator[RecordFormat]:
    yield today
    for field_id in times:
        yield replace(today, floors=tuple(sorted({*today.floors} ^ {field_id})))
        units = dict(today.epoch_units)
        before = units.pop(field_id, None)
        if before is not None:
            yield replace(today, epoch_units=tuple(sorted(units.items())))
        for unit in get_args(EpochUnit):
            yield replace(today, epoch_units=tuple(sorted({**units, field_id: unit}.items())))


def _times(kind: pa.DataType, field_id: int) -> Iterator[int]:
    """Return the ids of the fields inside a type, itself among them, that are times."""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        yield field_id
    for child in nested_fields(kind):
        yield from _times(child.type, field_id_if_any(child) or 0)


def _differences(earlier: Binding, binding: Binding) -> list[str]:
    old, new = earlier.properties(), binding.properties()
    return [
        f"{key}: {old.get(key, 'not set')} -> {new.get(key, 'not set')}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]
