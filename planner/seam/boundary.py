"""The boundary of row retention: which rows of a table are too old, on both sides of a seam (docs/care.md).

It stands in the watermark's text, and maintenance alone moves it, in the commit that deletes those rows
(``planner.maintenance.retention``). So a row leaves cold and tail in one commit, by no clock of a reader.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from planner.schema import Column, TableSchema, has_equal_values

_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class RetentionBoundary:
    """Rows whose column ``field_id`` has a time before ``before_us`` are none of the table's; NULL never is before.

    ``before_us`` is microseconds since 1970, UTC, exclusive. A table without the column has no such rows.
    """

    field_id: int
    before_us: int

    @property
    def text(self) -> str:
        """Say the time for people, in UTC: a day, where it is the start of one."""
        time = dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=self.before_us)
        return time.date().isoformat() if not self.before_us % _DAY_US else time.isoformat()

    @property
    def key(self) -> str:
        """What it adds to a decoding key."""
        return f"<{self.field_id}:{self.before_us}"

    def is_after(self, other: RetentionBoundary | None) -> bool:
        """Whether rows are too old that are not by ``other``, and none the other way round."""
        if other is None:
            return True
        return self.field_id == other.field_id and self.before_us > other.before_us

    def column(self, schema: TableSchema) -> Column | None:
        """Return the column of this schema that it compares; None: there is none, or it holds no times."""
        by_id = (each for each in schema.columns if each.field_id == self.field_id)
        column = next(by_id, None)
        return column if column is not None and holds_times(column) else None

    def is_of_same_records(self, before: TableSchema, after: TableSchema) -> bool:
        """Whether the same records are too old under two schemas of a table: its column has equal values, or is in neither."""
        columns = [each for each in map(self.column, (before, after)) if each is not None]
        return not columns or (len(columns) == 2 and has_equal_values(*columns))

    def expired(self, rows: pa.RecordBatch | pa.Table, schema: TableSchema) -> pa.Array | None:
        """Return which of the rows of ``schema`` are too old; None: none is."""
        column = self.column(schema)
        if column is None:
            return None
        values = rows.column(column.name)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        is_old = pc.fill_null(pc.less(values, self.limit(column)), fill_value=False)
        return is_old if is_old.true_count else None

    def limit(self, column: Column) -> pa.Scalar:
        """Return the first time that is not too old, in the column's type; of dates the first day that begins no earlier."""
        if pa.types.is_date(column.type):
            return pa.scalar(-(-self.before_us // _DAY_US), pa.int32()).cast(pa.date32())
        return pa.scalar(self.before_us, pa.timestamp("us", column.type.tz))


def time_us(value: pa.Scalar) -> int | None:
    """Return a time that ``holds_times``, as microseconds since 1970 UTC; of a date its begin, and None of NULL."""
    if not value.is_valid:
        return None
    if pa.types.is_date(value.type):
        return int(value.cast(pa.int32()).as_py()) * _DAY_US
    return int(value.cast(pa.timestamp("us", value.type.tz)).cast(pa.int64()).as_py())


def holds_times(column: Column) -> bool:
    """Whether retention can go by a column."""
    return bool(pa.types.is_timestamp(column.type) or pa.types.is_date(column.type))
