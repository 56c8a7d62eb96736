"""Least and greatest values by bounds of files: which bounds are values, and what a statement makes of them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from planner.names import Side
from planner.reading.extremes import extreme_rows, extremes_of
from planner.reading.filters import Bounds
from planner.reading.needs import StatementNeeds
from planner.reading.plan import ColdMode, TableRead, counted_rows, plan_read
from planner.seam.cut import plan_cut
from planner.seam.incremental import narrow, parse_after
from planner.seam.time_travel import cut_until
from planner.statement.references import ResolvedTable
from tests.harness.builders import FLOWS, bounds, pin, vector
from tests.harness.sql import parse

NAN = float("nan")


def of_files(
    kind: pa.DataType,
    *files: tuple[Any, Any, int | None],
    nans: tuple[int | None, ...] | None = None,
) -> Bounds:
    """Bounds of files of three rows each: lowest, highest, and how many values are NULL."""
    lower, upper, nulls = (pa.array(column) for column in zip(*files, strict=True))
    count = len(files)
    return Bounds(
        *(lower.cast(kind), upper.cast(kind), nulls.cast(pa.int64())),
        pa.array(nans or [None] * count, pa.int64()),
        pa.array([3] * count, pa.int64()),
    )


def values_of(bounds: Bounds) -> pa.Array | None:
    values = extremes_of(bounds)
    return None if values is None else pa.array(values, bounds.lower.type)


DAYS = [dt.date(1969, 12, 31), dt.date(2026, 1, 2), dt.date(2026, 3, 4)]
TIMES = [dt.datetime(1, 1, 1), dt.datetime(2026, 1, 2), dt.datetime(9999, 12, 31, 23, 59)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [-5, 0, 7]),
        (pa.int64(), [-(1 << 63), 2**53 + 1, (1 << 63) - 1]),
        (pa.decimal128(9, 2), [Decimal("-7.50"), Decimal("0.00"), Decimal("2.50")]),
        (pa.date32(), DAYS),
        (pa.timestamp("us"), TIMES),
        (pa.timestamp("us", "UTC"), TIMES),
    ],
    ids=str,
)
def test_bounds_of_numbers_dates_and_timestamps_are_values(
    kind: pa.DataType, values: list[Any]
) -> None:
    low, middle, high = values
    # One file has nothing but NULL, one does not tell how many.
    value = of_files(kind, (middle, high, 1), (low, middle, None), (None, None, 3))
    assert values_of(value) == pa.array([low, high]).cast(kind)


def test_where_no_file_has_a_value_there_is_none() -> None:
    assert values_of(of_files(pa.int32(), (None, None, 3))) == pa.nulls(2, pa.int32())


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str
)
def test_a_time_beyond_the_calendar_is_read(kind: pa.DataType) -> None:
    """DuckDB takes some of them for infinite."""
    far = pa.array([(1 << 31) - 1], pa.int32() if kind == pa.date32() else pa.int64())
    values = (far if kind == pa.date32() else pa.array([(1 << 63) - 1])).cast(kind)
    assert extremes_of(Bounds(values, values, *map(pa.array, ([0], [0], [3])))) is None


@pytest.mark.parametrize(
    "file", [(None, 9, 0), (9, None, 0), (None, None, None), (None, None, 2)], ids=str
)
def test_a_file_without_bounds_is_read(file: tuple[Any, Any, int | None]) -> None:
    assert extremes_of(of_files(pa.int32(), (1, 2, 0), file)) is None


def test_bounds_that_may_be_no_values_are_not_believed() -> None:
    assert extremes_of(of_files(pa.bool_(), (False, True, 0))) is None
    assert extremes_of(of_files(pa.binary(), (b"a", b"b", 0))) is None


@pytest.mark.parametrize(
    ("nans", "expected"), [((0, 0), [1.5, 4.5]), ((0, 1), None), ((0, None), None)]
)
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_floats_are_taken_where_every_file_counted_that_it_has_no_nan(
    kind: pa.DataType, nans: tuple[int | None, ...], expected: list[float] | None
) -> None:
    value = values_of(of_files(kind, (1.5, 2.5, 0), (3.5, 4.5, 0), nans=nans))
    assert value == (None if expected is None else pa.array(expected, kind))


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.0, 1.0), (-1.0, 0.0), (-1.0, -0.0)])
def test_a_zero_is_read_as_files_tell_its_signs_apart(low: float, high: float) -> None:
    assert extremes_of(of_files(pa.float64(), (low, high, 0), nans=(0,))) is None


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int32(), [-(1 << 31), (1 << 31) - 1]),
        (pa.int64(), [-(1 << 63), (1 << 63) - 1]),
        (pa.float32(), [-3.4028234663852886e38, 1.401298464324817e-45]),
        (pa.float64(), [-1.7976931348623157e308, 0.1]),
        (pa.float64(), [-5e-324, float("inf")]),
        (pa.decimal128(38, 10), [Decimal("-9999999999999999999999999999.9999999999"), Decimal("0E-10")]),
        (pa.decimal128(5, 0), [Decimal(-99999), Decimal(100)]),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
        (pa.timestamp("us"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
        (pa.timestamp("us", "UTC"), [dt.datetime(1, 1, 2), dt.datetime(1969, 12, 31, 23, 59, 59, 1)]),
        (pa.timestamp("us", "UTC"), [None, None]),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_extremes_are_written_exactly(kind: pa.DataType, values: list[Any], zone: str) -> None:
    expected = pa.array(values).cast(kind) if values[0] is not None else pa.nulls(2, kind)
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        rows = connection.execute(extreme_rows({'a "b"': tuple(expected)})).to_arrow_table()
    assert rows['a "b"'].combine_chunks().cast(kind) == expected


def needs(sql: str) -> StatementNeeds:
    return StatementNeeds.of(parse(sql), {ResolvedTable(FLOWS): ((),)})


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT max(ts) FROM t", {"ts"}),
        ("SELECT MIN(TS) AS a, max(n) b FROM t x", {"ts", "n"}),
        ("SELECT count(*), max(ts), count(*) AS n FROM t", {"ts"}),
        ("SELECT max(ts) - min(ts), now() - max(ts), epoch(max(ts))::INT, 7 FROM t", {"ts"}),
        ("SELECT CASE WHEN max(n) > ? THEN min(n) END FROM t", {"n"}),
    ],
)
def test_which_columns_extremes_answer(sql: str, columns: set[str]) -> None:
    assert needs(sql).extremes == columns


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) FROM t",
        "SELECT 1 FROM t",
        "SELECT max(1) FROM t",
        "SELECT max(n), sum(n) FROM t",
        "SELECT max(n), count(n) FROM t",
        "SELECT max(n), count(*) + 1 FROM t",
        "SELECT max(n), n FROM t",
        "SELECT max(n + 1) FROM t",
        "SELECT max(n, 2) FROM t",
        "SELECT max(x.n) FROM t x",
        "SELECT max(t) FROM t",
        "SELECT max(t), max(n) FROM t",
        "SELECT max(DISTINCT n) FROM t",
        "SELECT max(n) FILTER (n < 3) FROM t",
        "SELECT max(n ORDER BY m) FROM t",
        "SELECT max(n) OVER () FROM t",
        "SELECT main.max(n) FROM t",
        "SELECT arg_max(n, m) FROM t",
        "SELECT max(COLUMNS(*)) FROM t",
        "SELECT max(n), random() FROM t",
        "SELECT max(n), (SELECT max(n) FROM t) FROM t",
        "SELECT max(#1) FROM t",
        "SELECT list_transform([max(n)], lambda y: y + 1) FROM t",
        "SELECT max(n) FROM t WHERE n > 1",
        "SELECT max(n) FROM t GROUP BY m",
        "SELECT max(n) FROM t HAVING max(n) > 1",
        "SELECT max(n) FROM t LIMIT 1",
        "SELECT max(n) FROM t ORDER BY 1",
        "SELECT DISTINCT max(n) FROM t",
        "SELECT max(n) FROM t USING SAMPLE 50%",
        "SELECT max(n) FROM t, t u",
        "SELECT max(n) FROM (FROM t)",
        "SELECT max(n) FROM t UNION ALL SELECT max(n) FROM t",
        "SELECT max(n) FROM t AS x(n)",
    ],
)
def test_what_needs_more_than_extremes_is_read(sql: str) -> None:
    assert needs(sql).extremes == frozenset()


CUT = plan_cut(pin(10, 20), bounds((0, 15), (5, 20)))
TIME = needs("SELECT max(Kafka_Timestamp), min(kafka_offset), count(*) FROM t")


def read(**more: Any) -> TableRead:
    facts: dict[str, Any] = {
        "needs": TIME,
        "table": ResolvedTable(FLOWS),
        "cut": CUT,
        "is_open": True,
    }
    return plan_read(**(facts | more))


STATISTICS = {
    "kafka_timestamp": of_files(pa.timestamp("us", "UTC"), (TIMES[1], TIMES[2], 0)),
    "kafka_offset": of_files(pa.int64(), (4, 6, 0)),
}


def test_the_whole_snapshot_is_answered_by_two_rows_of_extremes() -> None:
    value = read()
    assert (value.cold, value.tail) == (ColdMode.COUNTED, CUT.new_hot)
    assert value.extremes == ("kafka_offset", "kafka_timestamp")
    counted = value.counted(3, STATISTICS.get)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(counted.cold_extremes).to_arrow_table()
    assert rows.schema == pa.schema(
        {"kafka_offset": pa.int64(), "kafka_timestamp": pa.timestamp("us", "UTC")}
    )
    assert rows.to_pydict() == {
        "kafka_offset": [4, 6],
        "kafka_timestamp": [moment.replace(tzinfo=dt.UTC) for moment in TIMES[1:]],
    }
    # These two are in the relation.
    assert counted_rows([counted]) == 1


def test_without_rows_there_are_no_extremes() -> None:
    value = read().counted(0, STATISTICS.get)
    assert (value.cold, value.cold_rows, value.cold_extremes) == (ColdMode.COUNTED, 0, "")


@pytest.mark.parametrize(
    ("rows", "statistics"),
    [
        (None, STATISTICS),
        (3, {"kafka_offset": STATISTICS["kafka_offset"]}),
        (3, {**STATISTICS, "kafka_offset": of_files(pa.int64(), (None, None, 0))}),
    ],
    ids=["rows are deleted", "no statistics of one", "a file without bounds"],
)
def test_where_statistics_do_not_tell_all_rows_are_read(
    rows: int | None, statistics: dict[str, Bounds]
) -> None:
    value = read().counted(rows, statistics.get)
    assert (value.cold, counted_rows([value])) == (ColdMode.WHOLE, None)


@pytest.mark.parametrize(
    ("more", "cold"),
    [
        ({"is_open": False}, ColdMode.WHOLE),
        ({"cut": narrow(CUT, parse_after("beginning"))}, ColdMode.WHOLE),
        ({"cut": cut_until(pin(10, 20), vector(4, 20), bounds((0, 15), (5, 20)))}, ColdMode.RANGES),
        ({"table": ResolvedTable(FLOWS, Side.TAIL)}, ColdMode.NONE),
        ({"needs": needs("SELECT max(kafka_offset), max(gone) FROM t")}, ColdMode.WHOLE),
    ],
    ids=["rows or values are hidden", "a follower", "the past", "the tail", "no such column"],
)  # fmt: skip
def test_statistics_answer_for_a_whole_snapshot_of_which_all_is_shown(
    more: dict[str, Any], cold: ColdMode
) -> None:
    assert read(**more).cold is cold
