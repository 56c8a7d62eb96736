"""Partitions as a task works them out; against Iceberg's own in ``integration/test_parquet_by_tasks.py``."""

from __future__ import annotations

import pyarrow as pa
import pytest

from connectors.spark.publish.partitioning import (
    by_partition,
    partition_json,
    partition_path,
    transformed,
)
from planner.tiering.write_plan import PartitionColumn, Transform

DAY = PartitionColumn("at_day", 0, "day", is_date=True)
HOST = PartitionColumn("the host", 1, "identity", is_date=False)
ROWS = pa.record_batch(
    [
        pa.array([0, -1, 86_400_000_000, None, 5], pa.timestamp("us", tz="UTC")),
        pa.array(["a/b ~*é%", None, "x", None, "a/b ~*é%"]),
    ],
    names=["at", "host"],
)


def test_rows_go_to_the_partition_of_all_their_values() -> None:
    parts = {key: rows.to_pylist() for key, rows in by_partition(ROWS, (DAY, HOST))}
    every = ROWS.to_pylist()
    assert parts == {
        (0, "a/b ~*é%"): [every[0], every[4]],
        (-1, None): [every[1]],
        (1, "x"): [every[2]],
        (None, None): [every[3]],
    }


def test_rows_of_one_partition_are_not_copied() -> None:
    rows = ROWS.slice(0, 1)
    assert [part for _, part in by_partition(rows, (DAY,))] == [rows]
    assert list(by_partition(ROWS, ())) == [((), ROWS)]
    assert list(by_partition(ROWS.slice(0, 0), (DAY,))) == []


@pytest.mark.parametrize(
    ("transform", "micros", "expected"),
    [
        ("year", [0, -1, 31_536_000_000_000], [0, -1, 1]),
        ("month", [0, -1, 31_536_000_000_000], [0, -1, 12]),
        ("day", [0, -1, -86_400_000_000, -86_400_000_001], [0, -1, -1, -2]),
        ("hour", [3_600_000_000, 3_599_999_999, -3_600_000_001], [1, 0, -2]),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", None])
def test_times_before_1970_are_floored(
    transform: Transform, micros: list[int], expected: list[int], zone: str | None
) -> None:
    values = pa.array([*micros, None], pa.timestamp("us", tz=zone))
    column = PartitionColumn("at", 0, transform, is_date=False)
    assert transformed(values, column).to_pylist() == [*expected, None]


def test_dates_have_years_months_and_days() -> None:
    values = pa.array([0, -1, 365], pa.int32()).cast(pa.date32())
    for transform, expected in (
        ("year", [0, -1, 1]),
        ("month", [0, -1, 12]),
        ("day", [0, -1, 365]),
    ):
        column = PartitionColumn("day", 0, transform, is_date=False)  # type: ignore[arg-type]
        assert transformed(values, column).to_pylist() == expected


@pytest.mark.parametrize(
    ("transform", "value", "path"),
    [
        # As Iceberg 1.12 writes them.
        ("year", -1971, "-001"),
        ("year", 8050, "10020"),
        ("month", -1, "1969-12"),
        ("month", -13, "1968-12"),
        ("month", 200_000, "18636-09"),
        ("hour", -1, "1969-12-31-23"),
        ("hour", 200_000_000, "24785-11-22-08"),
        ("day", 3_000_000, "10183-09-21"),
        ("day", -800_000, "-221-09-04"),
        ("identity", True, "true"),
        ("identity", 5, "5"),
        ("identity", "a/b ~*é%", "a%2Fb+%7E*%C3%A9%25"),
        ("identity", None, "null"),
    ],
)
def test_paths_are_icebergs(transform: Transform, value: str | int | None, path: str) -> None:
    column = PartitionColumn("p q", 0, transform, is_date=transform == "day")
    assert partition_path((value,), (column,)) == f"p+q={path}"


def test_days_are_iso_dates_in_json() -> None:
    assert partition_json((3_000_000, "x"), (DAY, HOST)) == ["+10183-09-21", "x"]
    assert partition_json((-800_000, None), (DAY, HOST)) == ["-0221-09-04", None]
    assert partition_json((None, "y"), (DAY, HOST)) == [None, "y"]


def test_years_beyond_what_a_calendar_of_arrow_has() -> None:
    """Dates as java.time.LocalDate.ofEpochDay writes them."""
    days = [12_000_000, -12_000_000, 100_000_000]
    years, months = [34_824, -30_885, 275_760], [11, 2, 9]
    values = pa.array([day * 86_400_000_000 for day in days], pa.timestamp("us"))
    for kind in (values, pa.array(days, pa.int32()).cast(pa.date32())):
        year = transformed(kind, PartitionColumn("at", 0, "year", is_date=False)).to_pylist()
        assert year == [each - 1970 for each in years]
        month = transformed(kind, PartitionColumn("at", 0, "month", is_date=False)).to_pylist()
        assert month == [
            12 * (year - 1970) + month - 1 for year, month in zip(years, months, strict=True)
        ]
    assert [partition_json((day,), (DAY,))[0] for day in days] == [
        "+34824-11-19",
        "-30885-02-13",
        "+275760-09-13",
    ]
