"""Conditions in Spark's SQL, read without Spark: rows, DuckDB and statistics of files agree on them."""

from __future__ import annotations

import datetime as dt
import decimal
import random
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from planner.errors import BadParameter
from planner.reading.filters import EVERYTHING, Bounds, Condition, prune
from planner.schema import Column, TableSchema
from planner.spark_condition_text import parse_condition
from planner.spark_conditions import (
    Both,
    Comparison,
    both,
    columns_of,
    duckdb_sql,
    files_filter,
    mask,
)
from tests.harness.builders import FLOWS

COLUMNS = (
    Column(1, "id", pa.int32()),
    Column(2, "big", pa.int64()),
    Column(3, "load", pa.float64()),
    Column(4, "short", pa.float32()),
    Column(5, "price", pa.decimal128(6, 2)),
    Column(6, "host", pa.string()),
    Column(7, "ok", pa.bool_()),
    Column(8, "day", pa.date32()),
    Column(9, "at", pa.timestamp("us", tz="UTC")),
    Column(10, "local", pa.timestamp("us")),
    Column(11, "key", pa.uuid()),
    Column(12, "my`name", pa.int32()),
    Column(13, "raw", pa.binary()),
    Column(14, "Twin", pa.int32()),
    Column(15, "twin", pa.int32()),
)
SCHEMA = TableSchema(0, COLUMNS)
UUID = "00000000-0000-0000-0000-00000000000a"
CONDITIONS = (
    "id = 3",
    "3 < id",
    "2.0 >= ID",
    "id <> -1 and big > 9000000000",
    "NOT (id = 3 OR id IS NULL)",
    "load > 1.5",
    "load >= 1e0 OR load < -.5",
    "NOT load <= 2",
    "load != +2",
    "short = 0.1 OR short = .25",
    "short > 0.25",
    "short BETWEEN 0 AND 1",
    "price = 1.5 OR price IN (2, 3.25)",
    "host in ('a', 'b c') or host >= 'x'",
    "host NOT IN ('a')",
    "host == ''",
    "ok",
    "NOT ok AND id NOT BETWEEN 1 AND 4",
    "ok = FALSE OR ok <> true",
    "day >= DATE '2026-01-02'",
    "day = '2026-01-01'",
    "at < TIMESTAMP '2026-01-02T00:00:00Z'",
    "at >= '2026-01-02 01:00:00+01:00'",
    "local = TIMESTAMP_NTZ '2026-01-02 00:00:00'",
    f"key = '{UUID}'",
    "key IS NOT NULL",
    "`my``name` = 1 AND (`id` = 1 OR raw IS NULL)",
    "id = 1 OR (id = 2 AND (host = 'a' OR NOT ok))",
)


def parsed(text: str) -> Any:
    return parse_condition(text, FLOWS, SCHEMA)


def some_rows(seed: int) -> pa.RecordBatch:
    """Rows with NULL and NaN, of few values, so that most comparisons hold for some of them."""
    draw = random.Random(seed)
    day = dt.date(2026, 1, 1)
    time = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    values: dict[str, list[Any]] = {
        "id": [None, -1, 0, 1, 2, 3, 4, 5],
        "big": [None, 0, 2**40],
        "load": [None, float("nan"), -1.0, 0.0, -0.0, 1.0, 1.5, 2.0, 9.0, float("inf")],
        "short": [None, float("nan"), 0.1, 0.25, 0.5, 2.0],
        "price": [None, *map(decimal.Decimal, ("1.50", "2.00", "3.25", "9.99"))],
        "host": [None, "", "a", "b c", "x", "ü"],
        "ok": [None, True, False],
        "day": [None, day, day + dt.timedelta(1)],
        "at": [None, time, time + dt.timedelta(1)],
        "local": [None, time.replace(tzinfo=None) + dt.timedelta(1)],
        "key": [None, uuid.UUID(UUID).bytes, bytes(16)],
        "my`name": [None, 1],
        "raw": [None, b"x"],
        "Twin": [1],
        "twin": [1],
    }
    columns = [
        pa.array([draw.choice(values[column.name]) for _ in range(200)], _stored(column.type))
        for column in COLUMNS
    ]
    return pa.RecordBatch.from_arrays(
        [
            array
            if column.type != pa.uuid()
            else pa.ExtensionArray.from_storage(pa.uuid(), array)
            for column, array in zip(COLUMNS, columns, strict=True)
        ],
        names=[column.name for column in COLUMNS],
    )


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.binary(16) if kind == pa.uuid() else kind


