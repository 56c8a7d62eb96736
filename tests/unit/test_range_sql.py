"""Rows in ranges of offsets, as DuckDB reads them."""

from __future__ import annotations

import duckdb

from planner.offsets import OffsetRange
from planner.reading.filters import rows_within

ROWS = (
    "SELECT p::INTEGER AS kafka_partition, o AS kafka_offset, make_timestamptz(o * 1000000) AS kafka_timestamp "
    "FROM range(3) partitions(p), range(10) offsets(o)"
)


def test_only_rows_of_the_ranges_are_left() -> None:
    sql = rows_within(ROWS, [OffsetRange(0, 8, 20), OffsetRange(2, 3, 5)])
    rows = duckdb.sql(f"SELECT kafka_partition, kafka_offset FROM ({sql}) ORDER BY ALL")
    assert rows.fetchall() == [(0, 8), (0, 9), (2, 3), (2, 4)]


def test_and_only_those_of_a_time_or_later() -> None:
    sql = rows_within(ROWS, [OffsetRange(1, 0, 9)], 7_000_000)
    assert duckdb.sql(f"SELECT kafka_offset FROM ({sql}) ORDER BY 1").fetchall() == [(7,), (8,)]
