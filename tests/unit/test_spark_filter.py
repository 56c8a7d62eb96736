"""The option ``filter``: the server's SQL, which answers nothing otherwise than it did as Spark's."""

from __future__ import annotations

import datetime as dt
import decimal
import pickle
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

from connectors.spark.errors import unpack
from connectors.spark.filter_option import RowFilter, parse_filter, row_errors
from connectors.spark.lake.tasks import ColdShare, TaskReader
from planner.errors import BadParameter, SnapshotExpired
from planner.reading.filters import EVERYTHING, Bounds, Condition, prune
from planner.schema import Column, TableSchema
from planner.statement.gate import MAX_SQL_BYTES
from tests.harness.builders import FLOWS, schema

COLUMNS = (
    Column(1, "id", pa.int32()),
    Column(2, "big", pa.int64()),
    Column(3, "load", pa.float64()),
    Column(4, "short", pa.float32()),
    Column(5, "price", pa.decimal128(6, 2)),
    Column(6, "host", pa.string()),
    Column(7, "ok", pa.bool_()),
    Column(8, "day", pa.date32()),
    Column(9, "seen", pa.timestamp("us", tz="UTC")),
    Column(10, "local", pa.timestamp("us")),
    Column(11, "key", pa.uuid()),
    Column(12, "my`name", pa.int32()),
    Column(13, "raw", pa.binary()),
    Column(14, "Twin", pa.int32()),
    Column(15, "twin", pa.int32()),
    Column(16, "number", pa.int32()),
    Column(17, "pos", pa.struct([pa.field("x", pa.float64())])),
)
SCHEMA = TableSchema(0, COLUMNS)
UUID = "00000000-0000-0000-0000-00000000000a"
#: Each is true of some rows of ``some_rows``, and not of all.
CONDITIONS = (
    "id = 3",
    "3 < id",
    "2.0 >= ID",
    "id <> -1 and big > 9000000000",
    "NOT (id = 3 OR id IS NULL)",
    "load > 1.5",
    "load >= 1e0 OR load < -.5",
    "NOT load <= 2",
    "short = 0.1::DOUBLE OR short = .25",
    "short = 0.1::FLOAT",
    "short BETWEEN 0 AND 1",
    "price = 1.5 OR price IN (2, 3.25)",
    "host in ('a', 'b c') or host >= 'x'",
    "host NOT IN ('a')",
    "host == ''",
    "host LIKE 'b%' -- with a comment",
    "ok",
    "NOT ok AND id NOT BETWEEN 1 AND 4",
    "day >= DATE '2026-01-02'",
    "day = '2026-01-01'",
    "seen < TIMESTAMPTZ '2026-01-02T00:00:00Z'",
    "seen >= '2026-01-02 01:00:00+01:00'",
    "seen < TIMESTAMP '2026-01-02 00:00:00'",
    "local = TIMESTAMP '2026-01-02 00:00:00'",
    f"key = '{UUID}'",
    "key IS NOT NULL",
    """ "my`name" = 1 AND ("id" = 1 OR raw IS NULL) """,
    "id = 1 OR (id = 2 AND (host = 'a' OR NOT ok))",
    "length(host) > id % 2",
    "pos.x > 5",
)


