"""Lowest and highest value of each column of a file, from the rows themselves.

Those of the Parquet file do not do. Its writer leaves them out for a row group with a value of 4 KiB or more, so what the
other groups say is too narrow; and pyiceberg reads them as Python's dates, which end with the year 9999. An engine leaves
out a file by its bounds: one may be wider than the values, never narrower.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    StatisticsCollector,
    compute_statistics_plan,
    match_metrics_mode,
)
from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType, UUIDType

from planner.schema import field_id

_METRICS = "write.metadata.metrics."
_BOUNDED = (MetricModeTypes.TRUNCATE, MetricModeTypes.FULL)
_SURROGATES = range(0xD800, 0xE000)
_LAST_CHARACTER = 0x10FFFF

MetricsPlan = Mapping[int, StatisticsCollector]


def plan_of(schema: Schema, properties: Mapping[str, str]) -> MetricsPlan:
    """Say what is counted of each column. A mode that there is not counts as not set, as in Iceberg's Java library."""
    usable = dict(properties)
    for key in [key for key in usable if key.startswith(_METRICS)]:
        try:
            match_metrics_mode(usable[key])
        except ValueError:
            del usable[key]
    return compute_statistics_plan(schema, usable)


@dataclass(slots=True)
class _Column:
    index: int
    field_id: int
    type: PrimitiveType
    #: Characters or bytes of a text that are written; None: all.
    length: int | None
    lowest: Any = None
    highest: Any = None
    nulls: int = 0

    def add(self, values: pa.ChunkedArray) -> None:
        self.nulls += values.null_count
        if isinstance(self.type, UUIDType):
            return  # see planner.column_statistics
        lowest, highest = pc.min_max(_comparable(values)).as_py().values()
        if lowest is not None:
            self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
            self.highest = highest if self.highest is None else max(self.highest, highest)


class ColumnBounds:
    """Gathers them, and counts nulls, of columns that are not nested: Iceberg's own writers have no other bounds either.

    Uuids get none.
    """

    def __init__(self, arrow: pa.Schema, plan: MetricsPlan) -> None:
        self._columns = [
            _Column(index, number, column.iceberg_type, column.mode.length)
            for index, field in enumerate(arrow)
            for number in (field_id(field),)
            if (column := plan.get(number)) is not None and column.mode.type in _BOUNDED
        ]

    def add(self, table: pa.Table) -> None:
        for column in self._columns:
            column.add(table.column(column.index))

    @property
    def nulls(self) -> dict[int, int]:
        """By field id."""
        return {column.field_id: column.nulls for column in self._columns}

    @property
    def lower(self) -> dict[int, bytes]:
        """By field id, as Iceberg writes them. A zero is the negative one, which is the lower."""
        return {
            column.field_id: to_bytes(
                column.type,
                -0.0
                if isinstance(column.lowest, float) and column.lowest == 0
                else _short(column.lowest, column.length),
            )
            for column in self._columns
            if column.lowest is not None
        }

    @property
    def upper(self) -> dict[int, bytes]:
        """By field id. A text that cannot be cut and made greater has none."""
        values = [
            0.0
            if isinstance(column.highest, float) and column.highest == 0
            else above(column.highest, column.length)
            for column in self._columns
        ]
        return {
            column.field_id: to_bytes(column.type, value)
            for column, value in zip(self._columns, values, strict=True)
            if value is not None
        }


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values in the order of their type, as Python can have them: NaN left out, times as numbers."""
    kind = values.type
    if pa.types.is_floating(kind):
        return values.filter(pc.invert(pc.is_nan(values)))
    if pa.types.is_date32(kind):
        return values.cast(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return values.cast(pa.int64())
    return values


def _short(value: Any, length: int | None) -> Any:
    return value[:length] if isinstance(value, (str, bytes)) else value


def above(value: Any, length: int | None) -> Any:
    """Return an upper bound of at most ``length`` characters or bytes; None if there is none."""
    if length is None or not isinstance(value, (str, bytes)) or len(value) <= length:
        return value
    for end in range(length, 0, -1):
        if isinstance(value, bytes):
            if value[end - 1] < 0xFF:
                return value[: end - 1] + bytes([value[end - 1] + 1])
            continue
        code = ord(value[end - 1]) + 1
        if code in _SURROGATES:
            code = _SURROGATES.stop
        if code <= _LAST_CHARACTER:
            return value[: end - 1] + chr(code)
    return None
