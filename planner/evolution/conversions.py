"""How rows of one schema of a table become rows of another without their records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from planner.evolution.promotions import is_promotion
from planner.evolution.writer_types import WriterIds
from planner.schema import Column, TableSchema, has_equal_values

#: ``same``: the value as it is. ``cast``: the same value in a wider type. ``null``: NULL, which is right for records that
#: have nothing for the column.
Conversion = Literal["same", "cast", "null"]


@dataclass(frozen=True, slots=True)
class Heritage:
    """How rows of one schema become rows of another, by column, where ``carries`` says that these are the right ones.

    It takes the ids of the schemas that the records were written with.
    """

    conversions: Mapping[str, Conversion]
    carries: Callable[[WriterIds], bool]


def conversions(before: TableSchema, after: TableSchema) -> Mapping[str, Conversion] | None:
    """Return how each column of ``after`` is made from a row of ``before``, by name.

    None: no row can be, since a column of the log itself (``kafka_key``) is in ``after`` alone.
    """
    by_id = {column.field_id: column for column in before.columns}
    steps = {each.name: _conversion(by_id.get(each.field_id), each) for each in after.columns}
    if any(steps[each.name] == "null" for each in after.columns if each.is_metadata):
        return None
    return steps


def _conversion(before: Column | None, after: Column) -> Conversion:
    if before is None:
        return "null"
    if has_equal_values(before, after):
        return "same"
    is_wider = is_promotion(before.type, after.type)
    if is_wider and has_equal_values(before, replace(after, type=before.type)):
        return "cast"
    return "null"