def in_spark(rows: pa.RecordBatch) -> pa.RecordBatch:
    texts = [None if key is None else str(key) for key in rows.column("key").to_pylist()]
    return rows.set_column(rows.schema.get_field_index("key"), "key", pa.array(texts))


@pytest.mark.parametrize("text", CONDITIONS)
def test_rows_and_duckdb_agree(text: str) -> None:
    condition, rows = parsed(text), some_rows(7)
    truth = mask(condition, in_spark(rows)).to_pylist()
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        # Of two columns whose names differ in case alone DuckDB knows one.
        relation = connection.from_arrow(pa.Table.from_batches([rows.select(range(13))]))
        connection.register("rows_", relation)
        answer = connection.execute(f"SELECT {duckdb_sql(condition)} FROM rows_").fetchall()
    assert truth == [value for (value,) in answer]
    assert True in truth
    assert set(truth) != {True}


def test_nan_in_a_file_is_found_by_duckdb(tmp_path: Path) -> None:
    rows = pa.record_batch(
        {"load": [1.0, float("nan")], "short": pa.array([0.0, float("nan")], pa.float32())}
    )
    pq.write_table(pa.Table.from_batches([rows]), tmp_path / "rows.parquet")
    for text in ("load > 5", "NOT short <= 2", "short = 0"):
        condition = parsed(text)
        sql = f"SELECT count(*) FROM '{tmp_path}/rows.parquet' WHERE {duckdb_sql(condition)}"
        assert duckdb.sql(sql).fetchall() == [(1,)]
        assert rows.filter(mask(condition, rows)).num_rows == 1


@pytest.mark.parametrize("text", CONDITIONS)
def test_no_file_with_a_row_is_left_out(text: str) -> None:
    condition = parsed(text)
    for rows, bounds in FILES:
        files = prune(files_filter(condition), bounds)
        if pc.any(mask(condition, in_spark(rows))).as_py():
            assert files is None or files.to_pylist() == [True], (text, rows.to_pylist())


def _bounds(values: pa.Array) -> Bounds:
    kind = values.type
    nans = pc.sum(pc.is_nan(values)).as_py() or 0 if pa.types.is_floating(kind) else 0
    numbers = values.drop_null()
    if pa.types.is_floating(kind):
        numbers = numbers.filter(pc.invert(pc.is_nan(numbers)))
    ends = pc.min_max(numbers)

    def one(value: Any, of: pa.DataType = kind) -> pa.Array:
        return pa.array([value], of)

    return Bounds(
        one(ends["min"].as_py()),
        one(ends["max"].as_py()),
        one(values.null_count, pa.int64()),
        one(nans, pa.int64()),
        one(len(values), pa.int64()),
    )


def statistics(rows: pa.RecordBatch) -> Callable[[Condition], list[tuple[Bounds, Condition]]]:
    bounds = {
        name: _bounds(rows.column(name))
        for name in rows.schema.names
        if name not in ("key", "raw", "ok")
    }
    return lambda test: [(bounds[test.column], test)] if test.column in bounds else []


#: Rows of small files, with the statistics that they have.
FILES = [
    (rows, statistics(rows))
    for rows in (some_rows(seed).slice(0, 1 + seed % 3) for seed in range(40))
]