def parsed(text: str) -> RowFilter:
    return parse_filter(text, FLOWS, SCHEMA)


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
        "seen": [None, time, time + dt.timedelta(1)],
        "local": [None, time.replace(tzinfo=None) + dt.timedelta(1)],
        "key": [None, uuid.UUID(UUID).bytes, bytes(16)],
        "my`name": [None, 1],
        "raw": [None, b"x"],
        "Twin": [1],
        "twin": [1],
        "pos": [None, {"x": None}, {"x": 1.0}, {"x": 9.0}, {"x": float("nan")}],
    }
    columns = [
        pa.array([draw.choice(values[column.name]) for _ in range(200)], _stored(column.type))
        if column.name != "number"
        else pa.array(range(200), column.type)
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


def in_files(condition: RowFilter, rows: pa.RecordBatch, folder: Path) -> list[Any]:
    """The ids of the rows in a Parquet file that it is true of."""
    pq.write_table(pa.Table.from_batches([rows]), folder / "rows.parquet")
    columns = [column for column in COLUMNS if column.name in rows.schema.names]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        sql = condition.rows_of(f"SELECT * FROM '{folder}/rows.parquet'", columns)
        answer = connection.execute(f"SELECT number FROM ({sql})").fetchall()
    return [number for (number,) in answer]


@pytest.mark.parametrize("text", CONDITIONS)
def test_rows_of_files_and_of_the_log_agree(text: str, tmp_path: Path) -> None:
    condition, rows = pickle.loads(pickle.dumps(parsed(text))), some_rows(7)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        hot = condition.apply(connection.cursor(), "t", rows).column("number").to_pylist()
    # Of two columns whose names differ in case alone DuckDB knows one.
    assert in_files(condition, rows.drop_columns(["Twin"]), tmp_path) == hot
    assert 0 < len(hot) < rows.num_rows


@pytest.mark.parametrize("text", CONDITIONS)
def test_no_file_with_a_row_is_left_out(text: str) -> None:
    condition = parsed(text)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for rows, bounds in FILES:
            files = prune(condition.files, bounds)
            if condition.apply(connection.cursor(), "t", rows).num_rows:
                assert files is None or files.to_pylist() == [True], (text, rows.to_pylist())


def test_nan_in_a_file_is_found(tmp_path: Path) -> None:
    rows = pa.record_batch(
        {
            "number": pa.array([0, 1], pa.int32()),
            "load": [1.0, float("nan")],
            "short": pa.array([0.0, float("nan")], pa.float32()),
            "pos": pa.array([{"x": 1.0}, {"x": float("nan")}]),
        }
    )
    for text, numbers in (
        ("load > 5", [1]),
        ("NOT short <= 2", [1]),
        ("short = 0", [0]),
        ("pos.x > 5", [1]),
    ):
        condition = parsed(text)
        assert in_files(condition, rows, tmp_path) == numbers
        with duckdb.connect() as connection:
            assert (
                condition.apply(connection, "t", rows).column("number").to_pylist() == numbers
            )


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
        if name not in ("key", "raw", "ok", "pos")
    }
    return lambda test: [(bounds[test.column], test)] if test.column in bounds else []


#: Rows of small files, with the statistics that they have.
FILES = [
    (rows, statistics(rows))
    for rows in (some_rows(seed).slice(0, 1 + seed % 3) for seed in range(40))
]


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("id = 3", [[("id", "=", 3)]]),
        ("load >= 1e0 OR load < -.5", [[("load", ">=", 1.0)], [("load", "<", -0.5)]]),
        (
            "id IN (1, 2) AND (big < 3 OR host = 'a')",
            [[("id", "in", 1, 2), ("big", "<", 3)], [("id", "in", 1, 2), ("host", "=", "a")]],
        ),
        ("id = 1 OR id = 2", [[("id", "in", 1, 2)]]),
        ("host LIKE 'ab%'", [[("host", "starts with", "ab")]]),
        ("date_trunc('day', day) = DATE '2026-01-02'", None),
        # Not what the column's type has no value for, nor what statistics say nothing of.
        ("short = 0.1::DOUBLE", []),
        ("id <> 3", []),
        ("id = 9000000000", []),
        ("id = 1 OR length(host) = 1", []),
        (" OR ".join(f"(id = {n} AND big > {n})" for n in range(101)), []),
    ],
)  # fmt: skip
def test_a_condition_leaves_files_out(
    text: str, files: list[list[tuple[Any, ...]]] | None
) -> None:
    condition = parsed(text)
    if files is None:
        assert {each.operator for each in condition.files[0]} == {">=", "<="}
        return
    assert [
        [
            (each.column, each.operator, *(value.as_py() for value in each.values))
            for each in place
        ]
        for place in condition.files
    ] == (files or [[]])
    assert files or condition.files == EVERYTHING


