"""Which rows of a table are too old by now, and the watermark of the commit that deletes them (docs/care.md).

The boundary is at the start of a day in UTC, or of a month or a year where the table is partitioned so by the same column:
then partitions go whole. So it moves once a day at most: tails are read anew when it does.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace

from planner.errors import BadBinding
from planner.maintenance.facts import MaintenanceFacts
from planner.names import KAFKA_TIMESTAMP, TableName
from planner.schema import Column, TableSchema
from planner.seam.binding import (
    PIN_GRACE_S,
    RETENTION_COLUMN,
    RETENTION_DAYS,
    Binding,
    count_property,
    decoding_key,
)
from planner.seam.boundary import RetentionBoundary, holds_times
from planner.seam.formats import bad_property
from planner.seam.watermark import LastPublish, Watermark, era_after
from planner.type_text import type_text

_DAY_S = 86_400
_DAY_US = _DAY_S * 1_000_000
_EPOCH = dt.date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class RowRetention:
    """Rows stay for so many ``days`` by the times of ``column``."""

    column: Column
    days: int

    @classmethod
    def of(
        cls,
        table: TableName,
        properties: Mapping[str, str],
        schema: TableSchema,
        pin_grace_s: int,
    ) -> RowRetention | None:
        """Read ``thermocline.retention_*``; None: rows stay for ever.

        Raises:
            BadBinding: a value does not fit, the column is none or holds no times, or days are fewer than servers promise.
        """
        days = count_property(table, properties, RETENTION_DAYS)
        if days is None:
            return None
        name = properties.get(RETENTION_COLUMN, KAFKA_TIMESTAMP)
        column = next((each for each in schema.columns if each.name == name), None)
        if column is None:
            what = f"rows age out by column {name}, which the table does not have; set {RETENTION_COLUMN} to one of its times."
            raise bad_property(table, RETENTION_COLUMN, what)
        if not holds_times(column):
            what = (
                f"rows age out by column {name}, which is {type_text(column.type)}; set {RETENTION_COLUMN} to one of type date, "
                f"timestamp or timestamptz."
            )
            raise bad_property(table, RETENTION_COLUMN, what)
        if days * _DAY_S < pin_grace_s:
            what = (
                f"property {RETENTION_DAYS} is {days}, and {PIN_GRACE_S} promises what was current for {pin_grace_s:,} s, which is "
                f"longer; lower that, or keep rows for more days."
            )
            raise bad_property(table, RETENTION_DAYS, what)
        return cls(column, days)


def due_boundary(
    facts: MaintenanceFacts, pin_grace_s: int, now_ms: int
) -> RetentionBoundary | None:
    """Return where the boundary is to go; None: it stays, or there is none.

    Raises:
        BadBinding: as ``RowRetention.of``; or rows aged out by another column before.
    """
    if facts.schema is None:
        return None
    retention = RowRetention.of(facts.table, facts.properties, facts.schema, pin_grace_s)
    if retention is None:
        return None
    column, before = retention.column, facts.boundary
    if before is not None and before.field_id != column.field_id:
        raise _another_column(facts, before, column)
    day = now_ms // (_DAY_S * 1000) - retention.days
    if day <= 0:
        return None
    transforms = {term.transform for term in facts.terms if term.source_id == column.field_id}
    boundary = RetentionBoundary(column.field_id, _begin(day, transforms) * _DAY_US)
    return boundary if boundary.is_after(before) else None


def _begin(day: int, transforms: set[str]) -> int:
    """Return the first day of the partition that ``day`` is in; days since 1970."""
    date = _EPOCH + dt.timedelta(days=min(day, (dt.date.max - _EPOCH).days))
    if "year" in transforms:
        date = date.replace(month=1, day=1)
    elif "month" in transforms:
        date = date.replace(day=1)
    return (date - _EPOCH).days


def _another_column(
    facts: MaintenanceFacts, before: RetentionBoundary, column: Column
) -> BadBinding:
    columns = () if facts.schema is None else facts.schema.columns
    name = next((each.name for each in columns if each.field_id == before.field_id), None)
    what = (
        f"rows before {before.text} aged out by a column that was dropped (field id {before.field_id}), and no other takes over "
        f"from it; remove {RETENTION_DAYS}."
        if name is None
        else f"rows age out by column {column.name}, and those before {before.text} did by column {name}; late records "
        f"of these would come back. Set {RETENTION_COLUMN} back, or remove {RETENTION_DAYS}."
    )
    return bad_property(facts.table, RETENTION_COLUMN, what)


def aged(
    mark: Watermark,
    boundary: RetentionBoundary,
    publish: LastPublish,
    schema: TableSchema,
    binding: Binding,
    commit: tuple[str, int],
) -> Watermark:
    """Return the watermark of the commit that deletes the rows before ``boundary``; ``commit`` is its run and the head below it.

    It begins an era: cold has fewer rows below the same offsets than before.
    """
    run, head = commit
    after = replace(mark.renewed(publish, run=run, head=head), boundary=boundary)
    decoding = decoding_key(schema, binding.under(after))
    return replace(after, decoding=decoding, era=era_after(after, decoding))