def test_a_condition_leaves_files_out() -> None:
    three = pa.scalar(3, pa.int32())
    assert files_filter(parsed("id = 3")) == ((Condition("id", "=", (three,)),),)
    # Not what the column's type has no value for, nor what statistics say nothing of.
    assert files_filter(parsed("short = 0.1")) == EVERYTHING
    assert files_filter(parsed("id <> 3")) == EVERYTHING
    assert files_filter(parsed("id = 9000000000")) == EVERYTHING
    many = " AND ".join(f"(id = {n} OR big = {n})" for n in range(9))
    assert len(files_filter(parsed(many))) == 2**6
    assert files_filter(parsed(" OR ".join(f"id = {n}" for n in range(101)))) == EVERYTHING
    assert both(((),), files_filter(parsed("id = 3"))) == files_filter(parsed("id = 3"))


def test_columns_are_listed_once() -> None:
    condition = parsed("id = 1 OR NOT (host = 'a' AND id = 2)")
    assert [column.name for column in columns_of(condition)] == ["id", "host"]
    assert isinstance(condition, Both)
    assert isinstance(condition.parts[0], Comparison)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' stands where a column should"),
        ("id", "'' is not understood behind a column"),
        ("id NOT", "is not understood behind a column"),
        ("ok NOT", "is not understood behind a column"),
        ("id = ", "stands where a constant should"),
        ("id = big", "'big' stands where a constant should"),
        ("id = -", "'' stands where a number should"),
        ("id = NULL", "write IS NULL"),
        ("3", "'3' is compared with nothing"),
        ("3 = 4", "'4' stands where a column should"),
        ("id = 3 4", "'4' is not understood there"),
        ("id = 1 + 2", "'+' is not understood there"),
        ("(id = 3", "'' stands where ) should"),
        ("id IS 3", "'3' stands where NULL should"),
        ("id BETWEEN 1 OR 2", "'OR' stands where AND should"),
        ("and = 3", "'and' stands where a column should"),
        ("place.zip = 3", "place. begins a field within a column"),
        ("upper(host) = 'A'", "upper( begins a function"),
        ("host = 'it''s'", "is not read here"),
        ("host = 'a\\'", "is not read here"),
        ('host = "a"', "is not read here"),
        ("id = 5L", "is not read here"),
        ("id = 3 -- more", "'-' is not understood there"),
        ("id <=> 3", "'<=>' is not understood behind a column"),
        ("ok > false", "does not compare truths"),
        ("(" * 200 + "id = 3" + ")" * 200, "nested too deeply"),
        ("NOT " * 200 + "ok", "nested too deeply"),
        ("x" * 20_001, "longer than 20,000"),
        ("idd = 3", "lake.net.flows: option filter: idd is no column of the table"),
        ("TWIN = 3", "TWIN may be Twin and twin"),
        ("id = 'a'", "a is no constant of column id, of type int64"),
        ("id = 1.5", "1.5 is no constant of column id"),
        ("id = 1e30", "1e30 is no constant"),
        ("big = 9223372036854775808", "is no constant"),
        ("load = 1e400", "is no constant"),
        ("big = 1e16", "is no constant"),
        ("host = '\ud800'", "is no constant"),
        ("load = '1'", "is no constant"),
        ("price = 1.005", "is no constant"),
        ("price = 1e9", "is no constant"),
        ("host = 3", "is no constant"),
        ("ok = 1", "is no constant"),
        ("day = 5", "is no constant"),
        ("day = 'monday'", "is no constant"),
        ("at = 5", "is no constant"),
        ("at = TIMESTAMP '2026-01-01 00:00:00'", "times have a zone where the column has one"),
        ("at = 'monday'", "is no constant"),
        ("local = '2026-01-01 00:00:00'", "is no constant"),
        ("raw = 'x'", "is no constant of column raw, of type binary"),
    ],
)  # fmt: skip
def test_what_may_mean_something_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadParameter) as refusal:
        parsed(text)
    assert words in refusal.value.message