def test_columns_are_listed_once() -> None:
    condition = parsed("id = 1 OR NOT (HOST = 'a' AND ID = 2)")
    assert [column.name for column in condition.columns] == ["id", "host"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        # What Spark's SQL says in another way.
        ("`id` = 3", 'write double quotes around names, as in "my name"'),
        ("id <=> 3", "write IS NOT DISTINCT FROM for <=>"),
        ("host RLIKE 'a'", "write regexp_matches(column, pattern)"),
        ("id = 5L", "write numbers without a letter behind"),
        ("local = TIMESTAMP_NTZ '2026-01-01 00:00:00'", "write TIMESTAMP for TIMESTAMP_NTZ"),
        ("seen = TIMESTAMP_LTZ '2026-01-01Z'", "write TIMESTAMPTZ for TIMESTAMP_LTZ"),
        ('host = "a"', "a is no column of the table"),
        # What it says of another value.
        ("seen < TIMESTAMP '2026-01-02T00:00:00+01:00'", "TIMESTAMP leaves out the zone of '2026-01-02T00:00:00+01:00'; write TIMESTAMPTZ"),
        ("short = 0.1", "column short is compared in its type, FLOAT, which does not have this number"),
        ("short IN (1, +0.1)", "as in short > 0.1::DOUBLE"),
        ("16777217 >= short", "which does not have this number"),
        ("short < 123456789012345678901234.5", "which does not have this number"),
        (f"NOT (key = '{UUID.upper()}')", "is compared with key as a UUID; write it in small letters"),
        ("key > 'abc' OR id = 1", "Could not convert string 'abc'"),
        # What is no condition over the columns.
        ("", "SELECT clause without selection list"),
        ("TRUE", "it names no column"),
        ("id = ", "syntax error at end of input"),
        ("id = 3; SELECT 1", "one statement"),
        ("id = 3, ok", "one expression over the columns of a row is expected"),
        ("id = 3 ORDER BY 1", "one expression"),
        ("id = (SELECT 1)", "subqueries are not supported in a filter"),
        ("day = today()", "function today is not supported in a filter: they depend on the row only"),
        ("sum(id) = 3", "function sum is not supported in a filter: it does not make one value of one row"),
        ("host = current_user", "current_user is not known in a filter"),
        ("idd = 3", "lake.net.flows: option filter: idd is no column of the table"),
        ("TWIN = 3", "twin may be Twin and twin"),
        ("id = 'a'", "Could not convert string 'a'"),
        ("x" * (MAX_SQL_BYTES + 1), "bytes, the limit is"),
    ],
)  # fmt: skip
def test_what_is_no_condition_or_meant_something_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(BadParameter) as refusal:
        parsed(text)
    assert words in refusal.value.message
    assert refusal.value.message.startswith("lake.net.flows: option filter: ")


def test_a_value_that_a_condition_fails_on_is_named() -> None:
    condition = parsed("host::INTEGER > 3")
    rows = pa.record_batch({"host": ["a"]})
    with (
        duckdb.connect() as connection,
        pytest.raises(BadParameter, match=r"t: option filter: Could not convert string 'a'"),
    ):
        condition.apply(connection, "t", rows)
    with pytest.raises(duckdb.ConversionException), row_errors("t", None):
        raise duckdb.ConversionException("a file of another kind")


HOST, BYTES = Column(4, "host", pa.string()), Column(5, "bytes", pa.int32())


def test_a_filter_that_fails_on_a_row_and_a_file_that_is_gone_are_told_apart(
    tmp_path: Path,
) -> None:
    columns = schema(HOST, BYTES)
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"host": ["7", "a"], "bytes": pa.array([1, 2], pa.int32())}), file)

    def read(text: str) -> list[str]:
        condition = parse_filter(text, FLOWS, columns)
        sql = condition.rows_of(f"SELECT * FROM read_parquet('{file}')", (HOST, BYTES))
        batches = TaskReader(columns, {}, (), condition).read(ColdShare("t", sql, columns))
        return [row["host"] for batch in batches for row in batch.to_pylist()]

    assert read("bytes = 1 AND host = '7'") == ["7"]
    with pytest.raises(RuntimeError) as refusal:
        read("host::INTEGER = 7")
    error = unpack(str(refusal.value))
    assert isinstance(error, BadParameter)
    assert (
        error.message
        == "t: option filter: Could not convert string 'a' to INT32 when casting from source column host."
    )
    file.unlink()
    with pytest.raises(RuntimeError) as refusal:
        read("bytes = 1")
    assert isinstance(unpack(str(refusal.value)), SnapshotExpired)
