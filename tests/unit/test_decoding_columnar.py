"""The columnar path: what it takes, and what it leaves to the others. Its values: tests/properties."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from connectors.json.columnar import ColumnarPath
from connectors.json.fields import payload_fields
from planner.binding import Binding
from planner.schema import TIMESTAMPTZ, Column
from tests.harness.builders import schema

COLUMNS = (
    Column(4, "n", pa.int32()),
    Column(5, "x", pa.float64()),
    Column(6, "at", TIMESTAMPTZ),
    Column(7, "day", pa.date32(), epoch_unit="s"),
    Column(8, "label", pa.string()),
)


def path(*columns: Column) -> ColumnarPath | None:
    return ColumnarPath.of(payload_fields("t", schema(*columns), Binding("t")))


def read(
    *values: str | bytes | None, columns: tuple[Column, ...] = COLUMNS
) -> list[Any] | None:
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    entry = path(*columns)
    assert entry is not None
    arrays = entry.read(pa.array(raw, pa.binary()))
    return None if arrays is None else [array.to_pylist() for array in arrays]


def test_records_of_plain_columns_are_read_whole() -> None:
    first = {"n": 1, "x": -0.5, "label": "grüße \u0000", "extra": {"deep": [1, {}]}}
    second = {"at": "2024-01-05T10:00:00.5-05:30", "day": 86400, "n": None}
    answer = read(json.dumps(first), None, "{ \n" + json.dumps(second)[1:] + "\n")
    assert answer is not None
    assert [values[0] for values in answer] == [1, -0.5, None, None, "grüße \u0000"]
    assert answer[0] == [1, None]
    assert [str(answer[2][1]), str(answer[3][1])] == [
        "2024-01-05 15:30:00.500000+00:00",
        "1970-01-02",
    ]


@pytest.mark.parametrize(
    "value",
    [
        '{"n": 1.0}',
        '{"n": "1"}',
        '{"n": 2147483648}',
        '{"x": -0}',
        '{"x": 1e400}',
        '{"x": "NaN"}',
        '{"x": NaN}',
        '{"at": "2024-01-05"}',
        '{"at": "2024-01-05T10:00:00"}',
        '{"at": "0001-01-01T00:00:00+00:01"}',
        '{"day": 86401}',
        '{"label": 7}',
        '{"label": "\\ud800"}',
        '{"label": "\t"}',
        '{"n": 1, "n": 2}',
        "{}",
        "",
        " ",
        "[1]",
        "null",
        '\ufeff{"n": 1}',
        ' {"n": 1}',
        '{"n": 1}{"n": 2}',
        '{"n": 1}\n{"n": 2}',
        '{"n": 1}}',
        '{"n": 1,}',
        '{"n": 01}',
        '{"n": 1} // said',
        b'{"label": "\xff"}',
        b'{"skipped": "\xff"}',
        '{"deep": ' + "[" * 501 + "]" * 501 + "}",
    ],
)
def test_whatever_is_not_certain_leaves_the_batch_to_the_other_paths(
    value: str | bytes,
) -> None:
    assert read('{"n": 1}', value, '{"n": 2}') is None


def test_pieces_of_records_are_never_joined() -> None:
    assert read('{"n":', "1}", '{"n": 1}{"n": 2}') is None
    assert read('{"n": {"n":', '{"n": 1}}}', '{"n": 1}\n{"n": 2}') is None


def test_a_missing_required_value_is_in_doubt() -> None:
    required = (Column(4, "n", pa.int32(), required=True), Column(5, "m", pa.int32()))
    assert read('{"n": 1}', '{"n": 2, "m": null}', columns=required) == [[1, 2], [None, None]]
    assert read('{"n": 1}', '{"m": 2}', columns=required) is None


def test_a_float_is_rounded_from_the_nearest_double() -> None:
    """Directly from the text this one would round the other way."""
    text = "1.00000017881393432617187499"
    column = (Column(4, "f", pa.float32()),)
    answer = read(f'{{"f": {text}}}', columns=column)
    assert answer == [[pa.scalar(float(text), pa.float64()).cast(pa.float32()).as_py()]]


@pytest.mark.parametrize(
    "column",
    [
        Column(4, "c", pa.decimal128(5, 2)),
        Column(4, "c", pa.uuid()),
        Column(4, "c", pa.list_(pa.field("element", pa.int32()))),
        Column(4, "c", pa.string(), keys=("c", "former")),
    ],
)
def test_other_columns_are_not_for_this_path(column: Column) -> None:
    assert path(column) is None
    assert path(Column(5, "n", pa.int32()), column) is None
