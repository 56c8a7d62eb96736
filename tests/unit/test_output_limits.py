"""Every type at its limits, in every format of the command line: right, or as text, never another value."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from thermocline.output.formats import WRITERS
from thermocline.output.table import Grid, show
from thermocline.output.values import plain_values

UTC = "UTC"
#: Microseconds since 1970 of the first of January 58877, as Iceberg holds it.
FAR_US = 1_795_811_558_400_000_000
MAX64, MAX32 = 2**63 - 1, 2**31 - 1


def micros(*numbers: int, zone: str | None = None) -> pa.Array:
    return pa.array(numbers, pa.int64()).cast(pa.timestamp("us", zone))


def days(*numbers: int) -> pa.Array:
    return pa.array(numbers, pa.int32()).cast(pa.date32())


#: A column, and the texts that its values are where they are no values of Python's.
COLUMNS: dict[str, tuple[pa.Array, list[str]]] = {
    "far timestamp": (micros(FAR_US), ["58877-01-01 00:00:00.000000"]),
    "far timestamptz": (micros(FAR_US, zone=UTC), ["58877-01-01 00:00:00.000000Z"]),
    "least timestamp": (micros(-MAX64 - 1), ["-290308-12-21 19:59:05.224192"]),
    "infinite": (micros(MAX64, -MAX64, zone=UTC), ["infinity", "-infinity"]),
    "greatest": (micros(MAX64 - 1), ["294247-01-10 04:00:54.775806"]),
    "year 10000": (micros(253_402_300_800_000_000), ["10000-01-01 00:00:00.000000"]),
    "year 0": (micros(-62_135_596_800_000_001), ["0000-12-31 23:59:59.999999"]),
    "far date": (days(20_000_000), ["56728-02-22"]),
    "infinite date": (days(MAX32, -MAX32), ["infinity", "-infinity"]),
    "least date": (days(-MAX32 - 1), ["-5877641-06-23"]),
    "24:00": (
        pa.array([86_400_000_000], pa.int64()).cast(pa.time64("us")),
        ["24:00:00.000000"],
    ),
    "nanoseconds": (
        pa.array([MAX64 - 1], pa.int64()).cast(pa.timestamp("ns")),
        ["2262-04-11 23:47:16.854775806"],
    ),
    "seconds": (
        pa.array([253_402_300_800], pa.int64()).cast(pa.timestamp("s")),
        ["10000-01-01 00:00:00"],
    ),
}


def nested(column: pa.Array) -> list[pa.Array]:
    """The column inside a list, a struct, and a map."""
    one_each = pa.array(range(len(column) + 1), pa.int32())
    names = pa.array([f"k{index}" for index in range(len(column))])
    return [
        pa.ListArray.from_arrays(one_each, column),
        pa.StructArray.from_arrays([column], ["t"]),
        pa.MapArray.from_arrays(one_each, names, column),
    ]


def written(form: str, column: pa.Array) -> bytes:
    sink = io.BytesIO()
    batch = pa.RecordBatch.from_arrays([column], ["a"])
    if form == "table":
        grid = Grid.of(batch.schema, width=None, colour=False)
        rendered = show(grid, [batch], max_rows=0)
        return rendered.text.encode()
    WRITERS[form](sink, batch.schema, [batch])
    return sink.getvalue()


@pytest.mark.parametrize("form", ["table", "csv", "json", "jsonl"])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_time_that_is_none_of_pythons_is_written_as_it_is(name: str, form: str) -> None:
    column, texts = COLUMNS[name]
    for each in (column, *nested(column)):
        text = written(form, each).decode()
        assert all(value in text for value in texts), text


@pytest.mark.parametrize("name", COLUMNS)
def test_arrow_and_parquet_keep_the_value(name: str) -> None:
    column, _ = COLUMNS[name]
    assert pa.ipc.open_file(written("arrow", column)).read_all()["a"].combine_chunks() == column
    if not pa.types.is_time(column.type):  # Parquet's own limit is a day
        again = pq.read_table(io.BytesIO(written("parquet", column)))["a"].combine_chunks()
        assert again.cast(column.type) == column


PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
_ROW = re.compile(
    r"^\| ([a-z]+)(?: or ([a-z]+))?, (-?\d+) (?:microseconds|days)[^|]*\| `([^`]+)` \|$", re.M
)
#: Type, number and text of each time that the page lists.
LISTED = [
    (kind, int(number), text)
    for one, other, number, text in _ROW.findall(PAGE)
    for kind in (one, other)
    if kind
]


def test_the_page_lists_times_of_each_type() -> None:
    assert len(LISTED) == 9
    assert {kind for kind, _, _ in LISTED} == {"date", "timestamp", "timestamptz"}


@pytest.mark.parametrize("form", ["table", "csv", "json", "jsonl"])
@pytest.mark.parametrize(("kind", "number", "text"), LISTED)
def test_a_time_is_written_as_the_page_says(
    kind: str, number: int, text: str, form: str
) -> None:
    zone = UTC if kind == "timestamptz" else None
    column = days(number) if kind == "date" else micros(number, zone=zone)
    [line] = [each for each in written(form, column).decode().splitlines() if text in each]
    assert re.search(rf"(^|[^-\w]){re.escape(text)}($|\W)", line)


#: Values of the other types at their limits, and as JSON has them.
PLAIN: list[tuple[pa.Array, list[Any]]] = [
    (pa.array([MAX64, -MAX64 - 1]), [MAX64, -MAX64 - 1]),
    (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
    (pa.array([1.7976931348623157e308, 5e-324, -0.0]), [1.7976931348623157e308, 5e-324, -0.0]),
    (pa.array([float("nan"), float("inf")]), [None, None]),
    (pa.array(["9" * 38], pa.string()).cast(pa.decimal128(38, 0)), ["9" * 38]),
    (pa.array(["", "\0é\U0010ffff"]), ["", "\0é\U0010ffff"]),
    (pa.array([None], pa.int32()), [None]),
    (days(-719_162, 2_932_896), ["0001-01-01", "9999-12-31"]),
    (micros(-62_135_596_800_000_000, zone=UTC), ["0001-01-01T00:00:00Z"]),
    (micros(253_402_300_799_999_999), ["9999-12-31T23:59:59.999999"]),
]


@pytest.mark.parametrize(("column", "values"), PLAIN, ids=lambda each: str(each)[:40])
def test_other_values_at_their_limits_are_written_as_before(
    column: pa.Array, values: list[Any]
) -> None:
    assert [row["a"] for row in json.loads(written("json", column))] == values
    for form in (*WRITERS, "table"):
        assert written(form, column)
    nulls = pa.concat_arrays([column, pa.nulls(1, column.type)])
    assert plain_values(nulls)[-1] is None


def test_a_batch_with_a_far_time_changes_no_other_batch_of_a_csv_file() -> None:
    near, far = micros(0), micros(FAR_US)
    batches = [pa.RecordBatch.from_arrays([each], ["a"]) for each in (near, far, near)]
    sink = io.BytesIO()
    WRITERS["csv"](sink, batches[0].schema, batches)
    lines = sink.getvalue().decode().splitlines()
    plain = "1970-01-01 00:00:00.000000"
    assert lines == ['"a"', plain, '"58877-01-01 00:00:00.000000"', plain]
