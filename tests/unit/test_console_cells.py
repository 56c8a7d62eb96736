"""Values as the console's pages show them: every digit, every year, no number that a browser would round."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from thermocline.console.cells import columns_of, full_text, lists_of, records_of, rows_of

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.int64(), 2**63 - 1, "9223372036854775807"),
        (pa.int64(), 2**53 + 1, "9007199254740993"),
        (pa.uint64(), 2**64 - 1, "18446744073709551615"),
        (pa.decimal128(38, 10), decimal.Decimal("1234567890123456789012345678.0123456789"), "1234567890123456789012345678.0123456789"),
        (pa.decimal128(38, 38), decimal.Decimal("1e-38"), "0." + "0" * 37 + "1"),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float64(), float("-inf"), "-Infinity"),
        (pa.float64(), 0.1, "0.1"),
        (pa.float32(), 0.1, "0.1"),
        (pa.float32(), float("nan"), "NaN"),
        (pa.float32(), float("-inf"), "-Infinity"),
        (pa.bool_(), True, "true"),
        (pa.date32(), datetime.date(1, 1, 1), "0001-01-01"),
        (pa.timestamp("us", tz="UTC"), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), "9999-12-31 23:59:59.999999+00:00"),
        (pa.timestamp("us"), datetime.datetime(1, 1, 1), "0001-01-01 00:00:00"),
        (pa.binary(), b"\x00\xff", "0x00ff"),
        (pa.string(), "<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"),
        (pa.list_(pa.string()), ["a", None, '"'], '["a", NULL, "\\""]'),
        (pa.map_(pa.string(), pa.int64()), [("a", 2**60)], '["a": 1152921504606846976]'),
        (pa.struct([("a", pa.struct([("b", pa.list_(pa.float64()))]))]), {"a": {"b": [float("nan")]}}, "{a: {b: [NaN]}}"),
        (pa.null(), None, None),
    ],
)  # fmt: skip
def test_a_value_is_a_text_with_all_of_it(
    kind: pa.DataType, value: Any, text: str | None
) -> None:
    table = pa.table({"v": pa.array([value, None], kind)})
    assert rows_of(table) == [[text], [None]]
    assert records_of(table) == [{"v": text}, {"v": None}]


def test_a_time_beyond_pythons_years_keeps_its_year() -> None:
    numbers = pa.array([253_402_300_800_000_000], pa.int64())
    assert rows_of(pa.table({"t": numbers.cast(pa.timestamp("us"))})) == [
        ["10000-01-01 00:00:00.000000"]
    ]


def test_a_long_value_is_cut_in_a_grid_and_whole_alone() -> None:
    table = pa.table({"v": ["x" * 10_000_000, "y"]})
    assert rows_of(table) == [[("x" * 500, 10_000_000)], ["y"]]
    text = full_text(table.column(0), 0)
    assert text is not None
    assert len(text) == 1 << 20
    assert full_text(table.column(0), 1) == "y"


def test_a_chart_draws_numbers() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.decimal128(4, 2)), ("c", pa.string())])
    assert [column["is_number"] for column in columns_of(schema)] == [True, True, False]


def test_no_rows_and_columns_of_one_name_are_answers_too() -> None:
    assert rows_of(pa.table({"a": pa.array([], pa.int64())})) == []
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert rows_of(twice) == [["1", "2"]]


def test_rows_of_several_lists_are_records_of_each() -> None:
    one, two = {"n": 2**60, "names": ["a"]}, {"n": None, "names": None}
    table = pa.table(
        {
            "some": pa.array([one, None, two]),
            "others": pa.array([None, {"b": True}, None]),
            "none": pa.nulls(3, pa.struct({"c": pa.int32()})),
        }
    )
    assert lists_of(table) == {
        "some": [{"n": str(2**60), "names": '["a"]'}, {"n": None, "names": None}],
        "others": [{"b": "true"}],
        "none": [],
    }
